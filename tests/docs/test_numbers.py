"""Measured numbers of the results, audit and speed pages and of the README are computed again from results/.

Tables with a mark are made by `make pages`. In the text around them every number with a decimal point or a unit is part
of a claim below, computed from recorded rows, or stated: a setting, or a measurement that the page calls not recorded.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd
import pytest

from unskew.reproductions.compare_to_paper import PaperComparison, rank_correlation
from unskew.reproductions.paper_numbers import read
from unskew.results.statistics import difference

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGES = {name: ROOT / name for name in ("docs/results.md", "docs/audit.md", "docs/speed.md", "README.md")}
H200 = "NVIDIA H200"
SHARDS = "cifar10-2,cifar10-3,cifar10-5,cifar10-10"
# What no row can give: settings, definitions and targets, versions, and measurements that the page calls not recorded.
STATED = {
    "docs/results.md": (
        r"Dirichlet 0\.\d+(?: to 0\.\d+)?", r"alpha 0\.01", r"mu 0\.0001", r"beta 0\.7", r"momentum 0\.9",
        r"\(0\.003, 0\.01, 0\.03, 0\.1; one seed", r"chose 0\.1, the largest", r"stays the authors' 0\.01",
        r"chose 0\.01, the default, out of 0\.001 to 0\.03", r"out of 0\.003 to 0\.1", r"diverged at 0\.1",
        r"(?:more than|within) 3 points", "95 % intervals",
    ),
    "docs/audit.md": (
        r"at 20 dB or more", r"squared error of 0\.1 or less", "90 % of the items", r"rates of 0\.1 % and 1 %",
        r"10,000 for 0\.1 %",
    ),
    "docs/speed.md": (
        r"50 of 1000 users", r"at most \d+ ms, \d+ times pfl", r"10 of 100 clients", r"\| \d+ times the bare loop",
        r"\| \d+ times(?: in TF32, 25 in bf16)? \|", r"Dirichlet 0\.05", r"at most 1\.05 times",
        r"1\.2 times as fast as two threads, 1\.3 times pfl", r"at most 30 s", r"\| 60 s \|", "at most 3 times one run",
        r"planning takes 0\.14 s, and host memory is 586 MiB [^(]*\(printed, not recorded",
        r"a round takes 11 s or more", r"4\.3 TB/s, 790", "output is 65 MB per step",
        r"end 7 to 10 % apart \(printed by[^)]*, not recorded",
        r"8\.3e-7 in float32, 9\.9e-4 in TF32 and 2\.1e-3 in bf16 \(printed",
        r"Memory, printed by[^:]*not recorded: .*? with MOON", r"holds 78 GiB.*?took 8 s \(not recorded",
    ),
    "README.md": (
        r"Python 3\.11", r"Dirichlet 0\.05", r"Apache-2\.0", "more than 3 points", r"a round takes 11 s or more",
    ),
}  # fmt: skip
# A number with a decimal point, or with a unit.
UNIT = r"(?:ms\b|%|dB|MiB|GiB|MB|TB|s\b|times\b|points\b|of \d+)"
MEASURED = re.compile(rf"(?<![\w.])(?:\d+\.\d+(?:e[-−]?\d+)?|\d[\d,]*(?: to \d+)?\s*{UNIT})")


class Claim(NamedTuple):
    """A fragment of a page with {} for each number, and the numbers from the rows."""

    text: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return re.sub(r"(?<!\w)-(?=\d)", "−", self.text.format(*self.values))


@cache
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("document_tables", ROOT / "benchmarks" / "document_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def table(words: str) -> PaperComparison:
    comparison = tables().reproduced(words.split()).comparison
    assert comparison is not None
    return comparison


def mean(words: str, column: str, method: str) -> float:
    return next(c.spread[0] for c in table(words).of(column) if c.method == method)


def spread(words: str, column: str, method: str) -> tuple[float, float]:
    return next(c.spread for c in table(words).of(column) if c.method == method)


def late(words: str, column: str, method: str) -> float:
    return next(c.late for c in table(words).of(column) if c.method == method)


def printed(words: str, column: str, method: str) -> float:
    return next(c.printed.mean for c in table(words).of(column) if c.method == method and c.printed)


def lead(words: str, column: str, method: str) -> float:
    """The paper's method minus another, on the repetitions that both have."""
    comparison = table(words)
    gap = comparison.lead(next(c for c in comparison.of(column) if c.method == method))
    assert gap is not None
    return gap.mean


