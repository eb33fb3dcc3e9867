"""A run's folder: checkpoints that are complete or absent, hashed, and free of pickles.

A checkpoint is a numbered folder with the server's state and the tables, plus one file per client whose state changed;
`manifest.json` names them with their hashes and is replaced in one step, so that a kill at any moment leaves the old
checkpoint or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import weakref
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml

from unskew.base.errors import UserError
from unskew.base.signals import remove_folder
from unskew.base.tensor_codec import to_bytes
from unskew.base.tree import State, flatten_parts, unflatten_parts
from unskew.results.atomic_write import replace_file
from unskew.results.run_tables import LEDGER, METRICS, TIMES, RowBuffer, Summary
from unskew.server.client_store import ClientStore
from unskew.server.snapshot import Snapshot
from unskew.wire.ledger import Ledger

FORMAT = 2
KEYS = ("round", "folder", "files", "clients", "seen", "ledger", "world", "finished", "kept")
# What people and other tools read; of a finished run the manifest has their hashes.
READ = ("config.yaml", "about.json", "environment.json", "model.safetensors", "clients.parquet")
INITIAL = "checkpoint/initial.safetensors"
STATE = ".state"  # clients' state while a run goes on, where it does not fit into memory
MESSAGES = "messages"
MODEL, PARTS = "model/", "parts/"  # before the names of the server's tensors
OF_LAST_ROUND = ("sampled", "answered", "absent")  # clients of the last round, in the checkpoint


class RunFolder:
    """Reads and writes one run's folder; a second process that tries is turned away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _OPEN.add(self)
        except BlockingIOError as error:
            raise UserError(
                f"{path}: another process is writing this run; wait for it or choose another --out"
            ) from error
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror}); choose another --out") from error
        self._client_files: dict[str, dict[str, str]] = {}
        self._fixed: dict[str, str] = {}  # files that every checkpoint refers to
        self._messages: dict[int, dict[str, str]] = {}  # round -> recorded files and their hashes
        self.tables = {"metrics": RowBuffer(METRICS), "ledger": RowBuffer(LEDGER), "times": RowBuffer(TIMES)}

    def close(self) -> None:
        self._lock.close()

    @property
    def has_run(self) -> bool:
        return (self.path / "config.yaml").exists()

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The last complete checkpoint, if there is one."""
        return manifest_of(self.path)

    def write_config(self, resolved: dict[str, Any], environment: dict[str, Any], about: dict[str, Any]) -> None:
        self.write_environment(environment)
        self.write("about.json", json.dumps(about, indent=1).encode())
        self.write("config.yaml", yaml.safe_dump(resolved, sort_keys=False).encode())

    def write_environment(self, environment: dict[str, Any]) -> None:
        self.write("environment.json", json.dumps(environment, indent=1).encode())

    def read_config(self) -> dict[str, Any]:
        """The settings the run began with."""
        return read_config(self.path)

    def write_initial(self, model: State) -> None:
        """The untrained model, which late clients may start from."""
        self._fixed[INITIAL] = self.write(INITIAL, to_bytes(model))

    def read_initial(self) -> State:
        return safetensors.torch.load_file(self.path / INITIAL)

    def discard_if_empty(self) -> None:
        """Leave nothing behind where nothing was begun."""
        if not any(path.name != ".lock" for path in self.path.iterdir()):
            remove_folder(self.path)

    def forget_state(self) -> None:
        """Remove clients' state that a killed run left on disk: a checkpoint has its own copies."""
        if self.has_run:
            remove_folder(self.path / STATE, ignore_errors=True)

    def write_messages(self, round: int, files: dict[str, bytes]) -> None:
        """Recorded messages of a round."""
        if files:
            hashes = {f"{MESSAGES}/{name}": self.write(f"{MESSAGES}/{name}", data) for name, data in files.items()}
            self._messages[round] = self._messages.get(round, {}) | hashes

    def write(self, name: str, data: bytes) -> str:
        """A file that is complete or absent, and its hash."""
        replace_file(self.path / name, data)
        return hashlib.sha256(data).hexdigest()

    def save(
        self, snap: Snapshot, store: ClientStore, world: dict[str, str], finished: dict[str, Any] | None = None
    ) -> None:
        """A checkpoint after a complete round."""
        here = f"checkpoint/{snap.round:06d}{'-end' if finished else ''}"
        files = {"server.safetensors": to_bytes(_server_tensors(snap))}
        files |= {f"{name}.parquet": table.to_bytes() for name, table in self.tables.items()}
        hashes = self._fixed | {f"{here}/{name}": self.write(f"{here}/{name}", data) for name, data in files.items()}
        for k in sorted(store.changed):
            name = f"checkpoint/clients/{k}-{Path(here).name}.safetensors"
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
            "folder": here,
            "files": hashes,
            "clients": self._client_files,
            "seen": sorted(snap.seen),
            "met": {part: sorted(clients) for part, clients in snap.met.items()},
            "last_round": {name: sorted(getattr(snap, name)) for name in OF_LAST_ROUND},
            "ledger": ledger,
            "world": world,
            "finished": finished,
            "kept": {name: _hash(self.path / name) for name in self._read} if finished else {},
            # Of a round that is not complete the files will be written again.
            "messages": {str(r): files for r, files in self._messages.items() if r <= snap.round},
        }
        self.write("checkpoint/manifest.json", json.dumps(manifest).encode())
        store.changed.clear()
        self._sweep(here)

    @property
    def _read(self) -> tuple[str, ...]:
        return (*READ, *(f"{name}.parquet" for name in self.tables))

    def load(self, manifest: dict[str, Any], store: ClientStore, device: torch.device) -> Snapshot:
        """The snapshot, the clients' state and the tables of a checkpoint, every file checked against its hash."""
        check_whole(self.path, manifest["files"])
        here = self.path / manifest["folder"]
        held = safetensors.torch.load_file(here / "server.safetensors", str(device))
        model = {name.removeprefix(MODEL): t for name, t in held.items() if name.startswith(MODEL)}
        parts = unflatten_parts({name.removeprefix(PARTS): t for name, t in held.items() if name.startswith(PARTS)})
        for name, columns in (("metrics", METRICS), ("ledger", LEDGER), ("times", TIMES)):
            self.tables[name] = RowBuffer.read(columns, here / f"{name}.parquet")
        self._client_files = dict(manifest["clients"])
        self._fixed = {INITIAL: manifest["files"][INITIAL]}
        self._messages = {int(round): files for round, files in manifest.get("messages", {}).items()}
        for k, entry in self._client_files.items():
            check_whole(self.path, {entry["file"]: entry["hash"]})
            store.restore(int(k), unflatten_parts(safetensors.torch.load_file(self.path / entry["file"])))
        page = manifest["ledger"]
        ledger = Ledger([], page["bytes_up"], page["bytes_down"], page["holders"])
        last = manifest.get("last_round", {})  # older checkpoints lack it
        of_last = {name: frozenset(last.get(name, ())) for name in OF_LAST_ROUND}
        met = {part: frozenset(clients) for part, clients in manifest.get("met", {}).items()}
        seen = frozenset(manifest["seen"])
        return Snapshot(manifest["round"], model, parts, seen, ledger, met, **of_last)

    def finish(self, model: State) -> None:
        """The files that people and other tools read."""
        self.write("model.safetensors", to_bytes(model))
        for name, table in self.tables.items():
            self.write(f"{name}.parquet", table.to_bytes())

    def _sweep(self, keep: str) -> None:
        """Remove what the manifest no longer names."""
        named = {entry["file"] for entry in self._client_files.values()}
        for path in (self.path / "checkpoint").iterdir():
            if path.is_dir() and path.name not in ("clients", Path(keep).name):
                remove_folder(path)
        clients = self.path / "checkpoint" / "clients"
        for path in clients.iterdir() if clients.exists() else ():
            if str(path.relative_to(self.path)) not in named:
                path.unlink()


