"""The user's own code: files named by `--import` or by a recipe, and the record of what a run used of them.

Code is imported because the user named it, never because the folder of a run does. A run records name, hash and a copy
of every file that defines one of its parts, its model, its dataset or its engine; the copy is never executed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field

from unskew import data, models
from unskew.base.config_base import ConfigSection
from unskew.base.errors import UserError
from unskew.base.source_text import source_text
from unskew.engines import engine_registry
from unskew.protocol import method_registry

PROVIDED = r"^(part|model|dataset|engine) .+$"
PREFIX = "unskew_import_"  # of the module names of imported files, so that they hide no other module


class UsedFile(ConfigSection):
    """A file outside unskew that defines something a run uses."""

    file: str = Field("", description="its name; empty if it was defined in a notebook or an interactive session")
    sha256: str = Field(
        "",
        pattern="^([0-9a-f]{64})?$",
        description="of the file; for a notebook or the started script, of the code of what it provides",
    )
    provides: tuple[Annotated[str, Field(pattern=PROVIDED)], ...] = Field(
        description="such as: part shrink, model tiny, dataset ward"
    )

    @property
    def copy_name(self) -> str:
        """The name of its copy in the folder of a run."""
        return f"{Path(self.file or 'notebook').stem}-{self.sha256[:8]}.py"

    @property
    def missing(self) -> list[str]:
        """What it provides that is not registered now."""
        return [name for name in self.provides if _definition(*name.split(" ", 1)) is None]

    def describe(self) -> str:
        """The file as an error names it."""
        return self.file or "a notebook or an interactive session"


def import_files(files: Iterable[str | Path], named_by: str = "--import") -> None:
    """Import Python files, each once per process, so that what they register has a name. named_by: for errors."""
    for file in files:
        _import_file(Path(file).expanduser().resolve(), f"{named_by} {file}")


@cache
def _import_file(path: Path, given: str) -> ModuleType:
    if not path.is_file() or path.suffix != ".py":
        raise UserError(f"{given}: expected a Python file such as mine.py, found none; check the path")
    name = PREFIX + hashlib.sha256(str(path).encode()).hexdigest()[:8] + "_" + path.stem
    if name in sys.modules:  # by another spelling of its path
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loaded, _BYTES[path] = set(sys.modules), path.read_bytes()
    if str(path.parent) not in sys.path:  # at the end: files next to it can be imported but hide no module
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except UserError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines or [None])[-1]
        where = f", line {line}" if line else ""
        raise UserError(f"{given}{where}: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        del sys.modules[name]
        raise UserError(f"{given}: it calls exit({error.code!r}); remove that line") from error
    _NEIGHBOURS[name] = _neighbours(module, loaded)
    for neighbour in _NEIGHBOURS[name]:
        _BYTES.setdefault(neighbour, neighbour.read_bytes())
    return module


def _neighbours(module: ModuleType, loaded: set[str]) -> list[Path]:
    """Other files in the folder of an imported file that it has imported. loaded: names of modules before."""
    folder = Path(str(module.__file__)).parent
    values = list(vars(module).values())
    named = {value.__name__ for value in values if isinstance(value, ModuleType)}
    named |= {name for value in values if isinstance(name := getattr(value, "__module__", None), str)}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in named | (set(sys.modules) - loaded))
    paths = {Path(file).resolve() for file in files if file}
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    inside = {path for path in paths if path.is_relative_to(folder) and not installed & set(path.parents)}
    return sorted(inside - {Path(str(module.__file__))})


def used_files(method: Any, model: str, dataset: str, engine: str) -> tuple[UsedFile, ...]:
    """The files outside unskew that define these parts, this model, this dataset and this engine."""
    names = [*(("part", part) for part in method_registry.resolve(method)), ("model", model), ("dataset", dataset)]
    by_file: dict[tuple[str, str], list[str]] = {}
    for kind, name in [*names, *(("engine", each) for each in engine_registry.candidates(engine))]:
        definition = _definition(kind, name)
        if definition is not None and (source := _source(definition)) is not None:
            by_file.setdefault(source, []).append(f"{kind} {name}")
    used = [UsedFile(file=file, sha256=sha, provides=tuple(names)) for (file, sha), names in by_file.items()]
    return (*used, *_helpers(used))


def _helpers(used: list[UsedFile]) -> list[UsedFile]:
    """Files next to imported ones that these import in turn; they provide nothing by a name."""
    modules = {module for each in used for name in each.provides if (module := _module(name)) in _NEIGHBOURS}
    files = dict.fromkeys(path for module in sorted(modules) for path in _NEIGHBOURS[module])
    return [UsedFile(file=path.name, sha256=_keep(_BYTES[path]), provides=()) for path in files]


def check_available(files: Iterable[UsedFile], folder: Path, purpose: str) -> None:
    """Refuse if something that a finished run used is not registered in this process."""
    for used in files:
        if used.missing:
            copy = f" (a copy is {folder}/imports/{used.copy_name})" if used.sha256 else ""
            raise UserError(
                f"{folder}: {purpose} needs {', '.join(used.missing)}, defined in {used.describe()}{copy}; "
                + (f"add --import {used.file}" if used.file else "define it again, or put it into a file for --import")
            )


def changed_files(files: Iterable[UsedFile]) -> list[str]:
    """The names of files whose definitions are registered now with other contents than a run recorded."""
    changed = []
    loaded = {path.name: _keep(_BYTES[path]) for paths in _NEIGHBOURS.values() for path in paths}
    for used in files:
        if not used.provides and loaded.get(used.file, used.sha256) != used.sha256:
            changed.append(used.file)
        sources = [_source(d) for name in used.provides if (d := _definition(*name.split(" ", 1))) is not None]
        if used.sha256 and any(source and source[1] and source[1] != used.sha256 for source in sources):
            changed.append(used.describe())
    return changed


def contents_of(used: UsedFile) -> bytes | None:
    """The contents of a used file, as they were when it was first used in this process."""
    return _CONTENTS.get(used.sha256)


def is_importable(files: Iterable[UsedFile]) -> bool:
    """Whether another process can import everything: nothing was defined in the started script or a notebook."""
    return all(_module(name) != "__main__" for used in files for name in used.provides)


def modules_for_workers(files: Iterable[UsedFile]) -> Iterator[dict[str, str]]:
    """How another process of the same user imports these files: a path, or a module's name."""
    for used in files:
        for name in used.provides:
            module = _module(name)
            if module.startswith(PREFIX):
                yield {"file": str(sys.modules[module].__file__)}
            elif module != "__main__":
                yield {"module": module}


