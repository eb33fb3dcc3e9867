"""A run's folder: checkpoints that are complete or absent, hashed, and free of pickles.

A checkpoint is a numbered folder with the server's state and the tables, plus one file per client whose state changed;
`manifest.json` names them with their hashes and is replaced in one step, so that a kill at any moment leaves the old
checkpoint or the new one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml

from unskew.base import file_lock
from unskew.base.errors import UserError
from unskew.base.signals import remove_folder
from unskew.base.tensor_codec import to_bytes
from unskew.base.tree import State, flatten_parts, unflatten_parts
from unskew.results import owned_folder
from unskew.results.atomic_write import replace_file
from unskew.results.manifest import FORMAT, INITIAL_MODEL, REQUIRED, problem_with
from unskew.results.run_tables import LEDGER, METRICS, TIMES, RowBuffer, Summary
from unskew.server.client_store import ClientStore
from unskew.server.snapshot import Snapshot
from unskew.wire.ledger import Ledger

KIND = "a run"
# For people and other tools; the manifest of a finished run has their hashes.
RESULT_FILES = ("config.yaml", "about.json", "environment.json", "model.safetensors", "clients.parquet")
MANIFEST = "checkpoint/manifest.json"
STATE = ".state"  # clients' state during a run, if it does not fit into memory
MESSAGES = "messages"
CHECKPOINT = re.compile(r"\d{6}(-end)?")  # name of a checkpoint's folder
CLIENT_FILE = re.compile(r"\d+-\d{6}(-end)?\.safetensors")
MODEL, PARTS = "model/", "parts/"  # prefixes of the server's tensors
LAST_ROUND_FIELDS = ("sampled", "answered", "absent")  # of the snapshot, saved in the checkpoint


class RunFolder:
    """Reads and writes one run's folder, which is locked: a second process is refused."""

    def __init__(self, path: Path, patience: float = 0.0) -> None:
        """patience: seconds to wait for another process that writes this run."""
        owned_folder.check_owner(path, KIND, has_manifest)
        self.path, self._created = path, not path.exists()
        self._lock = file_lock.lock(path, "writing this run", patience)
        self._saved = bool(owned_folder.read_marker(path).get("saved"))
        self._client_files: dict[str, dict[str, str]] = {}
        self._fixed: dict[str, str] = {}  # file -> hash, for files that every checkpoint refers to
        self._messages: dict[int, dict[str, str]] = {}  # round -> recorded files and their hashes
        self.tables = {"metrics": RowBuffer(METRICS), "ledger": RowBuffer(LEDGER), "times": RowBuffer(TIMES)}

    def close(self) -> None:
        self._lock.release()

    @property
    def has_run(self) -> bool:
        return (self.path / "config.yaml").exists()

    def check_complete(self) -> None:
        """Refuse a folder without its settings or its manifest, whose run would silently start again at round 1."""
        manifest, config = self.path / MANIFEST, self.path / "config.yaml"
        saved = manifest.exists() or owned_folder.read_marker(self.path).get("saved")
        for path in (config, manifest) if saved else ():
            if not path.exists():
                raise _damaged(self.path, path, "is missing")

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The last complete checkpoint, or None."""
        return read_manifest(self.path)

    def write_config(self, resolved: dict[str, Any], environment: dict[str, Any], about: dict[str, Any]) -> None:
        self.write_environment(environment)
        self.write("about.json", json.dumps(about, indent=1).encode())
        self.write("config.yaml", yaml.safe_dump(resolved, sort_keys=False).encode())

    def write_environment(self, environment: dict[str, Any]) -> None:
        self.write("environment.json", json.dumps(environment, indent=1).encode())

    def read_config(self) -> dict[str, Any]:
        """The settings the run was started with."""
        return read_config(self.path)

    def write_initial(self, model: State) -> None:
        """Write the untrained model, from which clients may start in any later round. The first file of a run."""
        owned_folder.mark(self.path, KIND)
        self._fixed[INITIAL_MODEL] = self.write(INITIAL_MODEL, to_bytes(model))

    def read_initial(self) -> State:
        return safetensors.torch.load_file(self.path / INITIAL_MODEL)

    def discard_if_empty(self) -> None:
        """Remove what was written if the run did not start."""
        if not any(path.name != file_lock.NAME for path in self.path.iterdir()):
            owned_folder.discard(self.path, self._created)

    def remove_leftover_state(self) -> None:
        """Remove clients' state that a killed run left on disk: a checkpoint has its own copies."""
        if self.has_run:
            remove_folder(self.path / STATE, ignore_errors=True)

    def write_messages(self, round: int, files: dict[str, bytes]) -> None:
        """Write the recorded messages of a round."""
        if files:
            hashes = {f"{MESSAGES}/{name}": self.write(f"{MESSAGES}/{name}", data) for name, data in files.items()}
            self._messages[round] = self._messages.get(round, {}) | hashes

    def write(self, name: str, data: bytes) -> str:
        """Write a file atomically and return its hash."""
        replace_file(self.path / name, data, follow=False)
        return hashlib.sha256(data).hexdigest()

    def save(
        self,
        snap: Snapshot,
        store: ClientStore,
        fingerprints: dict[str, str],
        finished: dict[str, Any] | None = None,
        readers_of_rounds: Sequence[str] = (),
    ) -> None:
        """Save a checkpoint after a complete round. readers_of_rounds: parts that read the number of rounds."""
        folder = f"checkpoint/{snap.round:06d}{'-end' if finished else ''}"
        files = {"server.safetensors": to_bytes(_server_tensors(snap))}
        files |= {f"{name}.parquet": table.to_bytes() for name, table in self.tables.items()}
        hashes = self._fixed | {
            f"{folder}/{name}": self.write(f"{folder}/{name}", data) for name, data in files.items()
        }
        for k in sorted(store.changed):
            name = f"checkpoint/clients/{k}-{Path(folder).name}.safetensors"
            self._client_files[str(k)] = {
                "file": name,
                "hash": self.write(name, to_bytes(flatten_parts(store.entries[k]))),
            }
        ledger = {
            "bytes_up": snap.ledger.bytes_up,
            "bytes_down": snap.ledger.bytes_down,
            "holders": snap.ledger.holders,
        }
        manifest = {
            "format": FORMAT,
            "round": snap.round,
            "folder": folder,
            "files": hashes,
            "clients": self._client_files,
            "seen": sorted(snap.seen),
            "met": {part: sorted(clients) for part, clients in snap.newcomers_met.items()},
            "last_round": {name: sorted(getattr(snap, name)) for name in LAST_ROUND_FIELDS},
            "ledger": ledger,
            "world": fingerprints,
            "finished": finished,
            "readers_of_rounds": list(readers_of_rounds),
            "kept": {name: _hash(self.path / name) for name in self._result_files} if finished else {},
            # Files of an incomplete round are left out, because they will be written again.
            "messages": {str(r): files for r, files in self._messages.items() if r <= snap.round},
        }
        self.write(MANIFEST, json.dumps(manifest).encode())
        if not self._saved:
            owned_folder.mark(self.path, KIND, saved=True)
            self._saved = True
        store.changed.clear()
        self._remove_unreferenced(folder)

    @property
    def _result_files(self) -> tuple[str, ...]:
        return (*RESULT_FILES, *(f"{name}.parquet" for name in self.tables))

    def load(self, manifest: dict[str, Any], store: ClientStore, device: torch.device) -> Snapshot:
        """Load the snapshot, the clients' state and the tables of a checkpoint, every file checked against its hash."""
        check_hashes(self.path, manifest["files"])
        folder = self.path / manifest["folder"]
        tensors = safetensors.torch.load_file(folder / "server.safetensors", str(device))
        model = {name.removeprefix(MODEL): t for name, t in tensors.items() if name.startswith(MODEL)}
        parts = unflatten_parts({name.removeprefix(PARTS): t for name, t in tensors.items() if name.startswith(PARTS)})
        for name, columns in (("metrics", METRICS), ("ledger", LEDGER), ("times", TIMES)):
            self.tables[name] = RowBuffer.read(columns, folder / f"{name}.parquet")
        self._client_files = dict(manifest["clients"])
        self._fixed = {INITIAL_MODEL: manifest["files"][INITIAL_MODEL]}
        self._messages = {int(round): files for round, files in manifest.get("messages", {}).items()}
        for k, entry in self._client_files.items():
            check_hashes(self.path, {entry["file"]: entry["hash"]})
            store.restore(int(k), unflatten_parts(safetensors.torch.load_file(self.path / entry["file"])))
        totals = manifest["ledger"]
        ledger = Ledger([], totals["bytes_up"], totals["bytes_down"], totals["holders"])
        saved = manifest.get("last_round", {})  # absent from older checkpoints
        last_round = {name: frozenset(saved.get(name, ())) for name in LAST_ROUND_FIELDS}
        met = {part: frozenset(clients) for part, clients in manifest.get("met", {}).items()}
        seen = frozenset(manifest["seen"])
        return Snapshot(manifest["round"], model, parts, seen, ledger, met, **last_round)

    def finish(self, model: State) -> None:
        """Write the model and the tables for people and other tools."""
        self.write("model.safetensors", to_bytes(model))
        for name, table in self.tables.items():
            self.write(f"{name}.parquet", table.to_bytes())

    def _remove_unreferenced(self, folder: str) -> None:
        """Remove other checkpoints, and client files that the manifest no longer names."""
        named = {entry["file"] for entry in self._client_files.values()}
        for path in (self.path / "checkpoint").iterdir():
            if path.is_dir() and CHECKPOINT.fullmatch(path.name) and path.name != Path(folder).name:
                remove_folder(path)
        clients = self.path / "checkpoint" / "clients"
        for path in clients.iterdir() if clients.exists() else ():
            if CLIENT_FILE.fullmatch(path.name) and path.relative_to(self.path).as_posix() not in named:
                path.unlink()


