"""What it took: bytes, loss terms, clients left out, time."""

from __future__ import annotations

from functools import partial

from unskew.report import plot_frames
from unskew.report.cost_notes import time_doubt
from unskew.report.figures import round_curves, stacked_bars
from unskew.report.figures.figure_layout import marks
from unskew.report.group_runs import Setting
from unskew.report.report_panel import FigureRenderer, ReportPanel, legend
from unskew.results.format_numbers import in_bytes, listed

REASONS = 5  # that are shown


def traffic(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Bytes from the ledger."""
    frame, clients = plot_frames.traffic(setting), len(plot_frames.holdings(setting.first))
    if frame.empty:
        return ReportPanel(setting.name, notes=["Nothing was sent."])
    up = frame[frame["direction"] == "up"].groupby("method")["bytes"].sum()
    drawing = studio.draw(
        partial(stacked_bars.traffic_bars, frame),
        "Bytes sent up and down by method, stacked by kind",
        f"Whole run, mean over seeds. Most goes up with {up.idxmax()}: {in_bytes(up.max() / clients)} for each of the "
        f"{clients} clients on average.",
        wide=True,
    )
    return ReportPanel(setting.name, [drawing], legend=legend(stacked_bars.colours_of_kinds(frame)))


def losses(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """A figure per part that has a loss, and clients left out."""
    frame, gone = plot_frames.losses(setting), plot_frames.dropped(setting)
    colours = marks([entry.label for entry in setting.entries])
    panel = ReportPanel(setting.name)
    for part in map(str, frame["part"].unique()):
        methods = list(frame.loc[frame["part"] == part, "method"].unique())
        whose = "All methods" if len(methods) == len(colours) else f"Only with {listed(methods)}"
        drawing = studio.draw(
            partial(round_curves.loss_curves, frame, part, colours),
            f"Loss term {part} by round",
            f"{whose}: {_ends(frame, part)} in the last round.",
        )
        panel.drawings.append(drawing)
    panel.notes += _refusals(setting)
    if gone.empty:
        if not panel.notes:
            panel.notes.append("No client was left out: every reply was as agreed and every number in it finite.")
        return panel
    drawing = studio.draw(
        partial(round_curves.dropped_curves, gone, colours),
        "Clients left out so far by round",
        "Clients whose reply was refused, most often for a number that was not finite: a method that diverges.",
    )
    panel.drawings.append(drawing)
    return panel


def _refusals(setting: Setting) -> list[str]:
    """Refused replies with their reasons, the most frequent first, and rounds below the quorum."""
    refused, below = plot_frames.refused(setting), plot_frames.below_quorum(setting)
    groups = refused.groupby(["method", "phase", "reason"], sort=False)
    found = sorted(groups, key=lambda group: -len(group[1]))
    notes = [
        f"{method}: {len(rows)} {'reply' if len(rows) == 1 else 'replies'} refused ({phase}), the first of client "
        f"{rows['client'].iloc[0]} in round {rows['round'].iloc[0]}: {reason}."
        for (method, phase, reason), rows in found[:REASONS]
    ]
    notes += [f"{len(found) - REASONS} more reasons are in the ledger."] * (len(found) > REASONS)
    for method, rows in below.groupby("method", sort=False):
        rounds = "round" if len(rows) == 1 else "rounds"
        notes.append(f"{method}: {len(rows)} {rounds} below the quorum, after which the model stayed as it was.")
    return notes


def _ends(frame: plot_frames.Frame, part: str) -> str:
    """The range of the last values of a part."""
    last = frame[frame["part"] == part].groupby("method")["value"].last()
    low, high = f"{last.min():.3g}", f"{last.max():.3g}"
    return low if low == high else f"{low} to {high}"


def times(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Seconds of a round and the share of padding."""
    frame = plot_frames.times(setting)
    drawing = studio.draw(
        partial(stacked_bars.time_bars, frame),
        "Median time of a round by method, training and evaluation",
        "Median over rounds and seeds, so that the first round's set-up does not count.",
        wide=True,
    )
    notes = [note for note in (time_doubt(setting), _padding(setting)) if note]
    return ReportPanel(setting.name, [drawing], notes, legend=legend(stacked_bars.colours_of_times(frame)))


def _padding(setting: Setting) -> str:
    shares = {e.label: [run.environment.get("padding_share") for run in e.runs] for e in setting.entries}
    known = {label: [100 * float(s) for s in some if s is not None] for label, some in shares.items()}
    told = {label: sum(some) / len(some) for label, some in known.items() if some}
    if not told:
        return "The share of padding was not kept."
    if max(told.values()) < 0.05:
        return "No work was padding."
    return f"Share of the work that was padding: {', '.join(f'{name} {share:.1f} %' for name, share in told.items())}."
