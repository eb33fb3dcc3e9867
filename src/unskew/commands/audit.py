"""`unskew audit`: what left the clients of a run, and what can be recovered from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def audit(
    run: Annotated[Path, typer.Argument(help="folder of a finished run that recorded messages (record.rounds)")],
    attack: Annotated[list[str] | None, typer.Option(help="dlg, idlg, ig, decoder or context; may be repeated")] = None,
    images: Annotated[int, typer.Option(min=1, help="messages are attacked until there are this many images")] = 16,
    iterations: Annotated[int | None, typer.Option(min=1, help="of every attack; the authors' without it")] = None,
    restarts: Annotated[int, typer.Option(min=1, help="tries of each message; the best of all counts")] = 3,
    threat: Annotated[str, typer.Option(help="server, sum-only, eavesdropper or fellow-client")] = "server",
    knows: Annotated[list[str] | None, typer.Option(help="what the attacker also knows: labels, draws")] = None,
    unroll: Annotated[int, typer.Option(min=1, help="most local steps that are unrolled")] = 32,
    at_once: Annotated[int, typer.Option(min=1, help="tries searched side by side: memory against speed")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="of the starting points")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")] = None,
) -> None:
    """Attack the messages that a run recorded."""
    from unskew.privacy.attacks import chosen
    from unskew.privacy.audit import audit as attacked
    from unskew.privacy.budget import Budget
    from unskew.privacy.paged import write_page
    from unskew.privacy.show import Bar, in_words
    from unskew.privacy.threat import find
    from unskew.privacy.written import write

    attacker = find(threat).given(tuple(knows or ()))
    names, shared = chosen(tuple(attack)) if attack else (Budget().attacks, Budget().on_shared)
    budget = Budget(names, attacker, images, iterations, restarts, unroll, at_once, seed, shared)
    typer.echo(str(attacker))
    with Bar() as bar:
        found = attacked(run, budget, device=device, data_dir=data_dir, tell=bar.tell)
    folder = write(found, device)
    typer.echo(in_words(found))
    page = write_page([found], folder / "audit.html")
    typer.echo(f"kept in {folder}, the page is {page}")
