"""The paper's figures and tables, with verdicts on its claims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np

from coldhash.data.sources import read
from coldhash.features.fitting import describe
from coldhash.lab.reproduce import report
from coldhash.lab.reproduce.report import DATASETS, Claim, Line, Panel, Section, method_name
from coldhash.lab.runner import LoggedTies, Results, RunProgress
from coldhash.render import format_table

PAPER = "mfdcf, no level"  # the paper's method, corrected: its claims are judged by this one
METHODS_BY_K = ("mfdcf", PAPER, "cbfknn", "zsr", "dfm", "ddl", "popularity", "ridge")
CLAIMED_KS = (5, 10, 20)
EXTRA_BITS = {"pph": 2}  # added to the setting
VIEWS: tuple[tuple[str, str, LoggedTies], ...] = (  # title, score, ties
    ("Hamming, ties as hits", "hamming", "optimistic"),
    ("Hamming, fair ties", "hamming", "expected"),
    ("real-valued query, fair ties", "real", "expected"),
)
STEPS_OF_ROUND = ("users", "items", "objective")


def statistics_section(data: Path, quick: bool, progress: RunProgress) -> Section:
    """Make Table 1: the sizes of the data sets."""
    rows, same = [], True
    for name, expected in report.PRINTED["statistics"].items():
        facts = describe(read(name, data))
        *counts, sparsity = (facts[each] for each in ("users", "items", "ratings", "sparsity"))
        same &= [*counts, sparsity] == expected
        rows.append([DATASETS[name], *(f"{count:,}" for count in counts), f"{sparsity:.2f}%"])
    table = format_table(["data", "users", "items", "ratings", "sparsity"], rows)
    return Section(
        table, claims=[Claim.of("statistics", same)], title="Table 1: statistics of the data sets"
    )


def accuracy_section(results: Results) -> Section:
    """Make Figure 1 or 2: accuracy for strangers on one data set, by k and by code length."""
    dataset, bits = DATASETS[results.values("dataset")[0]], code_lengths(results)
    by_k = [
        Panel(
            f"{length} bits",
            "k",
            f"{view}\nAccuracy@k" if length == bits[0] else "",
            list(_lines_by_k(results, length, score, ties)),
        )
        for view, score, ties in VIEWS
        for length in bits
    ]
    by_bits = [
        Panel(view, "bits", "Accuracy@10", list(_lines_by_bits(results, score, ties)), "log2")
        for view, score, ties in VIEWS
    ]
    title, note = f"Strangers on {dataset}", "methods without codes are the same at every length"
    figures = {
        "": report.draw(title, by_k, len(bits), note),
        "-bits": report.draw(f"{title}, by code length", by_bits, 3, note, (4.2, 4.2)),
    }
    text = f"{_main_table(results)}\n\n{_ties_table(results)}"
    return Section(text, figures, list(_accuracy_claims(results, dataset)))


def code_lengths(results: Results) -> list[int]:
    """List the code lengths of the paper's method; with a level, MFDCF has no 8 bits."""
    return sorted(cast(list[int], results.where(label=PAPER).values("n_bits")))


def select(results: Results, label: object, bits: int, score: str | None = None) -> Results:
    """Select a method, at a code length and by a score if it has more than one."""
    part = results.where(label=label)
    if len(part.values("n_bits")) > 1:
        part = part.where(n_bits=bits - EXTRA_BITS.get(str(label), 0))
    return part.where(score=score) if score in part.values("score") else part


def select_best_score(results: Results) -> Results:
    """Select the way of scoring with the highest accuracy."""
    return max((part for _, part in results.by("score")), key=lambda part: part.mean("accuracy@10"))


def _lines_by_k(results: Results, bits: int, score: str, ties: LoggedTies) -> Iterator[Line]:
    for label in METHODS_BY_K:
        if (part := select(results, label, bits, score)).rows:
            means = [part.mean(report.metric_name(k, ties)) for k in range(1, 21)]
            yield Line(method_name(label), range(1, 21), means)


def _lines_by_bits(results: Results, score: str, ties: LoggedTies) -> Iterator[Line]:
    for label in results.values("label"):
        points = [
            (length, part.mean(report.metric_name(10, ties)))
            for length in code_lengths(results)
            if (part := select(results, label, length, score)).rows
        ]
        if points:
            yield Line(method_name(label), *zip(*points, strict=True))


