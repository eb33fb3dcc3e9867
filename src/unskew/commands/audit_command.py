"""`unskew audit`: what left the clients of a run, and what can be recovered from it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class MembershipChoice(StrEnum):
    none = "none"
    loss = "loss"
    shadow = "shadow"


def audit(
    runs: Annotated[list[Path], typer.Argument(help="folders of finished runs that recorded messages (record.rounds)")],
    attack: Annotated[list[str] | None, typer.Option(help="dlg, idlg, ig, decoder or context; may be repeated")] = None,
    images: Annotated[int, typer.Option(min=1, help="messages are attacked until there are this many images")] = 16,
    iterations: Annotated[int | None, typer.Option(min=1, help="of every attack; the authors' without it")] = None,
    restarts: Annotated[int, typer.Option(min=1, help="tries of each message; the best of all counts")] = 3,
    threat: Annotated[str, typer.Option(help="server, sum-only, eavesdropper or fellow-client")] = "server",
    knows: Annotated[list[str] | None, typer.Option(help="what the attacker also knows: labels, draws")] = None,
    membership: Annotated[
        MembershipChoice, typer.Option(help="whose rows they were: by loss, or also by shadow models")
    ] = (MembershipChoice.loss),
    unroll: Annotated[int, typer.Option(min=1, help="most local steps that are unrolled")] = 32,
    at_once: Annotated[int, typer.Option(min=1, help="tries searched side by side: memory against speed")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="of the starting points")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    page: Annotated[Path | None, typer.Option(help="the page; in the run's folder, or audit.html of many runs")] = None,
    record: Annotated[Path | None, typer.Option(help="also add the rows to FOLDER/audit/leak.csv")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")] = None,
) -> None:
    """Attack the messages that runs recorded, with a page."""
    from unskew.audit.attacks import chosen
    from unskew.audit.audit_progress import AttackProgress, in_words
    from unskew.audit.audit_run import audit as attacked
    from unskew.audit.budget import Budget
    from unskew.audit.page_of_audits import write_page
    from unskew.audit.record_leaks import record as recorded
    from unskew.audit.save_audit import write
    from unskew.audit.threat_model import find
    from unskew.base.errors import StoppedByUser
    from unskew.results.atomic_write import check_writable

    attacker = find(threat).given(tuple(knows or ()))
    names, shared = chosen(tuple(attack)) if attack else (Budget().attacks, Budget().on_shared)
    budget = Budget(names, attacker, images, iterations, restarts, unroll, at_once, seed, membership.value, shared)
    typer.echo(str(attacker))
    audits = []
    if page is not None:
        check_writable(page)  # before hours of attacks, not after them
    for run in runs:
        try:
            with AttackProgress() as bar:
                found = attacked(run, budget, device=device, data_dir=data_dir, tell=bar.tell)
        except KeyboardInterrupt as stop:
            raise StoppedByUser("stopped; the same command goes on with what was not attacked yet") from stop
        folder = write(found, device)
        typer.echo(f"{run}\n{in_words(found)}" if len(runs) > 1 else in_words(found))
        typer.echo(f"kept in {folder}")
        if record is not None:
            typer.echo(f"recorded in {recorded(found, record, device)}")
        audits.append(found)
    where = page or (folder / "audit.html" if len(runs) == 1 else Path("audit.html"))
    typer.echo(f"the page is {write_page(audits, where)}")
