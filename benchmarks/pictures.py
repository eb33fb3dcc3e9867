"""What a decoder makes of the features that finished runs would share next: true rows above, a line of pictures a run.

python benchmarks/pictures.py RUN... --data-dir DATA --out results/flea/pictures.png

Only a run's model is needed, no recorded messages: FLea's features come from the newest model, so those of the last
round's clients can be made again. `unskew audit` attacks what was really sent, and shows its own pictures.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from unskew.audit.attacks.feature_decoder import decoder
from unskew.audit.metrics.psnr import psnr
from unskew.audit.replayed_run import ReplayedRun, set_up
from unskew.audit.shared_data import SharedArtefact
from unskew.client.share import share_draws
from unskew.reproduce.record_runs import changed_settings
from unskew.results.load_run import load

SHOWN = 16
INCH = 0.62  # side of a picture


def next_features(world: ReplayedRun) -> SharedArtefact:
    """Those of the last round's clients, from the final model."""
    context, last = world.context, max(world.trained)
    shared = []
    for client in world.trained[last]:
        pick = share_draws(context, "flea", last, client)["pick"].cpu()
        shared.append(context.client_rows.index[client][pick[pick >= 0]])
    rows = torch.cat(shared)[:SHOWN, None]
    state = {name: t.to(context.device) for name, t in world.run.model.state_dict().items()}
    found = SharedArtefact(world, "flea", "features", last, state, torch.empty(0), rows, flat=True)
    return replace(found, items=found.made(context.client_rows.x, rows))


def decoded(world: ReplayedRun, steps: int) -> tuple[Tensor, Tensor]:
    """Pixels from 0 to 1 of the true rows and of what the decoder makes of their features."""
    shared, source = next_features(world), world.context.client_rows
    found = decoder(shared, steps, seed=0, progress=told)
    true, shown = (world.unit(x) for x in (source.prepare(source.x[shared.rows[:, 0]]), found.rows))
    if true is None or shown is None:
        raise SystemExit(f"{world.run.folder}: expected rows that are pictures")
    return true.float().cpu(), shown.float().cpu()


def told(done: int, total: int) -> None:
    sys.stderr.write(f"\r{done}/{total}" + "\n" * (done == total))


def draw(lines: list[tuple[str, Tensor]], path: Path) -> None:
    """One line of pictures for each."""
    figure = Figure(figsize=(INCH * SHOWN, (INCH + 0.28) * len(lines)))
    grid = figure.subplots(len(lines), SHOWN, gridspec_kw={"wspace": 0.06, "hspace": 0.45})
    for (title, pictures), places in zip(lines, grid):
        for axes, picture in zip(places, pictures):
            axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
            axes.set_axis_off()
        places[0].set_title(title, loc="left", fontsize=9)
    figure.savefig(path, dpi=130, bbox_inches="tight", pad_inches=0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--steps", type=int, default=7800)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    lines: list[tuple[str, Tensor]] = []
    for run in args.runs:
        world = set_up(load(run), data_dir=args.data_dir)
        true, shown = decoded(world, args.steps)
        if lines and not torch.equal(true, lines[0][1]):
            raise SystemExit(
                f"{run}: expected the rows of the first run, found others; give runs of one seed and split"
            )
        error, likeness = float((true - shown).square().mean()), float(psnr(true, shown, "unit", 1.0).values.mean())
        config = world.run.config
        name = " ".join([config.label, *changed_settings(config)])
        what = f"{name}, after round {max(world.trained)}: MSE {error:.4f}, {likeness:.1f} dB"
        sys.stdout.write(f"{what}\n")
        lines = [*(lines or [("rows whose features are shared", true)]), (what, shown)]
    draw(lines, args.out)


if __name__ == "__main__":
    main()