@cache
def rows(file: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / file, keep_default_na=False, dtype={"partition_seed": str})


def runs(file: str, **values: object) -> pd.DataFrame:
    found = rows(file)
    for column, value in values.items():
        found = found[found[column].astype(str) == str(value)]
    assert len(found), (file, values)
    return found.sort_values("seed") if "seed" in found else found


def both(values: pd.Series) -> tuple[float, float]:
    return float(values.mean()), float(values.std())


FITTED = f"fedlmd/table3-sharding --preset fitted --only {SHARDS}"
FITTED_LDA = "fedlmd/table3-lda --preset fitted --only cifar10-0.05"
LDA_13 = (
    "fedlmd/table3-lda --preset released --only cifar10-0.05 --draws 19940817 --methods fedlmd,fedntd,fedrs,"
    "fedlmd-tf,fedntd-tf,fedcurv,fedprox,fedavg-kd,fedls,moon,fedavg,fednova,scaffold"
)
FLEA_TEXT = "flea/table1 precision=bf16 --only cifar10-q3-100,cifar10-0.5-100,cifar10-0.1-100"
FLEA_CODE = "flea/table1 precision=bf16 --preset released --only cifar10-q3-100,cifar10-0.5-100"


def fedlmd_claims() -> Iterator[Claim]:
    fitted = [*table(FITTED).cells, *table(FITTED_LDA).cells]
    within = sum(abs(cell.difference) <= 3 for cell in fitted)
    orders = [rank_correlation(table(FITTED).of(column)).rho for column in table(FITTED).columns]
    orders += [rank_correlation(table(FITTED_LDA).cells).rho]
    yield Claim("{} of {} cells are within 3 points", (within, len(fitted)))
    yield Claim("{:.2f}, {:.2f}, {:.2f}, {:.2f} and {:.2f} over nine methods", tuple(orders))
    own = [(FITTED, column) for column in table(FITTED).columns] + [(FITTED_LDA, "cifar10-0.05")]
    gaps = [lead(words, column, "fedntd") for words, column in own]
    for words, column in own:
        gap = table(words).lead(next(c for c in table(words).of(column) if c.method == "fedntd"))
        assert gap is not None
        assert gap.low > 0, "the page says that the interval excludes zero"
    yield Claim("with intervals that exclude zero: +{:.2f} to +{:.2f} points", (min(gaps), max(gaps)))
    late_gaps = [late(words, column, "fedlmd") - late(words, column, "fedntd") for words, column in own]
    yield Claim("by {:.2f} to {:.2f} points", (min(late_gaps), max(late_gaps)))
    three, ten = "cifar10-3", "cifar10-10"
    gap = table(FITTED).lead(next(c for c in table(FITTED).of(three) if c.method == "scaffold"))
    other = table(FITTED).lead(next(c for c in table(FITTED).of(ten) if c.method == "scaffold"))
    assert gap is not None
    assert other is not None
    assert gap.low < 0 < gap.high
    assert other.low < 0 < other.high
    yield Claim("SCAFFOLD is not separated from it at s=3 (+{:.2f}) and s=10 (+{:.2f})", (gap.mean, other.mean))
    recorded = runs("fedlmd/accuracy.csv", preset="fitted")
    shared = recorded.groupby(["setting", "seed"])["best_round"].agg(lambda best: best.value_counts().max())
    yield Claim("in each of the {} pairs of column and seed {} to {} of the nine methods have their best in the same",
                (len(shared), shared.min(), shared.max()))  # fmt: skip
    yield Claim("FedAvg's best is {:.2f} and its mean over the last ten rounds {:.2f}",
                (mean(FITTED_LDA, "cifar10-0.05", "fedavg"), late(FITTED_LDA, "cifar10-0.05", "fedavg")))  # fmt: skip
    above = mean(FITTED, three, "scaffold") - printed(FITTED, three, "scaffold")
    yield Claim("is {:.2f} points above the printed {:.2f}", (above, printed(FITTED, three, "scaffold")))
    yield Claim("FedProx at s=2 is {:.2f} points above",
                (mean(FITTED, "cifar10-2", "fedprox") - printed(FITTED, "cifar10-2", "fedprox"),))  # fmt: skip
    thirteen = table(LDA_13)
    assert sum(abs(cell.difference) > 3 for cell in thirteen.cells) == len(thirteen.cells) - 2
    yield Claim("the rank correlation is {:.2f} over the {} methods",
                (rank_correlation(thirteen.cells).rho, len(thirteen.cells)))  # fmt: skip
    printed_factors = [
        cell.speedup for file in ("sharding", "lda") for cell in read(f"fedlmd_table3_{file}.csv").values()
    ]
    small = [factor for text in printed_factors if text != "Failed" and 1 < (factor := float(text)) < 1.1]
    yield Claim("speed-ups of {:.2f} to {:.2f}, which are 200 / r", (min(small), max(small)))
    draws = []
    for draw in ("19940817", "1", "2"):
        ours = runs("fedlmd/accuracy.csv", setting="alpha=0.05", preset="released", partition_seed=draw, seed=0,
                    table="table3-lda").set_index("method")["best"]  # fmt: skip
        draws.append(ours["fedlmd"] - ours["fedntd"])
    yield Claim("leads FedNTD by {:.2f}, {:.2f} and {:.2f} points", tuple(sorted(draws, reverse=True)))


