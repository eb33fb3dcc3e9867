"""The bare loop in a separate process, with the default memory allocation of any script.

unskew makes the C library keep freed memory for the whole process (runner/process_setup.py), and a bare loop in the
same process would be faster than the one a practitioner starts. Each input line has a round's clients and their rows;
an output line confirms that the round is finished.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch
from bare_loop import BareTrainer
from torch import Tensor
from workloads import WORKLOADS

from unskew.base.per_client import PerClient


class BareProcess:
    """Runs rounds in another process with the given number of threads."""

    def __init__(self, workload: str, rows: PerClient[Tensor], precision: str, threads: int) -> None:
        command = [sys.executable, str(Path(__file__)), workload, precision, str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._rows = rows

    def close(self) -> None:
        self._process.communicate()

    def round(self, clients: list[int]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([(k, self._rows[k].tolist()) for k in clients]) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the bare loop's process ended; its error is above")


def main() -> None:
    workload, precision, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    load = WORKLOADS[workload]
    data = load.data()
    bare_loop = BareTrainer(load, {}, data.train.x, data.train.y, "cpu", precision)
    for line in iter(sys.stdin.readline, ""):
        bare_loop.rows = {k: torch.tensor(rows) for k, rows in json.loads(line)}
        bare_loop.round(list(bare_loop.rows))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
