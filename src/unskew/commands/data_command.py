"""`unskew data`: which datasets there are, whether they are sound, and getting those that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import UserError

if TYPE_CHECKING:
    from unskew.data.archives import Step
    from unskew.data.dataset_catalogue import DatasetStatus, Rows

app = typer.Typer(rich_markup_mode=None)
Folder = Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")]
_UNKNOWN = "no digest known"
WIDTH = 120  # columns where there is no terminal to fit


@app.callback(invoke_without_command=True)
def data(context: typer.Context, data_dir: Folder = None) -> None:
    """Show which datasets are here; check, unpack, download."""
    context.obj = data_dir
    if context.invoked_subcommand is None:
        _show(_root(context, None))


@app.command("list")
def show(context: typer.Context, data_dir: Folder = None) -> None:
    """Show all datasets, their terms and how to get them."""
    _show(_root(context, data_dir))


@app.command()
def check(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="one dataset; all that are there without it")] = None,
    data_dir: Folder = None,
) -> None:
    """Load datasets in full and compare official checksums.

    Where no checksum is known, loading in full is the check.
    """
    from unskew.data.dataset_catalogue import survey

    root = _root(context, data_dir)
    wanted = [name] if name else [found.name for found in survey(root) if found.state != "absent"]
    digests = {found.name: found.entry.digest for found in survey(root) if found.entry}
    broken = [one for one in wanted if not _check(one, root, digests.get(one.partition(":")[0], _UNKNOWN))]
    if broken:
        raise UserError(f"expected sound datasets under {root}, found {', '.join(broken)} not to be; see above")


@app.command()
def unpack(
    context: typer.Context,
    archives: Annotated[list[Path], typer.Argument(help="official archives, under their official names")],
    data_dir: Folder = None,
    verify: Annotated[bool, typer.Option(help="compare with the official checksum, where one is known")] = True,
) -> None:
    """Unpack official archives into the data folder."""
    from unskew.data.archives import ARCHIVES
    from unskew.data.archives import unpack as extract

    root = _root(context, data_dir)
    with _writable(root), _bars() as bar:
        for path in archives:
            place = extract(path, root, bar(path.name), verify=verify)
            known = path.name not in ARCHIVES or ARCHIVES[path.name].md5 is not None
            note = "" if known and verify else " (checksum not compared)" if known else " (no checksum is known for it)"
            typer.echo(f"{path.name}: now in {place}{note}")


@app.command()
def download(
    context: typer.Context, name: Annotated[str, typer.Argument(help="a dataset")], data_dir: Folder = None
) -> None:
    """Fetch a dataset from its official address.

    What comes is compared with the official checksum, where one is known, and unpacked.
    """
    from unskew.data.archives import fetch

    root = _root(context, data_dir)
    with _writable(root), _bars() as bar:
        new = fetch(name, root, bar)
    typer.echo("\n".join(f"{name}: now in {place}" for place in new) or f"{name}: already in {root}")


@contextmanager
def _writable(root: Path) -> Iterator[None]:
    """The folder, made if need be; what the system refuses is said in one line."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            f"{root}: expected a data folder that can be written, found: {error}; choose another --data-dir"
        ) from error


def _root(context: typer.Context, data_dir: Path | None) -> Path:
    """The folder given to the command, else the one given before it."""
    from unskew.data import data_root

    return data_root(data_dir or context.obj)


def _show(root: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from unskew.data.dataset_catalogue import survey

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(
        f"data folder: {root}{'' if root.is_dir() else ' (no such folder yet)'}", markup=False, soft_wrap=True
    )
    rows = [_cells(found) for found in survey(root)]
    rows.append(("hf:NAME", _extra(), "Hugging Face hub or a folder", "", "", "see its card", "", _UNKNOWN))
    # Two tables, since one of eight columns would not fit a usual terminal.
    for titles, columns in (
        (("dataset", "state", "looked for in", "rows", "classes"), slice(1, 5)),
        (("dataset", "terms and citation", "how to get it", "checksums"), slice(5, 8)),
    ):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in titles:
            table.add_column(title, overflow="fold", no_wrap=title in ("dataset", "rows"))
        for row in rows:
            table.add_row(*map(escape, (row[0], *row[columns])))
        console.print(table)


def _cells(found: DatasetStatus) -> tuple[str, ...]:
    state = f"broken: {found.why}" if found.state == "broken" else found.state
    terms, get, digest = "your own", "", _UNKNOWN
    if found.entry is not None:
        terms, digest = found.entry.terms, found.entry.digest
        get = "" if found.state == "present" else found.entry.get
    return found.name, state, found.where, _rows(found.rows), str(found.classes or ""), terms, get, digest


def _rows(rows: Rows | None) -> str:
    return "" if rows is None else " + ".join(map(str, rows))


def _extra() -> str:
    from importlib.util import find_spec

    return "present" if find_spec("datasets") else "absent: pip install 'unskew[hf]'"


def _check(name: str, root: Path, digest: str) -> bool:
    """Say whether one dataset loads."""
    from unskew.data import load

    try:
        found = load(name, root)
    except UserError as error:
        typer.echo(f"{name}: broken: {error}")
        return False
    rows, shape = f"{len(found.train)} + {len(found.test)} rows", " x ".join(map(str, found.shape))
    typer.echo(f"{name}: sound, {rows} of {shape}, {found.num_classes} classes ({digest})")
    return True


@contextmanager
def _bars() -> Iterator[Callable[[str], Step]]:
    """A progress bar per file on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:

        def bar(name: str) -> Step:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield bar