def feddyn_claims() -> Iterator[Claim]:
    values: list[float] = []
    for method in ("fedyogi", "fedadam", "fedadagrad", "fedavg"):
        values += both(
            runs("fedlmd/accuracy.csv", method=method, setting="s=2;data.augment.cutout=16", preset="paper")["best"]
        )
    text = (
        "FedYogi {:.2f} ± {:.2f}, FedAdam {:.2f} ± {:.2f}, FedAdagrad {:.2f} ± {:.2f} against FedAvg's {:.2f} ± {:.2f}"
    )
    yield Claim(text, tuple(values))
    alpha = runs("fedlmd/accuracy.csv", method="feddyn", setting="s=2;data.augment.cutout=16", preset="paper")["best"]
    yield Claim("alpha 0.01 reaches {:.2f} ± {:.2f}", both(alpha))
    search = rows("feddyn/search.csv").set_index("method")["selected_mean"]
    yield Claim("with {:.2f} where FedAvg had {:.2f}", (float(search["feddyn alpha=0.1"]), float(search["fedavg"])))


def flea_claims() -> Iterator[Claim]:
    q3, half, tenth = "cifar10-q3-100", "cifar10-0.5-100", "cifar10-0.1-100"
    yield Claim("within {:.1f} points of the paper", (max(abs(c.difference) for c in table(FLEA_CODE).cells) + 0.05,))
    yield Claim("FLea is {:.2f} points above FedAvg", (lead(FLEA_CODE, q3, "fedavg"),))
    paper = [printed(FLEA_TEXT, column, "flea") - printed(FLEA_TEXT, column, "fedavg") for column in (q3, half)]
    yield Claim("(paper: {:.2f}) and {:.2f} under Dirichlet 0.5 ({:.2f})",
                (paper[0], lead(FLEA_CODE, half, "fedavg"), paper[1]))  # fmt: skip
    plain = [c.difference for c in table(FLEA_TEXT).cells if c.method in ("fedavg", "fedntd", "fedprox")]
    yield Claim("share nothing by {:.2f} to {:.2f} points", (min(plain), max(plain)))
    orders = [rank_correlation(table(FLEA_TEXT).of(column)).rho for column in (q3, half, tenth)]
    yield Claim("rank correlation with the paper {:.2f} over five", (orders[0],))
    yield Claim("−{:.2f} over three under Dirichlet 0.5, {:.2f} over three", (-orders[1], orders[2]))
    yield Claim("FedAvg is {:.2f} points above FLea", (-lead(FLEA_TEXT, half, "fedavg"),))
    yield Claim("FedNTD is {:.2f} points above FLea, and FLea {:.2f} above FedMix",
                (-lead(FLEA_TEXT, q3, "fedntd"), lead(FLEA_TEXT, q3, "fedmix")))  # fmt: skip
    yield Claim("{:.2f} points at the best round", (lead(FLEA_TEXT, q3, "fedavg"),))
    yield Claim("(three seeds) and {:.2f} under Dirichlet 0.1", (lead(FLEA_TEXT, tenth, "fedavg"),))
    data = runs("flea/accuracy.csv", method="feddata")["best"].item()
    yield Claim("FedData reaches {:.2f} with one local epoch and 30 rounds", (data,))
    yield Claim("that the paper's {:.2f} does not have", (paper_number("flea", "feddata", q3),))
    hapt, cifar, sound = (runs("flea/accuracy.csv", dataset=name).iloc[0] for name in ("hapt", "cifar10", SOUND))
    rates = [100 * one["largest_class"] / one["test_rows"] for one in (cifar, hapt, sound)]
    yield Claim("gives {:.1f} % on CIFAR-10, {:.1f} % on HAPT and {:.1f} % on the sounds", tuple(rates))


