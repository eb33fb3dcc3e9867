"""`unskew data`: list datasets, check them, and unpack or download missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import UserError
from unskew.commands.shared_options import DataDir

if TYPE_CHECKING:
    from unskew.data.archives import ProgressCallback
    from unskew.data.dataset_catalogue import DatasetStatus, RowCounts

app = typer.Typer(rich_markup_mode=None)
NO_CHECKSUM = "no checksum known"


@app.callback(invoke_without_command=True)
def data(context: typer.Context, data_dir: DataDir = None) -> None:
    """List datasets; check, unpack or download them."""
    context.obj = data_dir
    if context.invoked_subcommand is None:
        _show(_root(context, None))


@app.command("list")
def show(context: typer.Context, data_dir: DataDir = None) -> None:
    """List all datasets, their terms and how to get them."""
    _show(_root(context, data_dir))


@app.command()
def check(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="one dataset (default: all that are present)")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Load datasets in full and compare official checksums.

    Where no checksum is known, loading in full is the check.
    """
    from unskew.data.dataset_catalogue import survey

    root = _root(context, data_dir)
    names = [name] if name else [status.name for status in survey(root) if status.state != "absent"]
    digests = {status.name: status.entry.checksums for status in survey(root) if status.entry}
    broken = [name for name in names if not _check(name, root, digests.get(name.partition(":")[0], NO_CHECKSUM))]
    if broken:
        raise UserError(f"{root}: broken datasets: {', '.join(broken)}; see above")


@app.command()
def unpack(
    context: typer.Context,
    archives: Annotated[list[Path], typer.Argument(metavar="ARCHIVE", help="archives under their official names")],
    data_dir: DataDir = None,
    verify: Annotated[
        bool, typer.Option(show_default=False, help="compare official checksums where known (default)")
    ] = True,
) -> None:
    """Unpack official archives into the dataset folder."""
    from unskew.data.archives import ARCHIVES
    from unskew.data.archives import unpack as extract

    root = _root(context, data_dir)
    with _create_folder(root), _progress_bars() as bar:
        for path in archives:
            folder = extract(path, root, bar(path.name), verify=verify)
            known = path.name not in ARCHIVES or ARCHIVES[path.name].md5 is not None
            note = "" if known and verify else " (checksum not compared)" if known else f" ({NO_CHECKSUM})"
            typer.echo(f"{path.name}: unpacked to {folder}{note}")


@app.command()
def download(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of the dataset in `unskew data`")],
    data_dir: DataDir = None,
) -> None:
    """Download a dataset from its official address and unpack it.

    The download is compared with the official checksum where one is known.
    """
    from unskew.data.archives import download_dataset

    root = _root(context, data_dir)
    with _create_folder(root), _progress_bars() as bar:
        folders = download_dataset(name, root, bar)
    typer.echo("\n".join(f"{name}: unpacked to {folder}" for folder in folders) or f"{name}: already in {root}")


@contextmanager
def _create_folder(root: Path) -> Iterator[None]:
    """Create the folder if necessary and turn errors of the file system, also in the body, into one line."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            f"{root}: expected a writable dataset folder, found: {error}; choose another --data-dir"
        ) from error


def _root(context: typer.Context, data_dir: Path | None) -> Path:
    """The --data-dir of the subcommand, else the one of `unskew data` itself."""
    from unskew.data import data_root

    return data_root(data_dir or context.obj)


def _show(root: Path) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from unskew.data.dataset_catalogue import survey
    from unskew.describe.terminal_tables import console

    screen = console()
    screen.print(
        f"dataset folder: {root}{'' if root.is_dir() else ' (does not exist yet)'}", markup=False, soft_wrap=True
    )
    rows = [_cells(status) for status in survey(root)]
    rows.append(("hf:NAME", _hf_state(), "Hugging Face hub or a folder", "", "", "see its card", "", NO_CHECKSUM))
    # Two tables: eight columns would not fit a usual terminal.
    for titles, columns in (
        (("dataset", "state", "path", "rows", "classes"), slice(1, 5)),
        (("dataset", "terms and citation", "how to get it", "checksums"), slice(5, 8)),
    ):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in titles:
            table.add_column(title, overflow="fold", no_wrap=title in ("dataset", "rows"))
        for row in rows:
            table.add_row(*map(escape, (row[0], *row[columns])))
        screen.print(table)


def _cells(status: DatasetStatus) -> tuple[str, ...]:
    state = f"broken: {status.reason}" if status.state == "broken" else status.state
    terms, get, digest = "your own", "", NO_CHECKSUM
    if status.entry is not None:
        terms, digest = status.entry.terms, status.entry.checksums
        get = "" if status.state == "present" else status.entry.how_to_get
    return status.name, state, status.location, _row_counts(status.rows), str(status.classes or ""), terms, get, digest


def _row_counts(rows: RowCounts | None) -> str:
    return "" if rows is None else " + ".join(map(str, rows))


def _hf_state() -> str:
    from importlib.util import find_spec

    return "present" if find_spec("datasets") else "absent: pip install 'unskew[hf]'"


def _check(name: str, root: Path, digest: str) -> bool:
    """Print whether a dataset loads."""
    from unskew.data import load

    try:
        dataset = load(name, root)
    except UserError as error:
        typer.echo(f"{name}: broken: {error}")
        return False
    rows, shape = f"{len(dataset.train)} + {len(dataset.test)} rows", " × ".join(map(str, dataset.shape))
    typer.echo(f"{name}: ok, {rows} of {shape}, {dataset.num_classes} classes ({digest})")
    return True


@contextmanager
def _progress_bars() -> Iterator[Callable[[str], ProgressCallback]]:
    """A progress bar per file on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:

        def bar(name: str) -> ProgressCallback:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield bar
