"""A lower bound of a round's time: its arithmetic at the peak rate, or its memory traffic at the peak bandwidth."""

from __future__ import annotations

import torch
from bare_loop import KNOWN_METHODS
from torch.utils.flop_counter import FlopCounterMode
from workloads import Workload

from unskew.runner.prepare_run import prepare

# Measured on an H200 with a large copy and a large bf16 product; the rates of float32 and TF32 are assumed.
BANDWIDTH = 4.3e12
RATES = {"float32": 60e12, "tf32": 400e12, "bf16": 790e12}


def least_ms_and_samples(load: Workload, device: str, precision: str) -> tuple[float, int]:
    """Lower bound of a round in ms on that GPU (0 on a CPU and for other methods), and the samples of a round."""
    prepared = prepare(load.experiment("loop", "cpu", "float32", 1), data=load.data(), model=load.net())
    sampling, rows, work = prepared.federation.sampling, prepared.federation.rows, prepared.federation.task.work
    prepared.federation.engine.close()
    clients = [sampling.sampled(r) for r in range(1, 6)]
    samples = sum(rows[k] * load.local["epochs"] for cohort in clients for k in cohort) // len(clients)
    steps = sum(work.steps_for(rows[k]) for cohort in clients for k in cohort) / len(clients)
    if not device.startswith("cuda") or load.method not in KNOWN_METHODS:
        return 0.0, samples
    model = load.net()
    # Count the forward pass only: torch counts gradients of depthwise filters as if they were dense. The backward pass
    # takes twice as many.
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randn(2, 3, 32, 32))
    flops = counter.get_total_flops() / 2 * samples * (4 if load.method == "fedlmd" else 3)
    # Every step reads weights and writes gradients, reads both and the momentum, and writes two of them.
    size = 4 * sum(p.numel() for p in model.parameters())
    bytes_moved = steps * size * (2 + (5 if load.local["momentum"] else 3))
    return 1000 * max(flops / RATES[precision], bytes_moved / BANDWIDTH), samples