SOUND = "urbansound8k_mel"


def paper_number(paper: str, method: str, column: str) -> float:
    return float(read(f"{paper}_table1.csv")[method, column].mean)


def leak_claims() -> Iterator[Claim]:
    """The table of what FLea and FedMix leak."""
    leak = rows("flea/leak.csv")
    best = {
        "flea": runs("flea/accuracy.csv", table="figure9", method="flea", setting="q=3", rounds=100)["best"].item(),
        "off": runs("flea/accuracy.csv", table="figure9", setting="q=3;flea.lam2=0.0", rounds=100)["best"].item(),
        "mix": runs("flea/accuracy.csv", table="figure9", method="fedmix")["best"].item(),
    }
    yield Claim("| best accuracy | {:.2f} | {:.2f} | {:.2f} |", tuple(best.values()))
    yield Claim("Decorrelation costs {:.2f} points of accuracy", (best["off"] - best["flea"],))
    cases = {"flea": ("flea", "none"), "off": ("flea", "flea.lam2=0.0"), "mix": ("fedmix", "none")}

    def of(case: str, attack: str, **values: object) -> pd.DataFrame:
        method, defence = cases[case]
        own = leak[(leak["method"] == method) & (leak["defence"] == defence) & (leak["attack"] == attack)]
        for column, value in values.items():
            own = own[own[column] == value]
        return own

    for number in (1, 10, 50):
        hits = [int((of(case, f"decoder/round-{number}", metric="psnr")["value"].astype(float) >= 20).sum())
                for case in ("flea", "off")]  # fmt: skip
        total = ": images recovered at 20 dB, of 16" if number == 1 else ""
        yield Claim(f"| decoder, round {number}{total} | {{}} | {{}} | – |", tuple(hits))
    for items in (300, 10000):
        accuracies = [of(case, f"context/round-{number}", metric="context accuracy", space=f"{items} items")["value"]
                      for case, number in (("flea", 50), ("off", 50), ("mix", 1))]  # fmt: skip
        shown = [float(one.iloc[0]) for one in accuracies if len(one)]
        text = f"with {items:,} items, round 50" + (" (FedMix: round 1)" if items == 300 else "")
        yield Claim(f"{text} |{' {:.1f} % |' * (3 if items == 300 else 2)}", tuple(shown[: 3 if items == 300 else 2]))


def precision_claims() -> Iterator[Claim]:
    """Six seeds in three precisions, paired."""
    values = {name: runs(f"precision/{name}/fedlmd/accuracy.csv", method="fedavg").set_index("seed")
              for name in ("float32", "bf16", "tf32")}  # fmt: skip
    for name, title in (("bf16", "bf16"), ("tf32", "TF32")):
        gaps = values[name]["mean_last10"] - values["float32"]["mean_last10"]
        yield Claim(f"| {title} | {', '.join(['{:+.2f}'] * 6)} |", tuple(gaps))
        best = values[name]["best"] - values["float32"]["best"]
        yield Claim("{:.2f} ({:.2f}) | {:.2f} ({:.2f}) |",
                    (gaps.mean(), gaps.std(), best.mean(), best.std()))  # fmt: skip
    yield Claim("has a best accuracy of {:.2f} and a mean of {:.2f}",
                (values["float32"]["best"].mean(), values["float32"]["mean_last10"].mean()))  # fmt: skip


