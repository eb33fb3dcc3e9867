"""Base classes of the config sections, and dotted keys such as `local.lr`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class ConfigSection(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NamedSection(ConfigSection):
    """A section that may be written as just its name: `data: cifar10`."""

    @model_validator(mode="before")
    @classmethod
    def _expand_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def dotted_keys(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested sections: every leaf under its full key.

    >>> dotted_keys({"local": {"lr": 0.1}, "seed": 3})
    {'local.lr': 0.1, 'seed': 3}
    """
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for key, value in tree.items() for k, v in dotted_keys(value, f"{prefix}.{key}".lstrip(".")).items()}
