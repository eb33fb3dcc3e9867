"""For all tests: draws without a seed of their own are the same each time, so that a failure can be seen again."""

import pytest
import torch

torch.manual_seed(0)  # for what modules draw while they are imported


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)
