"""Cells of a table or figure that cannot be shown, and the reason."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.reproductions.paper_names import format_columns


@dataclass(frozen=True)
class MissingCells:
    """Methods of columns that are missing for one reason; no methods: all of them, no columns: in all of them."""

    why: str
    columns: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line.

        >>> print(MissingCells("not recorded", ("mnist-2",), ("moon",)), MissingCells("not yet", (), ("a", "b")))
        column mnist-2, moon: not recorded methods a, b: not yet
        """
        names = ", ".join(self.methods)
        if self.columns:
            return f"{format_columns(self.columns)}{', ' * bool(names)}{names}: {self.why}"
        return f"method{'s' * (len(self.methods) > 1)} {names}: {self.why}" if names else self.why
