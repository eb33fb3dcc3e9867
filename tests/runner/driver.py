"""A process to kill: plays the tiny experiment and stops for ever in round 8, so that it is always killed in time.

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
    toys.play(Path(folder), method=method, rounds=int(rounds), engine=engine, checkpoint=toys.EAGER, phase=wait)
