"""An attack over many cases, some at a time. What is finished is kept, so that an interrupted audit goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from unskew.audit.attack_cases import AttackCase, problem
from unskew.audit.attacks import find
from unskew.audit.budget import Budget
from unskew.audit.problem import Recovery
from unskew.audit.replayed_run import ReplayedRun
from unskew.base.tensor_codec import to_bytes
from unskew.results.atomic_write import write_whole

Told = Callable[[str, int, int], None]  # what is under way, steps done, steps in all


def search(
    attack: str, cases: list[AttackCase], world: ReplayedRun, budget: Budget, keep: Path, tell: Told
) -> Iterator[tuple[AttackCase, Recovery]]:
    """Each case with what was recovered of it: rows [R, n, ...], labels [R, n], matching loss [R]."""
    groups: dict[tuple, list[AttackCase]] = {}
    for case in cases:
        groups.setdefault(case.alike, []).append(case)
    width = max(budget.at_once // budget.restarts, 1)
    chunks = [group[i : i + width] for group in groups.values() for i in range(0, len(group), width)]
    iterations = budget.iterations_of(attack)
    for number, chunk in enumerate(chunks):
        files = [keep / f"{attack}-{budget.key(attack, case.identity)}.safetensors" for case in chunk]
        done = [one for path, case in zip(files, chunk) if (one := _read(path, case.x)) is not None]
        if len(done) < len(chunk):

            def progress(done: int, total: int, number: int = number) -> None:
                tell(attack, number * total + done, len(chunks) * total)

            made = find(attack).run(
                problem(chunk, world, budget.threat), budget.restarts, iterations, budget.seed, progress
            )
            done = [Recovery(*(t[m] for t in made)) for m in range(len(chunk))]
            for path, one in zip(files, done):
                write_whole(path, to_bytes(one._asdict()))
        tell(attack, (number + 1) * iterations, len(chunks) * iterations)  # a search may end early
        yield from zip(chunk, done)


def _read(path: Path, like: Tensor) -> Recovery | None:
    """A finished case; one that cannot be read is searched again."""
    try:
        found = safetensors.torch.load_file(path, str(like.device))
        made = Recovery(found["x"], found["y"], found["loss"])
    except (OSError, KeyError, safetensors.SafetensorError):
        return None
    fits = made.x.shape[1:] == like.shape and made.y.shape == made.x.shape[:2] and made.loss.shape == made.x.shape[:1]
    return made if fits else None
