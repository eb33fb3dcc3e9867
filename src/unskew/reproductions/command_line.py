"""The `unskew reproduce` command line for a target and options."""

from __future__ import annotations

import shlex
from pathlib import Path

from unskew.reproductions.target_plan import ReproduceOptions


def command_for(target: str, options: ReproduceOptions, record: Path | None = None) -> str:
    """The shell command that runs `target` with `options` and records in `record`.

    >>> command_for("fedlmd/figure2", ReproduceOptions(("local.lr=0.5",), preset="released", rounds=3), Path("results"))
    'unskew reproduce fedlmd/figure2 local.lr=0.5 --rounds 3 --preset released --record results'
    """
    words = ["unskew", "reproduce", target, *options.overrides]
    given = {
        "--only": ",".join(options.only or ()), "--methods": ",".join(options.methods or ()), "--seeds": options.seeds,
        "--draws": ",".join(map(str, options.draws or ())), "--rounds": options.rounds,
        "--preset": options.preset if options.preset != ReproduceOptions().preset else None,
        "--record": record,
    }  # fmt: skip
    for option, value in given.items():
        words += [option, str(value)] if value else []
    return shlex.join(words)
