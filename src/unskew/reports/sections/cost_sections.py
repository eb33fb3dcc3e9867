"""Costs: bytes, loss terms, refused replies, time."""

from __future__ import annotations

from functools import partial

from unskew.reports import plot_frames
from unskew.reports.cost_notes import time_caveat
from unskew.reports.figures import round_curves, stacked_bars
from unskew.reports.figures.figure_layout import line_styles
from unskew.reports.group_runs import Setting
from unskew.reports.report_panel import FigureRenderer, ReportPanel, legend
from unskew.results.format_numbers import in_bytes, listed

MAX_REASONS = 5  # to show


def traffic(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Bytes from the ledger."""
    frame, clients = plot_frames.traffic(setting), len(plot_frames.label_counts_by_client(setting.first))
    if frame.empty:
        return ReportPanel(setting.name, notes=["Nothing was sent."])
    up = frame[frame["direction"] == "up"].groupby("method")["bytes"].sum()
    drawing = renderer.draw(
        partial(stacked_bars.traffic_bars, frame),
        "Bytes uploaded and downloaded by method, stacked by kind",
        f"Per run, mean over seeds. {up.idxmax()} uploads the most: {in_bytes(up.max() / clients)} for each of the "
        f"{clients} clients on average.",
        wide=True,
    )
    return ReportPanel(setting.name, [drawing], legend=legend(stacked_bars.kind_colours(frame)))


def losses(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """A figure per part that has a loss, and refused replies."""
    frame, dropped = plot_frames.losses(setting), plot_frames.dropped(setting)
    colours = line_styles([entry.label for entry in setting.entries])
    panel = ReportPanel(setting.name)
    for part in map(str, frame["part"].unique()):
        methods = list(frame.loc[frame["part"] == part, "method"].unique())
        scope = "all methods" if len(methods) == len(colours) else f"{listed(methods)} only"
        drawing = renderer.draw(
            partial(round_curves.loss_curves, frame, part, colours),
            f"Loss term {part} by round",
            f"{_final_range(frame, part)} in the last round ({scope}).",
        )
        panel.drawings.append(drawing)
    panel.notes += _refusals(setting)
    if dropped.empty:
        if not panel.notes:
            panel.notes.append("No reply was refused: every reply had the expected form and only finite numbers.")
        return panel
    drawing = renderer.draw(
        partial(round_curves.dropped_curves, dropped, colours),
        "Refused replies so far, by round",
        "The notes below give the reasons. A number that is not finite usually means that training diverged.",
    )
    panel.drawings.append(drawing)
    return panel


def _refusals(setting: Setting) -> list[str]:
    """Refused replies with their reasons, the most frequent first, and rounds below the quorum."""
    refused, below = plot_frames.refused(setting), plot_frames.below_quorum(setting)
    groups = refused.groupby(["method", "phase", "reason"], sort=False)
    by_count = sorted(groups, key=lambda group: -len(group[1]))
    notes = [
        f"{method}: {len(rows)} {'reply' if len(rows) == 1 else 'replies'} refused ({phase}), first from client "
        f"{rows['client'].iloc[0]} in round {rows['round'].iloc[0]}: {reason}."
        for (method, phase, reason), rows in by_count[:MAX_REASONS]
    ]
    notes += [f"{len(by_count) - MAX_REASONS} more reasons are in the ledger."] * (len(by_count) > MAX_REASONS)
    for method, rows in below.groupby("method", sort=False):
        rounds = "round" if len(rows) == 1 else "rounds"
        notes.append(f"{method}: {len(rows)} {rounds} below the quorum, which left the model unchanged.")
    return notes


def _final_range(frame: plot_frames.Frame, part: str) -> str:
    """The range of a part's last values over methods."""
    last = frame[frame["part"] == part].groupby("method")["value"].last()
    low, high = f"{last.min():.3g}", f"{last.max():.3g}"
    return low if low == high else f"{low} to {high}"


def times(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Seconds per round, and the share of padding."""
    frame = plot_frames.times(setting)
    drawing = renderer.draw(
        partial(stacked_bars.time_bars, frame),
        "Median time per round by method, training and evaluation",
        "Median over rounds and seeds, so set-up in the first round does not count.",
        wide=True,
    )
    notes = [note for note in (time_caveat(setting), _padding(setting)) if note]
    return ReportPanel(setting.name, [drawing], notes, legend=legend(stacked_bars.time_colours(frame)))


def _padding(setting: Setting) -> str:
    shares = {e.label: [run.environment.get("padding_share") for run in e.runs] for e in setting.entries}
    known = {label: [100 * float(s) for s in values if s is not None] for label, values in shares.items()}
    means = {label: sum(values) / len(values) for label, values in known.items() if values}
    if not means:
        return "The share of padding rows was not recorded."
    if max(means.values()) < 0.05:
        return "No padding rows were computed."
    each = ", ".join(f"{name} {share:.1f} %" for name, share in means.items())
    return f"Padding rows, as a share of all computed rows: {each}."
