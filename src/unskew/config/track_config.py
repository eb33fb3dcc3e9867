"""The key `track` of a recipe: which loggers are told, and where they write."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from unskew.base.config_base import NamedSection


class TrackConfig(NamedSection):
    name: Literal["tensorboard", "mlflow", "wandb"]
    dir: str | None = Field(
        None, description="where it writes; tensorboard: in the run's folder, the others: where they always do"
    )
    project: str = Field("unskew", description="experiment of mlflow, project of wandb")
    mode: Literal["offline", "online"] | None = Field(
        None, description="of wandb: offline, unless this or WANDB_MODE says otherwise"
    )


def written_as_list(value: Any) -> Any:
    """`track: tensorboard` and `track: {name: wandb}` as lists of one."""
    return [value] if isinstance(value, str | dict) else value
