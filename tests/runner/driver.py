"""A process to kill: runs the tiny experiment and waits forever in round 8, so that it never ends by itself.

python driver.py FOLDER METHOD ROUNDS
"""

import sys
import time
from pathlib import Path

import toys

from unskew.protocol import method_registry


def wait(phase: str, round: int) -> None:
    while (phase, round) == ("merge", 8):
        time.sleep(1)


if __name__ == "__main__":
    folder, method, rounds = sys.argv[1:]
    method_registry.PARTS.update(toys.PARTS)
    engine = {"name": "loop", "workers": 2}
    toys.run(Path(folder), method=method, rounds=int(rounds), engine=engine, checkpoint=toys.EAGER, phase=wait)
