"""`us.audit`: attack one or several runs, save the results and write their page; `unskew audit` calls it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from markupsafe import escape

from unskew.audits.attacks import split_attacks
from unskew.audits.audit_progress import audit_progress, summarise
from unskew.audits.audit_run import Audit
from unskew.audits.audit_run import audit as audit_run
from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict
from unskew.audits.page_of_audits import write_page
from unskew.audits.record_leaks import record as record_rows
from unskew.audits.save_audit import read_all, write
from unskew.audits.threat_model import threat_by_name
from unskew.audits.verdict import STATES, strongest
from unskew.base.errors import UserError, expected_one_of
from unskew.base.notebook import html_table
from unskew.results.atomic_write import check_writable

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from unskew.data import Dataset

PAGE = "audit.html"
Membership = Literal["none", "loss", "shadow"]


@dataclass(frozen=True)
class AuditResult:
    """The audits of one or several runs, and their page."""

    audits: tuple[Audit, ...]  # of this call
    page: Path
    all_audits: tuple[Audit, ...] = ()  # also the earlier ones in the folders of the runs

    @property
    def leaks(self) -> pd.DataFrame:
        """One row per measured value, as in `audit/leak.csv` of a run, with the run's folder."""
        import pandas as pd

        return pd.DataFrame([{"run": str(each.run)} | vars(leak) for each in self.audits for leak in each.leaks])

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row per run and kind of artefact: the strongest of this and all earlier audits."""
        import pandas as pd

        return pd.DataFrame([{"run": str(run)} | vars(verdict) for run, verdict in self._strongest()])

    def _strongest(self) -> list[tuple[Path, KindVerdict]]:
        runs = dict.fromkeys(each.run for each in self.audits)
        return [(run, v) for run in runs for v in strongest(a.verdicts for a in self.all_audits if a.run == run)]

    def all_audits_of(self, run: Path) -> list[Audit]:
        return [each for each in self.all_audits if each.run == run]

    def __repr__(self) -> str:
        parts = [f"{each.run}\n{summarise(each, self.all_audits_of(each.run))}" for each in self.audits]
        return "\n".join([*parts, f"page: {self.page}"])

    def _repr_html_(self) -> str:
        rows = [(run, v.kind, STATES[v.state], v.words) for run, v in self._strongest()]
        return f"{html_table(('run', 'kind', 'verdict', ''), rows)}<p>page: {escape(self.page)}</p>"


def audit(
    runs: Any,
    *,
    attacks: Sequence[str] | str | None = None,
    images: int = 16,
    iterations: int | None = None,
    restarts: int = 3,
    threat: str = "server",
    knows: Sequence[str] = (),
    membership: Membership = "loss",
    unroll: int = 32,
    at_once: int = 16,
    seed: int = 0,
    device: str = "auto",
    page: str | Path | None = None,
    record: str | Path | None = None,
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: str | Path | None = None,
    show: bool | None = None,
    saved: Callable[[Audit, Path], None] = lambda audit, folder: None,
) -> AuditResult:
    """Attack the messages that finished runs recorded, save the results in their folders, and write a page.

    runs: a run or its folder, or several; attacks: names such as "ig", by default all; images: at most so many per
    message; iterations: by default each attack's own; restarts: tries per image; threat: who attacks, such as "server"
    or "eavesdropper"; knows: what else the attacker knows, such as ["labels"]; membership: which attack on membership;
    unroll: local steps to model one by one; at_once: images attacked together; record: a folder for rows of leak.csv;
    data, model: as passed to `us.run`; show: whether to show the progress; None shows it in notebooks and terminals;
    saved: called after each run with its audit and the folder of its results.
    """
    several = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    if not several:
        raise UserError("runs: expected at least one run or its folder, found none")
    if membership not in get_args(Membership):
        raise UserError(f"membership: {expected_one_of(get_args(Membership), membership)}")
    numbers = {"images": images, "restarts": restarts, "unroll": unroll, "at_once": at_once}
    for name, value in (numbers | ({} if iterations is None else {"iterations": iterations})).items():
        if value < 1:
            raise UserError(f"{name}: expected at least 1, found {value}")
    folders = [Path(getattr(run, "folder", run)) for run in several]
    attacker = threat_by_name(threat).with_knowledge(tuple(knows))
    chosen = (attacks,) if isinstance(attacks, str) else tuple(attacks or ())
    names, shared = split_attacks(chosen) if chosen else (Budget().attacks, Budget().on_shared)
    budget = Budget(names, attacker, images, iterations, restarts, unroll, at_once, seed, membership, shared)
    path = Path(page) if page is not None else folders[0] / "audit" / PAGE if len(folders) == 1 else Path(PAGE)
    if page is not None:
        check_writable(path)  # fail before hours of attacks, not after them
    audits = []
    for folder in folders:
        with audit_progress(show) as bar:
            root = Path(data_dir) if data_dir else None
            result = audit_run(folder, budget, device=device, data=data, model=model, data_dir=root, report=bar.update)
        saved(result, write(result, device))
        if record is not None:
            record_rows(result, Path(record), device)
        audits.append(result)
    everything = [each for folder in dict.fromkeys(folders) for each in read_all(folder)]
    return AuditResult(tuple(audits), write_page(everything, path), tuple(everything))
