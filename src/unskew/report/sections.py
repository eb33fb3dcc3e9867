"""The page's sections in order: what each shows of a setting, and the line under each figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from unskew.data import skew
from unskew.report import frames
from unskew.report.figures import bars, heat, lines, spread
from unskew.report.figures.sheet import NARROW, VARIABLES, WIDE, marks
from unskew.report.settings import Setting
from unskew.report.svg import inline
from unskew.report.table import Results, results
from unskew.report.units import listed
from unskew.report.words import METRICS, scores_of
from unskew.results.statistics import difference

Draw = Callable[[float], Figure]


@dataclass(frozen=True)
class Drawing:
    """A figure for phones, perhaps another for wide pages, and what to see in it."""

    narrow: Markup
    wide: Markup | None
    caption: str


@dataclass
class Panel:
    """What one section says about one setting."""

    setting: str
    drawings: list[Drawing] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)
    table: Results | None = None


class Studio:
    """Draws figures into the page and keeps their ids apart."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._keys = count(1)

    def draw(self, figure: Draw, label: str, caption: str, wide: bool = False) -> Drawing:
        both = [inline(figure(w), label, f"f{next(self._keys)}") for w in ((NARROW, WIDE) if wide else (NARROW,))]
        return Drawing(both[0], both[1] if wide else None, caption)


def curves(setting: Setting, studio: Studio) -> Panel:
    """Accuracy by round."""
    frame, colours = frames.accuracy(setting), marks([entry.label for entry in setting.entries])
    several = len(setting.seeds) > 1
    band = "Line: mean over seeds; band: from the lowest to the highest seed." if several else "One seed, so no band."
    drawing = studio.draw(
        lambda width: lines.accuracy_curves(frame, colours, width),
        f"Test accuracy by round for {listed(list(colours))}",
        f"The higher and the earlier a curve rises, the better. {band} Grey is {setting.reference.label}.",
        wide=True,
    )
    return Panel(setting.name, [drawing])


def table(setting: Setting, studio: Studio) -> Panel:
    """Numbers by method."""
    found = results(setting)
    notes = [
        "Mean ± sample standard deviation over seeds, accuracies in percent, the best mean of a column in bold; "
        "bytes and time are means of a whole run."
    ]
    if "speed-up" in found.columns:
        notes.append("Speed-up as in FedLMD: rounds of the run / first round at FedAvg's best accuracy of that seed.")
    if found.flagged:
        notes.append("† never got there with some seed, which counts as 1.00× there, as in FedLMD.")
    return Panel(setting.name, notes=notes, table=found)


def paired(setting: Setting, studio: Studio) -> Panel:
    """Differences to the reference."""
    scores, reference = scores_of(setting, studio.metric), setting.reference.label
    others = [entry.label for entry in setting.entries[1:]]
    if not others:
        return Panel(setting.name, notes=["One method only: nothing to compare."])
    found = {name: difference(scores[name], scores[reference]) for name in others}
    rows = [{"method": name} | vars(gap) for name, gap in found.items() if gap.pairs]
    panel = Panel(setting.name)
    if unpaired := [name for name, gap in found.items() if not gap.pairs]:
        panel.notes.append(f"No seed in common with {reference}: {listed(unpaired)}.")
    if rows:
        single = any(row["pairs"] < 2 for row in rows)
        tell = " A dot alone has one common seed, and so no interval." if single else ""
        panel.drawings = [
            studio.draw(
                lambda width: spread.forest(pd.DataFrame(rows), reference, marks([reference, *others]), width),
                f"Paired differences of {listed(others)} to {reference}, with 95 % intervals",
                f"A line that crosses zero may be chance. {METRICS[studio.metric].capitalize()}, mean of the paired "
                f"differences and its 95 % Student interval, each on its own.{tell}",
                wide=True,
            )
        ]
    return panel


def holdings(setting: Setting, studio: Studio) -> Panel:
    """Who holds what."""
    counts, seed = frames.holdings(setting.first), setting.first.config.seed
    found = skew.summary(counts.to_numpy())
    merged = " Columns are means of neighbours." if len(counts) > heat.MOST else ""
    drawings = [
        studio.draw(
            lambda width: heat.holdings_map(counts, setting.classes, width),
            f"Share of each class at each of {len(counts)} clients",
            f"A column with one dark cell is a client that knows one class (seed {seed}).{merged}",
        ),
        studio.draw(
            lambda width: spread.sizes_histogram(counts.sum(axis=1), width),
            f"Histogram of the rows of {len(counts)} clients",
            f"Far apart means that some clients train on much less than others (seed {seed}).",
        ),
    ]
    numbers = [
        ("clients", f"{found['clients']}"),
        ("rows each", f"{found['size_min']}–{found['size_max']}, median {found['size_median']:g}"),
        ("classes missing at a client", f"{found['missing_mean']:.1f} of {counts.shape[1]}"),
        ("distance to the overall mix (EMD)", f"{found['emd']:.2f} of 2"),
    ]
    if found["empty"]:
        numbers.append(("clients without rows", f"{found['empty']}"))
    return Panel(setting.name, drawings, numbers=numbers)