def audit_claims() -> Iterator[Claim]:
    full = tables().leaks("lfw20")
    single = full[(full["batch"] == 1) & (full["steps"] == 1)].set_index("attack")
    yield Claim("iDLG reaches {:.1f} dB after 60 iterations and IG {:.1f}", tuple(single["psnr"][["idlg", "ig"]]))
    assert full["recovered"].sum() == 0
    yield Claim("labels ({:.0f} % or more with one step)", (full[full["steps"] == 1]["labels"].min(),))
    yield Claim("AUC ({:.2f} with batch 1)", (single["auc"].iloc[0],))


def speed(workload: str, system: str, precision: str, column: str = "ms_per_round", device: str = H200) -> float:
    return float(runs("speed.csv", workload=workload, system=system, precision=precision, device=device)[column].item())


def interquartile(workload: str, system: str, precision: str, left_out: int) -> float:
    found = runs("speed-rounds.csv", workload=workload, system=system, precision=precision, device=H200)
    counted = found[found["round"].astype(int) > left_out]["ms"].astype(float)
    return float(counted.quantile(0.75) - counted.quantile(0.25))


def speed_claims() -> Iterator[Claim]:
    stacked, bare = "unskew-stacked", "bare-loop"

    def pair(workload: str, precision: str) -> tuple[float, float]:
        return tuple(speed(workload, stacked, precision, name) for name in ("ms_per_round", "ratio_to_bare_loop"))  # type: ignore[return-value]

    pfl = speed("pfl-cifar", "pfl", "tf32") / speed("pfl-cifar", stacked, "tf32")
    ms, ratio = pair("pfl-cifar", "tf32")
    yield Claim("{:.2f} ms in TF32 (15 rounds, spread {:.2f}): {:.1f} times the bare loop, {:.1f} times pfl 0.6.0",
                (ms, interquartile("pfl-cifar", stacked, "tf32", 3), ratio, pfl))  # fmt: skip
    yield Claim("{:.2f} ms in bf16, {:.1f} times the bare loop", pair("pfl-cifar", "bf16"))
    yield Claim("{:.1f} ms in TF32 ({:.1f} times), {:.1f} in bf16 ({:.1f}), {:.1f} in float32 ({:.1f})",
                tuple(chain(*(pair("lmd-shards-10", p) for p in ("tf32", "bf16", "float32")))))  # fmt: skip
    ms, ratio = pair("lmd-shards-100", "tf32")
    yield Claim("{:.0f} ms in TF32 (spread {:.1f}), {:.1f} times; the bare loop takes {:.1f} s (spread {:.1f})",
                (ms, interquartile("lmd-shards-100", stacked, "tf32", 3), ratio,
                 speed("lmd-shards-100", bare, "tf32") / 1000,
                 interquartile("lmd-shards-100", bare, "tf32", 1) / 1000))  # fmt: skip
    yield Claim("{:.0f} ms in TF32, {:.1f} times", pair("lmd-ragged", "tf32"))
    ragged = runs("speed-rounds.csv", workload="lmd-ragged", system=stacked, precision="tf32")
    counted = ragged[ragged["round"].astype(int) > 3]["ms"].astype(float)
    yield Claim("Rounds take {:.0f} to {:.0f} ms", (counted.min(), counted.max()))
    padding = [100 * speed(name, stacked, "tf32", "padding_share") for name in ("flea-mobilenet", "lmd-ragged")]
    yield Claim("{:.0f} % for `flea-mobilenet`", (padding[0],))
    yield Claim("and {:.0f} % for `lmd-ragged`", (padding[1],))
    yield Claim("{:.0f} ms in TF32 ({:.1f} times), {:.0f} ms in bf16 ({:.1f} times)",
                (*pair("flea-mobilenet", "tf32"), *pair("flea-mobilenet", "bf16")))  # fmt: skip
    scale = [f"scale-{n}" for n in (10, 30, 100, 300, 1000)]
    times, ratios = zip(*(pair(name, "tf32") for name in scale))
    memory = [speed(name, stacked, "tf32", "peak_mem_mib") / 1024 for name in scale]
    yield Claim("{:.1f}, {:.1f}, {:.1f}, {:.1f}, {:.0f} ms; {:.1f}, {:.1f}, {:.1f}, {:.1f}, {:.1f} times; "
                "{:.1f}, {:.1f}, {:.1f}, {:.1f}, {:.1f} GiB. {:.2f} ms per client",
                (*times, *ratios, *memory, times[3] / 300))  # fmt: skip
    yield Claim("{:.0f} ms, {:.1f} times (bare loop {:.1f} s)",
                (*pair("scale-clients", "tf32"), speed("scale-clients", bare, "tf32") / 1000))  # fmt: skip
    cpu, two = "AMD EPYC, 1 thread", "AMD EPYC, 2 threads"
    yield Claim("{:.2f} times (median of 20 rounds",
                (1 / speed("pfl-cifar", "unskew-loop", "float32", "ratio_to_bare_loop", cpu),))  # fmt: skip
    own = speed("pfl-cifar", "unskew-loop", "float32", device=two)
    yield Claim("{:.2f} and {:.2f} times (40 rounds",
                (speed("pfl-cifar", bare, "float32", device=two) / own,
                 speed("pfl-cifar", "pfl", "float32", device=two) / own))  # fmt: skip
    cold = rows("cold.csv").iloc[0]
    first = runs("speed-rounds.csv", workload="flea-mobilenet", system=stacked, precision="bf16", round=1)["ms"].item()
    yield Claim("{:.1f} s with every kernel compiled anew (`cnn` with a teacher); {:.1f} s",
                (cold["first_round_s"], float(first) / 1000))  # fmt: skip
    yield Claim("{:.1f} s from the start of the command, {:.1f} s", (cold["seconds"], cold["rounds_s"]))
    together = rows("together.csv").set_index("runs")
    yield Claim("{:.1f} s where one takes {:.1f} s, {:.1f} times",
                (together["seconds"][12], together["seconds"][1], together["times_one"][12]))  # fmt: skip
    profile = rows("profile.csv")
    profile = profile[profile["workload"] == "lmd-shards-10"].set_index("what")["ms"]
    yield Claim("({:.1f} of {:.1f} ms of a round are kernels)", (profile["all"], profile["round"]))
    extra = rows("overhead.csv")

    def overhead(method: str, engine: str, device: str) -> tuple[float, float]:
        keep = (extra["method"] == method) & (extra["engine"] == engine) & (extra["device"] == device)
        one = extra[keep & (extra["workload"] == "lmd-shards-10")].iloc[0]
        return one["overhead_percent"], one["spread_percent"]

    yield Claim("FedLMD {:.1f} % (spread {:.1f}) and FedLMD-Tf {:.1f} % ({:.1f}); on one CPU worker",
                (*overhead("fedlmd", "stacked", H200), *overhead("fedlmd-tf", "stacked", H200)))  # fmt: skip
    yield Claim("FedLMD {:.1f} % ({:.1f}) and FedLMD-Tf {:.1f} % ({:.1f}). FedLMD's share",
                (*overhead("fedlmd", "loop", "AMD EPYC"), *overhead("fedlmd-tf", "loop", "AMD EPYC")))  # fmt: skip
    flea, plain = speed("flea-mobilenet-flea", stacked, "bf16"), speed("flea-mobilenet", stacked, "bf16")
    yield Claim("{:.0f} ms where FedAvg takes {:.0f}, {:.2f} times", (flea, plain, flea / plain))
    agreement = rows("agreement.csv").set_index("workload")["apart"]
    names = ("pfl-cifar", "lmd-shards-10", "lmd-ragged", "flea-mobilenet")
    numbers = [f"{agreement[name]:.2e}".replace("e-0", "e-") for name in names]
    yield Claim("{} on `pfl-cifar`, {} on `lmd-shards-10`, {} on `lmd-ragged` and {} on", tuple(numbers))
    ours, plain = (speed("scale-clients", name, "float32", device=cpu) / 1000 for name in ("unskew-loop", bare))
    yield Claim("{:.1f} s against {:.1f} s for 1000 clients", (ours, plain))
    yield Claim("about {:.0f} ms per client", (ours - plain,))
    slow = [speed(w, "unskew-loop", "tf32") / speed(w, bare, "tf32")
            for w in ("lmd-shards-10", "lmd-ragged", "flea-mobilenet", "pfl-cifar")]  # fmt: skip
    yield Claim("{:.2f} times the bare loop's time on `lmd-shards-10`, {:.2f} on `lmd-ragged`", tuple(slow[:2]))
    yield Claim("{:.2f} on `flea-mobilenet`, {:.2f} on `pfl-cifar`", tuple(slow[2:]))


