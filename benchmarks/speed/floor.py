"""The least time a round can take: arithmetic over the rate of the unit that does it, or bytes over the bandwidth."""

from __future__ import annotations

import torch
from bare import KNOWN
from torch.utils.flop_counter import FlopCounterMode
from workloads import Workload

from unskew.runner.prepare_run import prepare

# Measured on one H200: a large copy, and a large product in bf16; float32 and TF32 are assumed, not measured.
BANDWIDTH = 4.3e12
RATES = {"float32": 60e12, "tf32": 400e12, "bf16": 790e12}


def floor(load: Workload, device: str, precision: str) -> tuple[float, int]:
    """Milliseconds a round cannot beat on that GPU (0 elsewhere, and for other methods), and the samples of a round."""
    ready = prepare(load.experiment("loop", "cpu", "float32", 1), data=load.data(), model=load.net())
    sampling, rows, work = ready.federation.sampling, ready.federation.rows, ready.federation.task.work
    ready.federation.engine.close()
    clients = [sampling.sampled(r) for r in range(1, 6)]
    samples = sum(rows[k] * load.local["epochs"] for cohort in clients for k in cohort) // len(clients)
    steps = sum(work.steps_for(rows[k]) for cohort in clients for k in cohort) / len(clients)
    if not device.startswith("cuda") or load.method not in KNOWN:
        return 0.0, samples
    model = load.net()
    # Only forward: torch counts gradients of depthwise filters as if all channels saw all. A step goes back twice.
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        model(torch.randn(2, 3, 32, 32))
    flops = counted.get_total_flops() / 2 * samples * (4 if load.method == "fedlmd" else 3)
    # Every step reads weights and writes gradients, reads both and the momentum, and writes two of them.
    size = 4 * sum(p.numel() for p in model.parameters())
    moved = steps * size * (2 + (5 if load.local["momentum"] else 3))
    return 1000 * max(flops / RATES[precision], moved / BANDWIDTH), samples
