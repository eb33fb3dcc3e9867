"""The key `track` of a recipe: which loggers get every round, and where they write."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from unskew.base.config_base import NamedSection


class TrackConfig(NamedSection):
    name: Literal["tensorboard", "mlflow", "wandb"]
    dir: str | None = Field(
        None,
        description="output folder; default for tensorboard: in the run's folder, for the others: their own default",
    )
    project: str = Field("unskew", description="experiment in mlflow, project in wandb")
    mode: Literal["offline", "online"] | None = Field(None, description="of wandb; default: WANDB_MODE, else offline")


def as_list(value: Any) -> Any:
    """`track: tensorboard` and `track: {name: wandb}` as lists with one item."""
    return [value] if isinstance(value, str | dict) else value