def _server_tensors(snap: Snapshot) -> State:
    parts = {f"{PARTS}{name}": t for name, t in flatten_parts(snap.parts).items()}
    return {f"{MODEL}{name}": t for name, t in snap.model.items()} | parts


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The last complete checkpoint of a run's folder, or None."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(folder, path, "is not readable") from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != FORMAT:
        raise UserError(f"{path}: expected format {FORMAT}, found {version}; use the version of unskew that wrote it")
    if problem := problem_with(manifest):
        raise _damaged(folder, path, problem)
    return manifest


def has_manifest(folder: Path) -> bool:
    """Whether a folder without marker has the manifest of a run."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and {"format", *REQUIRED} <= manifest.keys()


def check_hashes(folder: Path, hashes: dict[str, str]) -> None:
    """Refuse files that are missing or changed since they were written."""
    for name, digest in hashes.items():
        path = folder / name
        if not path.is_file() or _hash(path) != digest:
            raise _damaged(folder, path, "is missing or was changed since it was written")


def read_summary(manifest: dict[str, Any], folder: Path) -> Summary:
    """The summary of a finished run, from its manifest."""
    try:
        return Summary(**manifest["finished"] | {"run": str(folder)})
    except TypeError as error:
        path = folder / "checkpoint" / "manifest.json"
        raise _damaged(folder, path, f"has a summary of another version ({error})") from error


def read_config(folder: Path) -> dict[str, Any]:
    """The settings a run was started with."""
    path = folder / "config.yaml"
    try:
        settings = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _damaged(folder, path, "is not valid YAML") from error
    if not isinstance(settings, dict):
        raise _damaged(folder, path, "has no settings")
    return settings


def _damaged(folder: Path, path: Path, problem: str) -> UserError:
    return UserError(f"{path} {problem}; move {folder} away to start this run again from round 1")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