def _main_table(results: Results) -> str:
    """Compare every method with MFDCF at 64 bits, or at the longest codes."""
    bits = 64 if 64 in code_lengths(results) else max(code_lengths(results))
    mfdcf = select_best_score(select(results, "mfdcf", bits))
    rows = []
    for label in results.values("label"):
        if (part := select(results, label, bits)).rows:
            part = select_best_score(part)
            name, n_bytes = method_name(label, part.rows[0]["score"]), part.mean("bytes_per_item")
            verdict = "" if label == "mfdcf" else mfdcf.compare(part, 10).verdict
            n_splits = len(part.values("split"))
            rows.append([name, f"{n_bytes:.0f}", n_splits, *report.metric_cells(part), verdict])
    table = format_table(["method", "bytes an item", "splits", *report.METRICS, "MFDCF is"], rows)
    return f"{report.PRINTED['texts']['best'].format(bits=bits)}\n\n{table}"


def _ties_table(results: Results) -> str:
    rows = []
    for label in ("mfdcf", PAPER, "dfm", "ddl"):
        for bits, part in results.where(label=label, score="hamming").by("n_bits"):
            kinds = ("expected", "optimistic", "pessimistic")
            values = [
                report.format_accuracy(part.mean(report.metric_name(10, ties))) for ties in kinds
            ]
            rows.append([method_name(label), bits, *values, f"{part.mean('tied'):.2f}"])
    head = ["by Hamming distance", "bits", "@10, fair", "ties as hits", "as misses", "share tied"]
    return f"{report.PRINTED['texts']['ties']}\n\n{format_table(head, rows)}"


def _accuracy_claims(results: Results, dataset: str) -> Iterator[Claim]:
    rivals = {
        "MFDCF consistently outperforms the hashing methods": ("dfm", "ddl"),
        "MFDCF outperforms the real-valued methods": ("cbfknn", "zsr"),
    }
    scores = {"hamming": "codes on both sides, as in the paper", "real": "real-valued query"}
    for text, labels in rivals.items():
        for score, how in scores.items():
            yield judge_outperforms(results, f"{text} on {dataset} ({how})", labels, score)


def judge_outperforms(results: Results, text: str, labels: tuple[str, ...], score: str) -> Claim:
    """Compare the paper's method with the best scores of rivals at every code length and k."""

    def count_verdicts(ties: LoggedTies) -> tuple[int, int, int]:
        verdicts = [
            select(results, PAPER, bits, score)
            .compare(select_best_score(select(results, label, bits)), k, ties)
            .verdict
            for bits in code_lengths(results)
            for label in labels
            for k in CLAIMED_KS
        ]
        return verdicts.count("ahead"), verdicts.count("tied"), verdicts.count("behind")

    fair, unfair = count_verdicts("expected"), count_verdicts("optimistic")
    verdict: report.ClaimVerdict = "does not hold"
    if fair[2] == 0:
        verdict = "inconclusive" if fair[1] else "holds"
    elif unfair[2] == 0 and unfair[0]:
        verdict = "does not hold under fair ties"
    facts = {"text": text, "paper": method_name(PAPER), "lengths": len(code_lengths(results))}
    rivals, ks = ", ".join(map(method_name, labels)), ", ".join(map(str, CLAIMED_KS))
    return Claim.of("outperforms", verdict, fair=fair, unfair=unfair, rivals=rivals, ks=ks, **facts)


def sensitivity_section(results: Results) -> Section:
    """Make Figure 3: vary one weight at a time over the paper's grid."""
    rows, panels = [], []
    for letter, (setting, _) in report.PRINTED["weights"].items():
        part = Results([row | {"label": PAPER} for row in results.where(label=letter).rows])
        table, made = report.make_curves([(f"{letter} ({setting})", part)], setting, "value", "log")
        rows.append(table)
        panels += made
    note = "MovieLens-1M, 128 bits, fair ties; bands: 95% over users"
    figure = report.draw(f"Sensitivity of {method_name(PAPER)}", panels, 3, note)
    claims = [_weight_claim(results, letter) for letter in report.PRINTED["weights"]]
    return Section("\n\n".join(rows), {"": figure}, claims)