def _server_tensors(snap: Snapshot) -> State:
    parts = {f"{PARTS}{name}": t for name, t in flatten_parts(snap.parts).items()}
    return {f"{MODEL}{name}": t for name, t in snap.model.items()} | parts


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """The last complete checkpoint of a run's folder, if there is one."""
    path = folder / "checkpoint" / "manifest.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _broken(folder, path, "is not readable") from error
    version = found.get("format") if isinstance(found, dict) else None
    if version != FORMAT:
        raise UserError(f"{path}: expected format {FORMAT}, found {version}; use the version of unskew that wrote it")
    if missing := [key for key in KEYS if key not in found]:
        raise _broken(folder, path, f"lacks {', '.join(missing)}")
    return found


def check_whole(folder: Path, hashes: dict[str, str]) -> None:
    """Refuse files that are missing or other than they were written."""
    for name, digest in hashes.items():
        path = folder / name
        if not path.is_file() or _hash(path) != digest:
            raise _broken(folder, path, "is missing or was changed since it was written")


def summary_in(manifest: dict[str, Any], folder: Path) -> Summary:
    """The summary of a finished run, as it is written in its manifest."""
    try:
        return Summary(**manifest["finished"] | {"run": str(folder)})
    except TypeError as error:
        where = folder / "checkpoint" / "manifest.json"
        raise _broken(folder, where, f"holds a summary that this version does not know ({error})") from error


def read_config(folder: Path) -> dict[str, Any]:
    """The settings a run began with."""
    path = folder / "config.yaml"
    try:
        found = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _broken(folder, path, "is not readable as YAML") from error
    if not isinstance(found, dict):
        raise _broken(folder, path, "holds no settings")
    return found


def _broken(folder: Path, path: Path, how: str) -> UserError:
    return UserError(f"{path} {how}; move {folder} away to start this run again from round 1")


# A worker that outlives the run for a moment must not hold its lock: children close their copy of it.
_OPEN: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _close_all() -> None:
    for folder in _OPEN:
        folder.close()


os.register_at_fork(after_in_child=_close_all)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
