"""The schema of a run: every key, its type, its limits, its default. Unknown keys and impossible values stop here."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from unskew.core import registry
from unskew.core.method import Method, hyper_parameters
from unskew.core.plan import Absence
from unskew.core.work import Work
from unskew.data.partition import Partition
from unskew.models.norms import BatchNormPolicy

Share = Annotated[float, Field(ge=0, lt=1)]


class Strict(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Named(Strict):
    """A section that may be written as its name alone: `data: cifar10`."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class AugmentConfig(Strict):
    crop: int = Field(0, ge=0, description="pixels of zero padding for a random crop; 4 in FLea and FedLMD")
    flip: bool = Field(False, description="mirror half of the images")
    cutout: int = Field(0, ge=0, description="side of a blanked square; 16 in FedLMD's code, 0 in its text")


class DataConfig(Named):
    name: str = Field("digits", description="a dataset's name, hf:NAME, a path ending in .npz, or a folder of images")
    test: float | None = Field(
        None, gt=0, lt=1, description="share of test rows, for data that come without a test set"
    )
    validation: float = Field(0.0, ge=0, lt=1, description="share of training rows held out, by class")
    verify: bool = Field(True, description="compare files with the official checksums")
    augment: AugmentConfig = AugmentConfig()


class ModelConfig(Named):
    name: str = Field("mlp", description="a model of the zoo")
    batchnorm: BatchNormPolicy = Field(
        "average", description="average like weights; local: stays with the client (FedBN); frozen; group: GroupNorm"
    )


class EngineConfig(Named):
    name: Literal["auto", "loop", "stacked"] = Field("auto", description="auto: stacked on a GPU, loop on the CPU")
    workers: int | None = Field(None, ge=1, description="processes of the loop engine; empty means the cores")


class Constant(Strict):
    name: Literal["constant"] = "constant"

    def factor(self, t: int, rounds: int) -> float:
        return 1.0


class Exponential(Strict):
    name: Literal["exponential"] = "exponential"
    rate: float = Field(0.99, gt=0, le=1, description="per round; FedLMD 0.99, FLea 0.98")

    def factor(self, t: int, rounds: int) -> float:
        return self.rate**t


class Linear(Strict):
    name: Literal["linear"] = "linear"
    slope: float = Field(gt=0, lt=1, description="share of the first rate lost per round; 0.018 in FLea's code")

    def factor(self, t: int, rounds: int) -> float:
        return max(1.0 - self.slope * t, 0.0)


class Cosine(Strict):
    name: Literal["cosine"] = "cosine"

    def factor(self, t: int, rounds: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * t / max(rounds, 1)))


Schedule = Annotated[Constant | Exponential | Linear | Cosine, Field(discriminator="name")]