def _weight_claim(results: Results, letter: str) -> Claim:
    setting, better = report.PRINTED["weights"][letter]
    by_value = dict(results.where(label=letter, score="hamming").by(setting))
    text = {"letter": letter, "better": ", ".join(f"{value:g}" for value in better)}
    inside, outside = [v for v in by_value if v in better], [v for v in by_value if v not in better]
    if not inside or not outside:
        return Claim.of("untested", "inconclusive", **text)
    worst = min(inside, key=lambda value: by_value[value].mean("accuracy@10"))
    best = max(outside, key=lambda value: by_value[value].mean("accuracy@10"))
    found = by_value[worst].compare(by_value[best], 10)
    verdicts: dict[str, report.ClaimVerdict] = {"ahead": "holds", "behind": "does not hold"}
    verdict = verdicts.get(found.verdict, "inconclusive")
    return Claim.of("weights", verdict, worst=worst, best=best, found=found, **text)


def convergence_section(results: Results) -> Section:
    """Make Figure 4: the objective by round, and the time of a round by bits and data."""
    panels = [
        Panel("(a) convergence", "round", "objective / that of round 1", []),
        Panel("(b) code length", "bits", "seconds a round", [], "log2", "log"),
        Panel("(c) data", "thousand training ratings", "seconds a round, 32 bits", []),
    ]
    rows, near, fallen = [], 0, 0
    exponents: dict[str, list[float]] = {"bits": [], "thousand training ratings": []}
    for dataset, part in results.by("dataset"):
        name = DATASETS[dataset]
        objective = np.array(part.where(label="convergence").rows[0]["objective"])
        panels[0].lines.append(Line(name, range(1, len(objective) + 1), objective / objective[0]))
        fall = (objective[0] - objective) / (objective[0] - objective[-1])
        near = max(near, 1 + int(np.argmax(objective / objective[-1] <= 1.01)))
        fallen = max(fallen, 1 + int(np.argmax(fall >= 0.99)))
        bits = [(n, _round_seconds(each)) for n, each in part.where(label="bits").by("n_bits")]
        data = [
            (each.rows[0]["train_ratings"] / 1000, _round_seconds(each))
            for _, each in part.where(label="data").by("train_share")
        ]
        for panel, points in zip(panels[1:], (bits, data), strict=True):
            panel.lines.append(Line(name, *zip(*points, strict=True)))
            x, y = np.log(np.array(points)).T
            exponents[panel.x_label].append(float(np.polyfit(x, y, 1)[0]))
            rows += [[name, panel.x_label, f"{n:,.0f}", f"{1000 * t:.1f}"] for n, t in points]
    figure = report.draw(f"{method_name(PAPER)}: convergence and time", panels, 3, "one thread")
    of_bits, of_data = exponents.values()
    claims = [
        Claim.of("convergence", near <= 10, near=near, fallen=fallen),
        Claim.of("linear", max(of_data) <= 1.2, exponents=_list(of_data)),
        Claim.of("quadratic", min(of_bits) >= 1.7, exponents=_list(of_bits)),
    ]
    table = format_table(["data", "against", "value", "ms a round"], rows)
    return Section(table, {"": figure}, claims)


def _list(exponents: list[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in exponents)


def _round_seconds(part: Results) -> float:
    """Compute the median over splits of the time of a round."""
    runs = [(row["fit_parts"], len(row["objective"])) for row in part.rows]
    return float(np.median([sum(each[s] for s in STEPS_OF_ROUND) / n for each, n in runs]))


def training_time_section(results: Results) -> Section:
    """Make Table 2: training times, and their ratios with those of the paper."""
    bits = code_lengths(results)
    seconds = {
        label: {
            n: float(np.median([row["fit_seconds"] for row in each.rows]))
            for n, each in part.by("n_bits")
        }
        for label, part in results.by("label")
    }
    rows = [
        [method_name(label), *(f"{times[n]:.2f}" if n in times else "" for n in bits)]
        for label, times in seconds.items()
    ]
    claims = []
    for label, times in (("ddl", 50), ("dfm", 3)):
        name = method_name(label)
        ratios = np.array([seconds[label][n] / seconds[PAPER][n] for n in bits])
        slow, fast = (report.PRINTED["seconds"][each] for each in (label, "mfdcf"))
        paper = [slow[str(n)] / fast[str(n)] for n in bits]
        cells = [f"{own:.1f} ({printed:.1f})" for own, printed in zip(ratios, paper, strict=True)]
        rows.append([f"{name} / {method_name(PAPER)} (paper's)", *cells])
        facts = {"name": name, "times": times, "paper": method_name(PAPER)}
        low, high = ratios.min(), ratios.max()
        claims.append(Claim.of("time", bool(low >= times), low=low, high=high, **facts))
    return Section(format_table(["method", *(f"{n} bits" for n in bits)], rows), claims=claims)
