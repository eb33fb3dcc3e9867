"""Runs an attack on many cases in batches. Results are cached, so an interrupted audit continues from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from unskew.audits.attack_cases import AttackCase, build_problem
from unskew.audits.attacks import attack_by_name
from unskew.audits.budget import Budget
from unskew.audits.problem import Recovery
from unskew.audits.replayed_run import ReplayedRun
from unskew.base.tensor_codec import to_bytes
from unskew.results.atomic_write import write_output

ReportProgress = Callable[[str, int, int], None]  # name of the attack, steps done, total steps


def run_attack(
    attack: str, cases: list[AttackCase], replayed: ReplayedRun, budget: Budget, cache: Path, report: ReportProgress
) -> Iterator[tuple[AttackCase, Recovery]]:
    """Each case with its recovery: rows [R, n, ...], labels [R, n] and matching loss [R] of R tries."""
    groups: dict[tuple, list[AttackCase]] = {}
    for case in cases:
        groups.setdefault(case.batch_key, []).append(case)
    width = max(budget.at_once // budget.restarts, 1)
    chunks = [group[i : i + width] for group in groups.values() for i in range(0, len(group), width)]
    iterations = budget.iterations_of(attack)
    for number, chunk in enumerate(chunks):
        files = [cache / f"{attack}-{budget.cache_key(attack, case.identity)}.safetensors" for case in chunk]
        recoveries = [cached for path, case in zip(files, chunk) if (cached := _read_cached(path, case.x)) is not None]
        if len(recoveries) < len(chunk):

            def progress(done: int, total: int, number: int = number) -> None:
                report(attack, number * total + done, len(chunks) * total)

            stacked = attack_by_name(attack).run(
                build_problem(chunk, replayed, budget.threat), budget.restarts, iterations, budget.seed, progress
            )
            recoveries = [Recovery(*(t[m] for t in stacked)) for m in range(len(chunk))]
            for path, recovery in zip(files, recoveries):
                write_output(path, to_bytes(recovery._asdict()))
        report(attack, (number + 1) * iterations, len(chunks) * iterations)  # an attack may stop early
        yield from zip(chunk, recoveries)


def _read_cached(path: Path, like: Tensor) -> Recovery | None:
    """The cached recovery of a case with true rows `like`; None, to attack again, if it cannot be read or used."""
    try:
        tensors = safetensors.torch.load_file(path, str(like.device))
        cached = Recovery(tensors["x"], tensors["y"], tensors["loss"])
    except (OSError, KeyError, safetensors.SafetensorError):
        return None
    tries = cached.x.shape[:1]
    fits = cached.x.shape[1:] == like.shape and cached.y.shape == cached.x.shape[:2] and cached.loss.shape == tries
    return cached if fits else None