def readme_claims() -> Iterator[Claim]:
    methods = ("fedavg", "fedprox", "moon", "fednova", "fedcurv", "scaffold", "fedrs", "fedntd", "fedlmd")
    values = [number for name in methods for number in spread(FITTED, "cifar10-2", name)]
    yield Claim(f"| unskew |{' {:.2f} ± {:.2f} |' * 9}", tuple(values))
    one = tables().leaks("cifar10").iloc[0]
    yield Claim("iDLG recovered {} of {} CIFAR-10 images", (one["recovered"], one["images"]))
    cold, together = rows("cold.csv").iloc[0], rows("together.csv").set_index("runs")["seconds"]
    yield Claim("takes {:.0f} s from start to finish", (cold["seconds"],))
    yield Claim("take {:.0f} s; one takes {:.0f} s", (together[12], together[1]))
    yield Claim(f"| paper |{' {:.2f} |' * 9}", tuple(printed(FITTED, "cifar10-2", name) for name in methods))
    yield Claim(f"| mean of the last ten rounds |{' {:.2f} |' * 9}",
                tuple(late(FITTED, "cifar10-2", name) for name in methods))  # fmt: skip


CLAIMS = {
    "docs/results.md": (fedlmd_claims, feddyn_claims, flea_claims, leak_claims, precision_claims),
    "docs/audit.md": (audit_claims,),
    "docs/speed.md": (speed_claims,),
    "README.md": (readme_claims,),
}


