"""What every section of the schema is made of, and its keys with dots."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class ConfigSection(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NamedSection(ConfigSection):
    """A section that may be written as its name alone: `data: cifar10`."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def dotted(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of nested sections under its full key.

    >>> dotted({"local": {"lr": 0.1}, "seed": 3})
    {'local.lr': 0.1, 'seed': 3}
    """
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for key, value in tree.items() for k, v in dotted(value, f"{prefix}.{key}".lstrip(".")).items()}
