"""The share of an engine's computation that is padding."""

from dataclasses import dataclass


@dataclass
class PaddingCount:
    """Rows of all steps: those that clients need, and those computed, which includes the padding of last batches."""

    needed: int = 0
    computed: int = 0

    def add(self, needed: int, computed: int) -> None:
        self.needed, self.computed = self.needed + needed, self.computed + computed

    @property
    def share(self) -> float:
        return 1 - self.needed / self.computed if self.computed else 0.0