def import_for_worker(entries: Iterable[dict[str, str]], search: Iterable[str]) -> None:
    """In a worker process: import what the parent uses. search: the parent's folders of modules."""
    sys.path += [folder for folder in search if folder not in sys.path]
    for entry in entries:
        if "file" in entry:
            import_files([entry["file"]])
        else:
            importlib.import_module(entry["module"])


def check_unchanged(parent: list[dict[str, Any]], worker: list[dict[str, Any]]) -> None:
    """Refuse files that were changed between the parent's import and the worker's."""
    for before, now in zip(parent, worker):
        if before != now:
            raise UserError(f"{before['file']} was changed while the comparison ran; start it again")


_CONTENTS: dict[str, bytes] = {}  # sha256 -> contents
_BYTES: dict[Path, bytes] = {}  # file -> contents when it was imported
_NEIGHBOURS: dict[str, list[Path]] = {}  # imported module -> other files in its folder that it imports


def _keep(contents: bytes) -> str:
    """Keep the contents of a used file for its copy; returns their hash."""
    sha = hashlib.sha256(contents).hexdigest()
    _CONTENTS[sha] = contents
    return sha


def _module(provided: str) -> str:
    """The module that defines something a run uses, given as in `provides`."""
    return str(getattr(_definition(*provided.split(" ", 1)), "__module__", ""))


def _definition(kind: str, name: str) -> Any:
    """The class or function registered under a name, or None."""
    if kind == "part":
        return method_registry.PARTS.get(name)
    if kind == "model":
        return models.registered(name)
    if kind == "dataset":
        return data.registered(name)
    return engine_registry.registered(name) if kind == "engine" else None


@cache  # per definition, so a file that is edited later does not change what this process has imported
def _source(definition: Any) -> tuple[str, str] | None:
    """Name and hash of the file that defines it; None for unskew's own.

    Of a notebook or the started script only the definition's own code counts: the rest changes for other reasons.
    """
    name = getattr(definition, "__module__", None) or type(definition).__module__
    if name.split(".")[0] in ("unskew", "functools"):
        return None
    file = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" or file is None or not Path(file).is_file():
        known = file is not None and Path(file).is_file()
        return Path(str(file)).name if known else "", _keep(source_text(definition).encode())
    path = Path(file).resolve()
    return path.name, _keep(_BYTES.get(path) or path.read_bytes())