def words(page: str) -> str:
    """The page's own text on one line: without code blocks, and without what `make pages` writes."""
    text = PAGES[page].read_text()
    for generated in (
        r"```.*?```",
        r"<!-- (methods|speed) -->.*?<!-- end of \1 -->",
        r"<!-- table: .*?<!-- end of table -->",
    ):
        text = re.sub(generated, "", text, flags=re.DOTALL)
    return " ".join(text.split())


@pytest.mark.parametrize("page", CLAIMS)
def test_every_number_is_that_of_the_recorded_rows(page: str) -> None:
    text = words(page)
    wrong = []
    for claim in chain(*(claims() for claims in CLAIMS[page])):
        if (fragment := str(claim)) in text:
            text = text.replace(fragment, " ", 1)
        else:
            wrong.append(fragment)
    assert not wrong, "the page has other numbers, or other words around them:\n" + "\n".join(wrong)
    prose = re.sub(r"`[^`]*`", "", text)
    for pattern in STATED[page]:
        assert re.search(pattern, prose), f"{page} has no {pattern} any more: remove it from STATED"
        prose = re.sub(pattern, "", prose)
    left = [prose[max(found.start() - 40, 0) : found.end() + 20] for found in MEASURED.finditer(prose)]
    assert not left, "numbers without a claim: compute them from results/\n" + "\n".join(left)


@pytest.mark.parametrize("page", ["docs/results.md", "docs/audit.md"])
def test_tables_are_up_to_date(page: str) -> None:
    assert tables().fill(PAGES[page].read_text()) == PAGES[page].read_text(), "run `make pages`"


def test_paired_differences_are_those_of_the_statistics() -> None:
    """The pages' intervals come from the same function as those of comparisons."""
    ours = runs("feddyn/accuracy.csv", method="feddyn")["mean_last10"]
    base = runs("feddyn/accuracy.csv", method="fedavg")["mean_last10"]
    gap = difference(dict(enumerate(ours)), dict(enumerate(base)))
    assert f"+{gap.mean:.2f} [+{gap.low:.2f}, +{gap.high:.2f}]" in PAGES["docs/results.md"].read_text()