def classes(setting: Setting, studio: Studio) -> Panel:
    """Accuracy and predictions by class."""
    names, colours = setting.classes, marks([entry.label for entry in setting.entries])
    final, own = frames.final_accuracy(setting), frames.own_classes(setting)
    drawings = [
        studio.draw(
            lambda width: heat.class_methods(final, names, width),
            "Accuracy of the final model by method and class",
            "A pale cell is a class that the final model has not learnt, whatever the mean says.",
            wide=True,
        ),
        studio.draw(
            lambda width: spread.own_classes_boxes(own, colours, width),
            "Accuracy on each client's own classes by method",
            "How the final model serves each client: box, the middle half of the clients; line, 5th to 95th percentile; "
            "stroke, median. Per-class test accuracy weighted by the client's mix.",
        ),
    ]
    for entry in setting.entries:
        table = frames.by_class(entry, "accuracy")
        drawings.append(
            studio.draw(
                lambda width, t=table, e=entry: heat.class_rounds(
                    t, names, f"{e.label}: accuracy by class", 100, width
                ),
                f"{entry.label}: accuracy by class and round",
                "Rows that flicker are classes learnt and forgotten again; full colour is 100 %.",
            )
        )
    return Panel(setting.name, drawings)


def predictions(setting: Setting, studio: Studio) -> Panel:
    """Labels the model predicts, as in FedLMD's Fig. 2."""
    names = setting.classes
    tables = {entry.label: frames.by_class(entry, "predicted") for entry in setting.entries}
    top = max(float(table.max().max()) for table in tables.values())
    drawings = [
        studio.draw(
            lambda width, t=table, e=label: heat.class_rounds(t, names, f"{e}: share of predictions", top, width),
            f"{label}: share of the predictions that go to each class, by round",
            f"Even colour is good; a dark row takes the predictions of others. Full colour is {top:.0f} %.",
        )
        for label, table in tables.items()
    ]
    return Panel(setting.name, drawings)


def traffic(setting: Setting, studio: Studio) -> Panel:
    """Bytes from the ledger."""
    frame = frames.traffic(setting)
    drawing = studio.draw(
        lambda width: bars.traffic_bars(frame, width),
        "Bytes sent up and down by method, stacked by kind",
        "Anything beside weights is what a method sends more than FedAvg. From the ledger, mean over seeds.",
        wide=True,
    )
    return Panel(setting.name, [drawing], legend=_legend(bars.colours_of_kinds(frame)))


def losses(setting: Setting, studio: Studio) -> Panel:
    """Loss terms and clients left out."""
    frame, gone = frames.losses(setting), frames.dropped(setting)
    colours = marks([entry.label for entry in setting.entries])
    panel = Panel(setting.name)
    for part in frame["part"].unique():
        panel.drawings.append(
            studio.draw(
                lambda width, p=str(part): lines.loss_curves(frame, p, colours, width),
                f"Loss term {part} by round",
                "Training loss of this part, mean over the round's clients and seeds.",
            )
        )
    if gone.empty:
        panel.notes.append("No client was left out: every number that a client sent was finite.")
        return panel
    panel.drawings.append(
        studio.draw(
            lambda width: lines.dropped_curves(gone, colours, width),
            "Clients left out so far by round",
            "Clients whose message held a number that was not finite; a rising line is a method that diverges.",
        )
    )
    return panel


def times(setting: Setting, studio: Studio) -> Panel:
    """Seconds of a round and the share of padding."""
    frame = frames.times(setting)
    drawing = studio.draw(
        lambda width: bars.time_bars(frame, width),
        "Median time of a round by method, training and evaluation",
        "Median over rounds and seeds, so that the first round's set-up does not count.",
        wide=True,
    )
    shares = {e.label: [run.environment.get("padding_share") for run in e.runs] for e in setting.entries}
    known = {label: [100 * float(s) for s in some if s is not None] for label, some in shares.items()}
    told = [f"{label} {sum(some) / len(some):.1f} %" for label, some in known.items() if some]
    note = f"Share of the work that was padding: {', '.join(told)}." if told else "The share of padding was not kept."
    return Panel(setting.name, [drawing], [note], legend=_legend(bars.colours_of_times(frame)))


def _legend(colours: dict[str, str]) -> dict[str, str]:
    return {name: VARIABLES[colour] for name, colour in colours.items()}


SECTIONS: tuple[tuple[str, Callable[[Setting, Studio], Panel]], ...] = (
    ("Accuracy by round", curves),
    ("Numbers", table),
    ("Paired differences", paired),
    ("Who holds what", holdings),
    ("Class by class", classes),
    ("What the model predicts", predictions),
    ("Bytes sent", traffic),
    ("Loss terms", losses),
    ("Time", times),
)
