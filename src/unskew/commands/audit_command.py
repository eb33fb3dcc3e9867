"""`unskew audit`: what left the clients of a run, and what can be recovered from it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.shared_options import DataDir, Imports

RECORDED = Path("audit") / "leak.csv"


class MembershipChoice(StrEnum):
    none = "none"
    loss = "loss"
    shadow = "shadow"


def audit(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="finished runs that recorded messages")],
    attack: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="dlg, idlg, ig, decoder or context; repeatable"),
    ] = None,
    images: Annotated[int, typer.Option(min=1, metavar="N", help="number of images to attack")] = 16,
    iterations: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="iterations per attack (default: as published)")
    ] = None,
    restarts: Annotated[int, typer.Option(min=1, metavar="N", help="tries per message; the best counts")] = 3,
    threat: Annotated[
        str,
        typer.Option(
            metavar="NAME", show_default=False, help="server (default), sum-only, eavesdropper or fellow-client"
        ),
    ] = "server",
    knows: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="attacker also knows: labels or draws; repeatable")
    ] = None,
    membership: Annotated[
        MembershipChoice,
        typer.Option(metavar="NAME", show_default=False, help="membership inference: none, loss (default) or shadow"),
    ] = MembershipChoice.loss,
    unroll: Annotated[int, typer.Option(min=1, metavar="N", help="maximum local steps to unroll")] = 32,
    at_once: Annotated[int, typer.Option(min=1, metavar="N", help="parallel tries; limited by memory")] = 16,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="seed of the starting points")] = 0,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu or cuda")] = "auto",
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="HTML page (default: in RUN, or audit.html for several)")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="also add the results to DIR/audit/leak.csv")
    ] = None,
    imports: Imports = None,
    data_dir: DataDir = None,
) -> None:
    """Attack recorded messages and report what leaks.

    A run records messages if its recipe says so, for instance record.rounds='[1]'. All attacks
    run by default, except membership inference with shadow models.
    """
    from unskew.audits.audit_progress import summarise
    from unskew.audits.audit_run import Audit
    from unskew.audits.audit_runs import audit as audit_runs
    from unskew.audits.save_audit import read_all
    from unskew.audits.threat_model import threat_by_name
    from unskew.base.errors import StoppedByUser

    typer.echo(str(threat_by_name(threat).with_knowledge(tuple(knows or ()))))

    def print_result(result: Audit, folder: Path) -> None:
        text = summarise(result, read_all(result.run))
        typer.echo(f"{result.run}\n{text}" if len(runs) > 1 else text)
        typer.echo(f"saved to {folder}")
        if record is not None:
            typer.echo(f"recorded in {record / RECORDED}")

    try:
        done = audit_runs(
            runs, attacks=attack, images=images, iterations=iterations, restarts=restarts, threat=threat,
            knows=tuple(knows or ()), membership=membership.value, unroll=unroll, at_once=at_once, seed=seed,
            device=device, page=page, record=record, data_dir=data_dir, saved=print_result,
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        raise StoppedByUser("stopped; run the same command again to continue with the remaining attacks") from stop
    typer.echo(f"page: {done.page}")