class LocalConfig(Strict):
    epochs: int = Field(5, ge=1, description="passes over a client's rows in a round")
    steps: int | None = Field(None, ge=1, description="when given, counts instead of epochs")
    batch: int = Field(50, ge=1, description="rows of a step; a partial last batch is filled at weight 0")
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = Field(0.01, gt=0, description="learning rate of round 1")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    nesterov: bool = False
    weight_decay: float = Field(1e-5, ge=0)
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="of Adam and AdamW")
    scope: Literal["round", "step"] = Field(
        "round", description="when the optimiser forgets; step: FLea's released code"
    )
    clip: float | None = Field(None, gt=0, description="largest norm of one client's gradient")
    schedule: Schedule = Exponential()
    floor: float = Field(0.0, ge=0, description="smallest learning rate a schedule may reach")

    @field_validator("schedule", mode="before")
    @classmethod
    def _schedule(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _nesterov(self) -> LocalConfig:
        if self.nesterov and (self.optimiser != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimiser: sgd with a momentum above 0")
        return self

    def lr_at(self, round: int, rounds: int) -> float:
        """Learning rate of a round, from 1; never below a millionth of the first, because SCAFFOLD divides by it."""
        return max(self.lr * self.schedule.factor(round - 1, rounds), self.floor, 1e-6 * self.lr)

    def work(self, round: int, rounds: int) -> Work:
        """The work of a round before any part has its say."""
        kept = {
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
        return Work(lr=self.lr_at(round, rounds), **kept)


class EvaluateConfig(Strict):
    every: int = Field(1, ge=1, description="rounds between evaluations; the last round is always evaluated")


class RecordConfig(Strict):
    rounds: tuple[int, ...] = Field((), description="rounds whose messages are kept in full")
    clients: tuple[int, ...] | Literal["all"] = Field(
        "all", description="clients whose messages are kept in those rounds"
    )

    def keeps(self, round: int, client: int) -> bool:
        return round in self.rounds and (self.clients == "all" or client in self.clients)


class AbsenceConfig(Strict):
    clients: tuple[int, ...] = Field(description="who cannot be reached")
    rounds: tuple[int, int] = Field(description="from the first of these rounds until before the second")

    @field_validator("rounds")
    @classmethod
    def _rising(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] < value[1]:
            raise ValueError("expected [first, end) with 1 <= first < end")
        return value

    def absence(self) -> Absence:
        return Absence(self.clients, *self.rounds)


class CheckpointConfig(Strict):
    seconds: float = Field(5.0, ge=0, description="least time between checkpoints; 0 saves after every round")


class Experiment(Strict):
    """One run. `us.Experiment(method="fedprox", rounds=50)`; the same keys as a recipe."""

    method: list[str | dict[str, dict[str, Any]]] = Field(["fedavg"], description="name, a+b, or a list with settings")
    rounds: int = Field(20, ge=1)
    seed: int = Field(0, ge=0, lt=2**32)
    participation: float = Field(1.0, gt=0, le=1, description="share of the clients in a round")
    weights: Literal["samples", "uniform"] = Field("samples", description="how clients count in the mean")
    data: DataConfig = DataConfig()
    partition: Partition = Field(default={"name": "iid", "clients": 10}, validate_default=True)
    model: ModelConfig = ModelConfig()
    local: LocalConfig = LocalConfig()
    engine: EngineConfig = EngineConfig()
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: a GPU if there is one")
    precision: Literal["float32", "tf32", "float64"] = "float32"
    evaluate: EvaluateConfig = EvaluateConfig()
    record: RecordConfig = RecordConfig()
    preset: Literal["paper", "released"] = Field(
        "paper",
        description="paper: as the text says; released: as its code does (clients sampled from the round alone)",
    )
    absence: tuple[AbsenceConfig, ...] = ()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, value: Any) -> Any:
        return written_out(value)

    @field_validator("partition", mode="before")
    @classmethod
    def _partition(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return {"name": value} if value == "group" else {"name": value, "clients": 10}

    @model_validator(mode="after")
    def _known_clients(self) -> Experiment:
        """Ids beyond the number of clients, where the partition gives it."""
        clients = self.partition.clients
        named = {"absence": [k for a in self.absence for k in a.clients]}
        named["record"] = list(self.record.clients) if self.record.clients != "all" else []
        for key, ids in named.items():
            unknown = [k for k in ids if k < 0 or (clients is not None and k >= clients)]
            if unknown:
                last = "the last client" if clients is None else clients - 1
                raise ValueError(f"{key}.clients: expected numbers in 0..{last}, found {unknown}")
        return self

    def create_method(self) -> Method:
        """The parts, validated."""
        return registry.create(registry.resolve(self.method))

    @property
    def label(self) -> str:
        """The method's registered name, or its names joined with +."""
        return registry.label(self.method)

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, as plain data for YAML."""
        return self.model_dump(mode="json")

    def counting(self) -> dict[str, Any]:
        """The keys that may change a result."""
        plain = self.resolved()
        for key in ("checkpoint", "record"):
            del plain[key]
        del plain["engine"]["workers"]
        return plain

    def identity(self) -> str:
        """Eight characters that change with anything that may change a result."""
        plain = self.counting()
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8]


def written_out(spec: Any) -> list[Any]:
    """A method specification as names followed by every setting of every part; reading it again changes nothing."""
    parts = registry.create(registry.resolve(spec)).parts
    settings = [{part.name: fields} for part in parts if (fields := hyper_parameters(part))]
    name = registry.label(spec)
    return [*([name] if name in registry.METHODS else registry.typed_names(spec)), *settings]
