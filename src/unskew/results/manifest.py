"""The form of a run's `checkpoint/manifest.json`, which is read back from disk and may be damaged or someone else's."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

FORMAT = 2
INITIAL_MODEL = "checkpoint/initial.safetensors"


def _inside(name: str) -> str:
    """Refuse a path that leaves the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ValueError(f"{name} is outside the folder")
    return name


FileName = Annotated[str, AfterValidator(_inside)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Files = dict[FileName, Sha256]
Clients = list[int]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _ClientFile(_Strict):
    file: FileName
    hash: Sha256


class _Holders(_Strict):
    fingerprint: str
    clients: Clients


class _LedgerTotals(_Strict):
    bytes_up: Annotated[int, Field(ge=0)]
    bytes_down: Annotated[int, Field(ge=0)]
    holders: dict[str, _Holders]


class _Manifest(_Strict):
    """A complete checkpoint. Keys with a default are missing in runs of older versions."""

    round: Annotated[int, Field(ge=0)]
    folder: Annotated[str, Field(pattern=r"^checkpoint/\d{6}(-end)?$")]
    files: Files
    clients: dict[Annotated[str, Field(pattern=r"^\d+$")], _ClientFile]
    seen: Clients
    ledger: _LedgerTotals
    world: dict[str, str]
    finished: dict[str, Any] | None
    kept: Files
    met: dict[str, Clients] = {}
    last_round: dict[str, Clients] = {}
    messages: dict[Annotated[str, Field(pattern=r"^\d+$")], Files] = {}
    readers_of_rounds: list[str] = []

    @model_validator(mode="after")
    def _names_its_files(self) -> _Manifest:
        needed = {INITIAL_MODEL, f"{self.folder}/server.safetensors"}
        if missing := sorted(needed - self.files.keys()):
            raise ValueError(f"names no {missing[0]}")
        return self


REQUIRED = tuple(name for name, field in _Manifest.model_fields.items() if field.is_required())


def problem_with(manifest: dict[str, Any]) -> str:
    """What is wrong with a manifest, empty if nothing is."""
    if missing := [key for key in REQUIRED if key not in manifest]:
        return f"has no {', '.join(missing)}"
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"is damaged{f' at {where}' if where else ''}: {first['msg'].removeprefix('Value error, ')}"
    return ""
