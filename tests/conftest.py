"""Seeds PyTorch before every test, so that a failure can be reproduced."""

import pytest
import torch

torch.manual_seed(0)  # for random numbers that modules draw on import


@pytest.fixture(autouse=True)
def _seed_pytorch() -> None:
    torch.manual_seed(0)
