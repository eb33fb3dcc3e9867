"""The bare loop in a process of its own, where a CPU's memory is handled as in any script.

unskew has the C library keep freed memory for the whole process (unskew/process.py), and a bare loop beside it would be
faster than the one a practitioner starts. Each line that comes in is a round's clients, each that goes out an answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch
from bare import Bare
from workloads import WORKLOADS


class Alone:
    """Plays rounds in another process; threads as asked for."""

    def __init__(self, workload: str, rows: list[list[int]], precision: str, threads: int) -> None:
        command = [sys.executable, str(Path(__file__)), workload, precision, str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tell(rows)

    def round(self, clients: list[int]) -> None:
        self._tell(clients)

    def close(self) -> None:
        self._process.communicate()

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the bare loop's process ended; its error is above")


def main() -> None:
    workload, precision, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    load = WORKLOADS[workload]
    data, rows = load.data(), [torch.tensor(row) for row in json.loads(sys.stdin.readline())]
    bare = Bare(load, rows, data.train.x, data.train.y, "cpu", precision)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in iter(sys.stdin.readline, ""):
        bare.round(json.loads(line))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
