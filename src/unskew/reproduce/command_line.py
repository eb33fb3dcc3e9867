"""What to type to play something: the command with all that was asked for."""

from __future__ import annotations

import shlex
from pathlib import Path

from unskew.reproduce.target_plan import ReproduceOptions


def command(target: str, asked: ReproduceOptions, record: Path | None = None) -> str:
    """`unskew reproduce` with the target, the options and the overrides, and the folder to record in.

    >>> command("fedlmd/figure2", ReproduceOptions(("local.lr=0.5",), preset="released", rounds=3), Path("results"))
    'unskew reproduce fedlmd/figure2 local.lr=0.5 --rounds 3 --preset released --record results'
    """
    words = ["unskew", "reproduce", target, *asked.overrides]
    given = {
        "--only": ",".join(asked.only or ()), "--methods": ",".join(asked.methods or ()), "--seeds": asked.seeds,
        "--draws": ",".join(map(str, asked.draws or ())), "--rounds": asked.rounds,
        "--preset": asked.preset if asked.preset != ReproduceOptions().preset else None,
        "--record": record,
    }  # fmt: skip
    for option, value in given.items():
        words += [option, str(value)] if value else []
    return shlex.join(words)
