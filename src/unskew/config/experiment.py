"""The schema of a run: every key with its type, limits and default. Unknown keys and invalid values are refused."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from unskew.base.config_base import ConfigSection, NamedSection
from unskew.base.errors import expected_one_of
from unskew.config.absence_config import AbsenceConfig
from unskew.config.local_config import LocalConfig
from unskew.config.stop_config import StopConfig
from unskew.config.track_config import TrackConfig, as_list
from unskew.config.user_code import UsedFile, used_files
from unskew.data.partition import Partition
from unskew.engines import engine_registry as engines
from unskew.models.norms import BatchNormPolicy
from unskew.protocol import method_registry
from unskew.protocol.method import Method, hyper_parameters
from unskew.server.reply_policy import ReplyPolicy

RECORDED = {"recorded": True}  # context of validation: names of code that is not imported here are accepted


def _is_recorded(info: ValidationInfo) -> bool:
    return bool(info.context) and info.context is RECORDED


class AugmentConfig(ConfigSection):
    crop: int = Field(0, ge=0, description="pixels of zero padding for a random crop; 4 in FLea and FedLMD")
    flip: bool = Field(False, description="mirror half of the images")
    cutout: int = Field(0, ge=0, description="side of a blanked square; 16 in FedLMD's code, 0 in the paper")
    frozen: bool = Field(
        False, description="draw crop and flip of a training row once for all rounds, like FLea's code"
    )
    test: bool = Field(False, description="also crop and flip the test rows, once, like FLea's code")

    @model_validator(mode="after")
    def _no_stored_cutout(self) -> Self:
        if self.cutout and (self.frozen or self.test):
            raise ValueError(
                "expected no cutout with frozen or test, because cutout follows normalisation; type "
                "data.augment.cutout=0"
            )
        return self


class DataConfig(NamedSection):
    name: str = Field("digits", description="a dataset's name, hf:NAME, a path ending in .npz, or a folder of images")
    test: float | None = Field(None, gt=0, lt=1, description="share of test rows, for datasets without a test set")
    validation: float = Field(0.0, ge=0, lt=1, description="share of training rows held out, by class")
    verify: bool = Field(True, description="compare files with the official checksums")
    augment: AugmentConfig = AugmentConfig()


class ModelConfig(NamedSection):
    name: str = Field("mlp", description="a model of the zoo, see `unskew models`")
    batchnorm: BatchNormPolicy = Field(
        "average",
        description="average: like weights; local: per client (FedBN); frozen: fixed statistics; group: GroupNorm",
    )


class EngineConfig(NamedSection):
    name: str = Field("auto", description="auto: stacked on a GPU, loop on the CPU; plain is for debugging")
    workers: int | None = Field(None, ge=1, description="processes of the loop engine; default: the number of cores")

    @field_validator("name")
    @classmethod
    def _registered(cls, value: str, info: ValidationInfo) -> str:
        known = engines.names()
        if value not in known and not _is_recorded(info):
            # With the type and context of a Literal's error, a recipe's mistake is explained in the same words.
            listed = ", ".join(map(repr, known))
            raise PydanticCustomError(
                "literal_error", "{text}", {"expected": listed, "text": expected_one_of(known, value)}
            )
        return value


class EvaluateConfig(ConfigSection):
    every: int = Field(1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    clients: bool = Field(False, description="also the accuracy for each client, on its own test rows or label shares")


class RecordConfig(ConfigSection):
    rounds: tuple[int, ...] = Field((), description="rounds whose messages are recorded in full")
    clients: tuple[int, ...] | Literal["all"] = Field(
        "all", description="clients whose messages are recorded in those rounds"
    )

    def should_record(self, round: int, client: int) -> bool:
        return round in self.rounds and (self.clients == "all" or client in self.clients)


class CheckpointConfig(ConfigSection):
    seconds: float = Field(5.0, ge=0, description="shortest time between checkpoints; 0 saves after every round")


class Experiment(ConfigSection):
    """One run. `us.Experiment(method="fedprox", rounds=50)`; the same keys as a recipe."""

    method: list[str | dict[str, dict[str, Any]]] = Field(["fedavg"], description="name, a+b, or a list with settings")
    rounds: int = Field(20, ge=1)
    seed: int = Field(0, ge=0, lt=2**32)
    participation: float = Field(1.0, gt=0, le=1, description="share of the clients sampled in a round")
    weights: Literal["samples", "uniform"] = Field(
        "samples", description="weights of the clients in the mean: by number of rows, or equal"
    )
    data: DataConfig = DataConfig()
    partition: Partition = Field(default={"name": "iid", "clients": 10}, validate_default=True)
    model: ModelConfig = ModelConfig()
    local: LocalConfig = LocalConfig()
    engine: EngineConfig = EngineConfig()
    device: str = Field("auto", description="auto: a GPU if available; or cpu, cuda, cuda:1")
    precision: Literal["float32", "tf32", "bf16", "float64"] = Field(
        "float32", description="tf32: matmuls in TF32; bf16: activations and matmuls in bf16, weights in float32"
    )
    evaluate: EvaluateConfig = EvaluateConfig()
    record: RecordConfig = RecordConfig()
    rules: Literal["paper", "released"] = Field(
        "paper",
        description="paper: as published; released: as the authors' code does (clients sampled from the round alone)",
    )
    absence: tuple[AbsenceConfig, ...] = Field(
        (), description="clients that cannot be reached: a scenario's name, or a list of absences"
    )
    quorum: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the sampled clients that must answer; below it the round leaves the model unchanged",
    )
    on_bad_loss: Literal["stop", "refuse"] = Field(
        "stop", description="on a nan or infinite loss: stop the run, or refuse only that client's reply"
    )
    max_norm: Annotated[float, Field(gt=0)] | dict[str, Annotated[float, Field(gt=0)]] | None = Field(
        None, description="largest norm of a client's update; or of anything it sends: {average/weights: 10}"
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    stop: StopConfig | None = Field(None, description="when to stop before the last round")
    track: tuple[TrackConfig, ...] = Field((), description="loggers that get every round: tensorboard, mlflow or wandb")
    imports: tuple[UsedFile, ...] = Field(  # the last field, because it depends on others
        (),
        validate_default=True,
        description="your own files that the run uses; filled in by unskew",
    )

    @model_validator(mode="before")
    @classmethod
    def _renamed_preset(cls, raw: Any) -> Any:
        """`rules` was called `preset` once, and the folders of such runs are still read."""
        return _rename_rules(raw, "preset", "rules") if isinstance(raw, dict) else raw

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, value: Any, info: ValidationInfo) -> Any:
        if _is_recorded(info) and not (isinstance(value, list) and method_registry.is_known(value)):
            return value
        return expand_method(value)

    @field_validator("imports", mode="before")
    @classmethod
    def _imports(cls, value: Any, info: ValidationInfo) -> Any:
        if _is_recorded(info):
            return value
        if any(isinstance(each, str) for each in value if isinstance(value, list | tuple)):
            raise ValueError("expected nothing, because unskew fills it in; import your module before the experiment")
        if not {"method", "model", "data", "engine"} <= info.data.keys():
            return ()
        settings = info.data
        names = (settings[section].name for section in ("model", "data", "engine"))
        return used_files(settings["method"], *names)

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError("expected auto, cpu, cuda, or cuda:N for one of several GPUs")
        return value

    @field_validator("track", mode="before")
    @classmethod
    def _track(cls, value: Any) -> Any:
        return as_list(value)

    @field_validator("absence", mode="before")
    @classmethod
    def _absence(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | dict) else value

    @field_validator("partition", mode="before")
    @classmethod
    def _partition(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return {"name": value} if value == "group" else {"name": value, "clients": 10}

    @model_validator(mode="after")
    def _known_clients(self) -> Experiment:
        """Refuse ids beyond the number of clients, if the partition gives it."""
        clients = self.partition.clients
        listed = (a.clients for a in self.absence if a.clients is not None and not isinstance(a.clients, str))
        ids_by_key = {"absence": [k for ids in listed for k in ids]}
        ids_by_key["record"] = list(self.record.clients) if self.record.clients != "all" else []
        for key, ids in ids_by_key.items():
            unknown = [k for k in ids if k < 0 or (clients is not None and k >= clients)]
            if unknown:
                last = "the last client" if clients is None else clients - 1
                raise ValueError(f"{key}.clients: expected numbers in 0..{last}, found {unknown}")
        return self

    @model_validator(mode="after")
    def _known_artefacts(self, info: ValidationInfo) -> Experiment:
        if isinstance(self.max_norm, dict) and not _is_recorded(info):
            parts = self.create_method().parts
            known = [f"{part.name}/{name}" for part in parts for name in (*part.sends, *part.shares)]
            if unknown := [name for name in self.max_norm if name not in known]:
                raise ValueError(f"max_norm: {expected_one_of(known, unknown[0])}")
        return self

    @model_validator(mode="after")
    def _recorded_rounds(self) -> Experiment:
        rounds = self.record.rounds
        if rounds and not any(1 <= t <= self.rounds for t in rounds):
            raise ValueError(f"record.rounds: expected rounds in 1..{self.rounds}, found {list(rounds)}")
        return self

    def reply_policy(self) -> ReplyPolicy:
        """When a reply is refused, and how many replies a round needs."""
        return ReplyPolicy(self.quorum, self.on_bad_loss, self.max_norm)

    def create_method(self) -> Method:
        """The method with its parts, validated."""
        return replace(method_registry.create(method_registry.resolve(self.method)), rules=self.rules)

    @property
    def label(self) -> str:
        """The method's registered name, or its names joined with +."""
        return method_registry.label(self.method)

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, as plain data for YAML."""
        return self.model_dump(mode="json")

    def identity_settings(self) -> dict[str, Any]:
        """The settings that may change a result."""
        plain = self.resolved()
        for key in ("checkpoint", "record", "track"):
            del plain[key]
        plain["absence"] = [settings for each in self.absence if (settings := each.identity_settings(self.rounds))]
        if self.stop is None:  # keeps the identity of runs from before this key existed
            del plain["stop"]
        if not self.evaluate.clients:
            del plain["evaluate"]["clients"]
        augment = self.data.augment
        for key in ("frozen", "test"):  # these two have no effect without a crop or flip
            if not (getattr(augment, key) and (augment.crop or augment.flip)):
                del plain["data"]["augment"][key]
        for key in ("quorum", "on_bad_loss", "max_norm"):  # at their defaults, these do not change the identity either
            if plain[key] == type(self).model_fields[key].default:
                del plain[key]
        del plain["engine"]["workers"]
        # Runs that use no file of the user keep the identity that they had before this key existed.
        if hashes := sorted(used.sha256 for used in self.imports if used.sha256):
            plain["imports"] = hashes
        else:
            del plain["imports"]
        return plain

    def counting(self) -> dict[str, Any]:
        """The old name of `identity_settings`, for one version."""
        return self.identity_settings()

    def identity(self) -> str:
        """Eight hexadecimal characters that change with any setting that may change a result."""
        plain = self.identity_settings()
        # Runs from when `rules` was called `preset` keep their identity.
        plain = _rename_rules(plain, "rules", "preset")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8]


def _rename_rules(raw: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The settings with a key of the experiment, and of the parts that have it, under another name."""
    raw = _rename(raw, old, new)
    spec = raw.get("method")
    entries = spec if isinstance(spec, list) else [spec]
    renamed = [_rename_in_parts(entry, old, new) if isinstance(entry, dict) else entry for entry in entries]
    return raw | {"method": renamed if isinstance(spec, list) else renamed[0]} if spec is not None else raw


def _rename(settings: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old and new not in settings else key: value for key, value in settings.items()}


def _rename_in_parts(parts: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {
        name: _rename(fields, old, new) if name in ("flea", "pool") and isinstance(fields, dict) else fields
        for name, fields in parts.items()
    }


def expand_method(spec: Any) -> list[Any]:
    """A method specification as names followed by every setting of every part; expanding it again changes nothing."""
    parts = method_registry.create(method_registry.resolve(spec)).parts
    settings = [{part.name: fields} for part in parts if (fields := hyper_parameters(part))]
    name = method_registry.label(spec)
    return [*([name] if name in method_registry.METHODS else method_registry.explicit_names(spec)), *settings]
