"""The section `local` of a recipe: amount of local training, optimiser, learning rate and its schedule."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from unskew.base.config_base import ConfigSection
from unskew.protocol.work import Work

Share = Annotated[float, Field(ge=0, lt=1)]


class ConstantSchedule(ConfigSection):
    name: Literal["constant"] = "constant"

    def factor(self, t: int, rounds: int) -> float:
        return 1.0


class ExponentialSchedule(ConfigSection):
    name: Literal["exponential"] = "exponential"
    rate: float = Field(0.99, gt=0, le=1, description="per round; FedLMD 0.99, FLea 0.98")

    def factor(self, t: int, rounds: int) -> float:
        return self.rate**t


class LinearSchedule(ConfigSection):
    name: Literal["linear"] = "linear"
    slope: float = Field(gt=0, lt=1, description="share of the initial rate subtracted per round; 0.018 in FLea's code")

    def factor(self, t: int, rounds: int) -> float:
        return max(1.0 - self.slope * t, 0.0)


class CosineSchedule(ConfigSection):
    name: Literal["cosine"] = "cosine"

    def factor(self, t: int, rounds: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * t / max(rounds, 1)))


Schedule = Annotated[
    ConstantSchedule | ExponentialSchedule | LinearSchedule | CosineSchedule, Field(discriminator="name")
]


class LocalConfig(ConfigSection):
    epochs: int = Field(5, ge=1, description="passes over a client's rows in a round")
    steps: int | None = Field(None, ge=1, description="replaces epochs when given")
    batch: int = Field(50, ge=1, description="rows of a step; a partial last batch is padded with rows of weight 0")
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = Field(0.01, gt=0, description="learning rate of round 1")
    momentum: float = Field(0.9, ge=0, lt=1, description="only for SGD")
    nesterov: bool = False
    weight_decay: float = Field(1e-5, ge=0)
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="only for Adam and AdamW")
    scope: Literal["round", "step"] = Field(
        "round", description="when the optimiser state is reset; step: like FLea's released code"
    )
    clip: float | None = Field(None, gt=0, description="largest norm of a client's gradient")
    schedule: Schedule = ExponentialSchedule()
    floor: float = Field(0.0, ge=0, description="smallest learning rate a schedule may reach")

    @field_validator("schedule", mode="before")
    @classmethod
    def _schedule(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _nesterov(self) -> LocalConfig:
        if self.nesterov and (self.optimiser != "sgd" or self.momentum == 0):
            raise ValueError("nesterov: expected optimiser sgd with a momentum above 0")
        return self

    def lr_at(self, round: int, rounds: int) -> float:
        """Learning rate of a round (from 1); never below a millionth of the first, because SCAFFOLD divides by it."""
        return max(self.lr * self.schedule.factor(round - 1, rounds), self.floor, 1e-6 * self.lr)

    def work(self, round: int, rounds: int) -> Work:
        """The work of a round before any part changes it."""
        settings = {
            name: getattr(self, name)
            for name in (
                "batch",
                "optimiser",
                "momentum",
                "nesterov",
                "weight_decay",
                "betas",
                "scope",
                "clip",
                "steps",
                "epochs",
            )
        }
        return Work(lr=self.lr_at(round, rounds), **settings)
