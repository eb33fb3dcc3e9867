"""Decode the features that finished runs would share next: the true rows on top, then a line of pictures for each run.

python benchmarks/pictures.py RUN... --data-dir DATA --out results/flea/pictures.png

Only a run's model is needed, not its messages: FLea's features are computed with the newest model, so those of the last
round's clients can be recomputed. `unskew audit` attacks the messages that were sent, and shows its own pictures.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from unskew.audits.attacks.feature_decoder import decode_features
from unskew.audits.metrics.psnr import psnr
from unskew.audits.replayed_run import ReplayedRun, replay_run
from unskew.audits.shared_data import SharedArtefact
from unskew.client.share import share_draws
from unskew.reproductions.record_runs import changed_settings
from unskew.results.load_run import load

SHOWN = 16
INCH = 0.62  # side of a picture


def next_features(replayed: ReplayedRun) -> SharedArtefact:
    """The features of the last round's clients, computed with the final model."""
    context, last = replayed.context, max(replayed.trained)
    shared = []
    for client in replayed.trained[last]:
        pick = share_draws(context, "flea", last, client)["pick"].cpu()
        shared.append(context.client_rows.index[client][pick[pick >= 0]])
    rows = torch.cat(shared)[:SHOWN, None]
    state = {name: t.to(context.device) for name, t in replayed.run.model.state_dict().items()}
    artefact = SharedArtefact(replayed, "flea", "features", last, state, torch.empty(0), rows, flat=True)
    return replace(artefact, items=artefact.make_items(context.client_rows.x, rows))


def decode(replayed: ReplayedRun, steps: int) -> tuple[Tensor, Tensor]:
    """Pixels from 0 to 1 of the true rows, and of the decoder's reconstructions from their features."""
    shared, source = next_features(replayed), replayed.context.client_rows
    result = decode_features(shared, steps, seed=0, progress=show_progress)
    true_pixels, decoded_pixels = (replayed.unit(x) for x in (source.prepare(source.x[shared.rows[:, 0]]), result.rows))
    if true_pixels is None or decoded_pixels is None:
        raise SystemExit(f"{replayed.run.folder}: expected image rows, found others")
    return true_pixels.float().cpu(), decoded_pixels.float().cpu()


def show_progress(done: int, total: int) -> None:
    sys.stderr.write(f"\r{done}/{total}" + "\n" * (done == total))


def draw(lines: list[tuple[str, Tensor]], path: Path) -> None:
    """Draw one line of pictures for each title."""
    figure = Figure(figsize=(INCH * SHOWN, (INCH + 0.28) * len(lines)))
    grid = figure.subplots(len(lines), SHOWN, gridspec_kw={"wspace": 0.06, "hspace": 0.45})
    for (title, pictures), axes_row in zip(lines, grid):
        for axes, picture in zip(axes_row, pictures):
            axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
            axes.set_axis_off()
        axes_row[0].set_title(title, loc="left", fontsize=9)
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
        replayed = replay_run(load(run), data_dir=args.data_dir)
        true_pixels, decoded_pixels = decode(replayed, args.steps)
        if lines and not torch.equal(true_pixels, lines[0][1]):
            raise SystemExit(
                f"{run}: expected the same rows as in the first run, found others; pass runs of one seed and split"
            )
        error = float((true_pixels - decoded_pixels).square().mean())
        psnr_value = float(psnr(true_pixels, decoded_pixels, "unit", 1.0).values.mean())
        config = replayed.run.config
        name = " ".join([config.label, *changed_settings(config)])
        title = f"{name}, after round {max(replayed.trained)}: MSE {error:.4f}, {psnr_value:.1f} dB"
        sys.stdout.write(f"{title}\n")
        lines = [*(lines or [("rows whose features are shared", true_pixels)]), (title, decoded_pixels)]
    draw(lines, args.out)


if __name__ == "__main__":
    main()
