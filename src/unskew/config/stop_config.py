"""The section `stop` of a recipe: when a run stops before its last round."""

from __future__ import annotations

import re

from pydantic import Field, field_validator, model_validator

from unskew.base.config_base import ConfigSection


class StopConfig(ConfigSection):
    metric: str | None = Field(
        None,
        description="split/metric; default: validation/accuracy if rows are held out, else test/accuracy",
    )
    patience: int | None = Field(None, ge=1, description="stop after this many evaluations without a better value")
    target: float | None = Field(None, description="stop at this value; accuracies in percent")

    @field_validator("metric")
    @classmethod
    def _valid_metric(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"(validation|test)/(accuracy(/\d+)?|loss)", value):
            raise ValueError("expected split/metric such as validation/accuracy, test/loss or test/accuracy/3")
        return value

    @model_validator(mode="after")
    def _has_a_rule(self) -> StopConfig:
        if self.patience is None and self.target is None:
            raise ValueError("expected patience, target or both, such as {patience: 10}")
        return self
