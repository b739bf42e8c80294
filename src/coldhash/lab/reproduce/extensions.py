"""Results beyond the paper: corrections, given ratings, bytes, protocols, other data, new items."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import cast

import numpy as np

import coldhash as ch
from coldhash.baselines.shared import favourite_matrix
from coldhash.data.sources import read
from coldhash.evaluate import PROTOCOLS, UserHits
from coldhash.evaluate.compare import arrange, is_significant
from coldhash.features.fitting import fit_content
from coldhash.lab import asking
from coldhash.lab.cold_items import choose_peers, item_accuracy_at, model_scores
from coldhash.lab.reproduce import report
from coldhash.lab.reproduce.report import DATASETS, Line, Section, format_accuracy, method_name
from coldhash.lab.runner import Results, Row, RunProgress
from coldhash.render import format_table
from coldhash.update import add_items

_METRIC = "accuracy@10"
_SCORES = ("real", "hamming")
_DIAL = "dial"  # the label of the runs that vary `popularity`
_NEW_ITEM_DATASETS = ("ml-1m", "book-crossing", "complete-journey")
_MAX_USERS = 1000  # whose favourites among new items are looked for


def ablation_section(results: Results) -> Section:
    """Show the corrections of the printed equations, one after the other."""
    rows, panels = [], []
    for dataset, of_data in results.by("dataset"):
        name, popularity = DATASETS[dataset], of_data.where(label="popularity").mean(_METRIC)
        for bits in sorted(cast(list[int], of_data.where(model="mfdcf").values("n_bits"))):
            found = {
                label: [part.where(score=score).mean(_METRIC) for score in _SCORES]
                for label, part in of_data.where(n_bits=bits).by("label")
            }
            rows += [[name, bits, label, *map(format_accuracy, found[label])] for label in found]
            steps = [values for label, values in found.items() if str(label)[0].isdigit()]
            numbers = range(1, len(steps) + 1)
            lines = [
                Line(method_name("mfdcf", score), numbers, values)
                for score, values in zip(_SCORES, zip(*steps, strict=True), strict=True)
            ]
            lines.append(Line("popularity", numbers, [popularity] * len(steps)))
            title = f"{name}, {bits} bits"
            panels.append(report.Panel(title, "correction (see the table)", "Accuracy@10", lines))
        rows.append([name, "", "popularity", format_accuracy(popularity), ""])
    note = "1: as printed; 9: corrected, without level; 10: the default; fair ties"
    table = format_table(["data", "bits", "variant", "real-valued query", "Hamming"], rows)
    figure = report.draw("From the printed equations to ours", panels, 2, note)
    return Section(table, {"": figure}, [_sign_claim(results)])


def _sign_claim(results: Results) -> report.Claim:
    """Judge whether the sign of a pseudo-inverse can replace bit-wise optimisation."""
    evidence, behind = [], True
    for dataset, of_data in results.by("dataset"):
        longest = max(cast(list[int], of_data.where(model="mfdcf").values("n_bits")))
        part = of_data.where(n_bits=longest, score="hamming")
        signs = part.where(label="MFDCF, no level, with items by pinv-sign")
        descent = part.where(label="9 + ratings weigh by their noise, codes less: MFDCF, no level")
        found = signs.compare(descent, 10)
        behind &= found.verdict == "behind"
        accuracy = format_accuracy(descent.mean(_METRIC))
        evidence.append(f"{DATASETS[dataset]}: {found.difference:+.4f} of {accuracy} (Hamming)")
    verdict: report.ClaimVerdict = "does not hold" if behind else "inconclusive"
    return report.Claim.of("signs", verdict, found="; ".join(evidence))


def shots_section(results: Results) -> Section:
    """Show the accuracy by the number of ratings that a stranger gives, in both orders."""
    groups = (
        (f"{DATASETS[dataset]}, {report.ORDERS[part.rows[-1]['given_by']]}", part)
        for (dataset, _), part in results.groups("dataset", "order")
    )
    table, panels = report.make_curves(groups, "shots", "ratings given")
    note = "64 bits, fair ties; methods that cannot use ratings stay as they are"
    return Section(table, {"": report.draw("A stranger gives a few ratings", panels, 2, note)})


def bytes_section(results: Results) -> Section:
    """Show the accuracy by the bytes of an item; a mean, as features differ by split."""
    rows = []
    for _, part in results.groups("dataset", "label", "settings"):
        n_bytes = round(fmean(map(_item_bytes, part.rows)), 1)
        rows += [row | {"bytes": n_bytes} for row in part.rows]
    groups = ((DATASETS[dataset], part) for dataset, part in Results(rows).by("dataset"))
    table, panels = report.make_curves(groups, "bytes", "bytes an item", "log")
    return Section(
        table, {"": report.draw("What an item costs", panels, 2, "strangers, fair ties")}
    )


def _item_bytes(row: Row) -> float:
    """Return the bytes of an item; numbers of few bits count as packed."""
    if row["model"] == "mf":
        return float(row["n_factors"] * row.get("bits_per_factor", 32) / 8)
    return float(row["bytes_per_item"])


def protocols_section(results: Results) -> Section:
    """Judge the same models by the protocols of the literature."""
    rows = []
    for (dataset, label, bits, score), part in results.groups(
        "dataset", "label", "n_bits", "score"
    ):
        length = f", {bits} bits" if str(label).startswith("mfdcf") else ""
        means = [
            each.mean(report.metric_name(10, PROTOCOLS[str(protocol)].ties))
            for protocol, each in part.where(oracle=False).by("protocol")
        ]
        leak = part.where(oracle=True).mean(_METRIC)
        name = method_name(f"{label}{length}", score)
        rows.append([DATASETS[dataset], name, *map(format_accuracy, (*means, leak))])
    protocols = results.where(oracle=False).values("protocol")
    head = ["data", "Accuracy@10", *protocols, "with the oracle (a leak)"]
    return Section(format_table(head, rows))


@dataclass(frozen=True)
class Cell:
    """MFDCF against popularity at one k, splits pooled.

    `p` is the chance of a difference so far below 0 if there were none: a normal approximation,
    in which the pairs of a user, in all splits, are one draw.
    """

    data: str
    shots: int
    score: str
    k: int
    accuracy: float
    popularity: float
    p: float

    @property
    def ratio(self) -> float:
        """Accuracy in terms of that of popularity."""
        return self.accuracy / self.popularity


def anywhere_section(results: Results) -> Section:
    """Compare with popularity on every data set, and show what the popularity dial does."""
    matrix = Results([row for row in results.rows if row["label"] != _DIAL])
    table, panels = report.make_curves(by_data(matrix), "shots", "events given")
    figures = {"": report.draw("Against popularity", panels, 4, "64 bits, fair ties")}
    parts = [_summarise(matrix), _describe_cells(list(make_cells(matrix))), table]
    dial = Results([row | {"label": "mfdcf"} for row in results.where(label=_DIAL).rows])
    if dial.rows:
        groups = [(DATASETS[dataset], part) for dataset, part in dial.by("dataset")]
        table, _ = report.make_curves(groups, "popularity", "popularity")
        parts.append(f"`popularity` at request time, strangers:\n\n{table}")
        lines = []
        for score, part in dial.by("score"):
            coverage = [100 * each.mean("coverage@10") for _, each in part.by("popularity")]
            accuracy = [each.mean("accuracy@10") for _, each in part.by("popularity")]
            lines.append(Line(method_name("mfdcf", score), coverage, accuracy))
        panel = report.Panel(groups[0][0], "coverage@10 in percent", "Accuracy@10", lines)
        note = "popularity from 0 (right) to 1 (left)"
        figures["-dial"] = report.draw("Accuracy against coverage", [panel], 1, note, (6.0, 3.4))
    return Section("\n\n".join(parts), figures)


def _summarise(results: Results) -> str:
    """Tabulate Accuracy@10 of the real-valued query, and its ratio to popularity."""
    rows = []
    for name, of_data in by_data(results.where(score="real")):
        ours, popular = (
            [part.mean("accuracy@10") for _, part in of_data.where(label=label).by("shots")]
            for label in ("mfdcf", "popularity")
        )
        cells = [f"{a:.3f} ({a / b:.2f})".lstrip("0") for a, b in zip(ours, popular, strict=True)]
        given = report.ORDERS[of_data.rows[-1]["given_by"]]
        rows.append([name, given, f"{popular[0]:.3f}".lstrip("0"), *cells])
    counts = [f"{n} given" for n in results.values("shots")]
    head = ["data", "events given", f"popularity, {counts[0]}", *counts]
    return f"{report.PRINTED['texts']['anywhere']}\n\n{format_table(head, rows)}"


def by_data(results: Results) -> Iterator[tuple[str, Results]]:
    """Iterate over data sets, whole and thinned."""
    for dataset, of_data in results.by("dataset"):
        for n, part in of_data.by("user_ratings"):
            yield DATASETS[dataset] + (f", {n} a user" if n else ""), part


def make_cells(results: Results) -> Iterator[Cell]:
    """Compare MFDCF with popularity for every data set, number of events, score and k."""
    for data, of_data in by_data(results):
        for n, part in of_data.by("shots"):
            control = part.where(label="popularity")
            for score in _SCORES:
                ours = part.where(label="mfdcf", score=score)
                for k in report.KS:
                    yield make_cell(data, cast(int, n), score, k, ours.hits(k), control.hits(k))


def make_cell(
    data: str, shots: int, score: str, k: int, ours: Sequence[UserHits], popular: Sequence[UserHits]
) -> Cell:
    """Compute the pooled accuracies and p of their difference over users."""
    (hits, pairs_of), (control, _) = (arrange(side).sum(axis=2) for side in (ours, popular))
    own_hits, control_hits, pairs = hits.sum(), control.sum(), pairs_of.sum()
    difference = (own_hits - control_hits) / pairs
    residuals = hits - control - difference * pairs_of
    error = math.sqrt(residuals @ residuals) / pairs
    p = 0.5 * math.erfc(-difference / (error * math.sqrt(2))) if error else 1.0
    return Cell(data, shots, score, k, own_hits / pairs, control_hits / pairs, p)


def find_below(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells significantly below popularity, by Holm's rule over all of them."""
    ordered = sorted(cells, key=lambda cell: cell.p)
    below = is_significant([cell.p for cell in ordered])
    return [cell for cell, is_below in zip(ordered, below, strict=True) if is_below]


def geometric_mean(cells: Sequence[Cell]) -> float:
    """Average the ratios to popularity."""
    return math.exp(np.mean([math.log(max(cell.ratio, 1e-9)) for cell in cells]))


def _describe_cells(cells: Sequence[Cell]) -> str:
    """Return a sentence on where MFDCF is significantly below popularity."""
    below, lines = find_below(cells), []
    for score in _SCORES:
        own = [cell for cell in cells if cell.score == score]
        named = [f"{c.data}, {c.shots} given, @{c.k}" for c in below if c.score == score]
        lines.append(
            f"- {method_name('mfdcf', score)}: {len(named)} of {len(own)} cells significantly below"
            f" popularity{': ' if named else ''}{'; '.join(named)}. Geometric mean of the ratios:"
            f" {geometric_mean(own):.3f}."
        )
    lines += ["", report.PRINTED["texts"]["cells"]]
    return "\n".join(lines)


def asking_section(data: Path, quick: bool, progress: RunProgress) -> Section:
    """Ask the cold users of every data set in every way."""
    rows, plots = [], []
    names = ["ml-100k"] if quick else list(asking.PROTOCOLS)
    for done, name in enumerate(names, 1):
        train, cold = ch.split_cold_users(read(name, data), seed=0, described=True)
        panel = asking.Panel.of(ch.MFDCF().fit(train), train, cold, asking.PROTOCOLS[name])
        nobody, _ = panel.judge(np.zeros(panel.ratings.shape, dtype=bool))
        rows.append([DATASETS[name], "nobody asked", *[format_accuracy(nobody)] * 4, ""])
        lines = []
        for label, pick in asking.strategies(panel):
            values, shares = zip(*panel.ask(pick).values(), strict=True)
            rows.append([DATASETS[name], label, *map(format_accuracy, values), f"{shares[-1]:.2f}"])
            lines.append(Line(label, [0, *asking.N_QUESTIONS], [nobody, *values]))
        plots.append(report.Panel(DATASETS[name], "questions asked", "Accuracy@10", lines))
        progress(done, len(names), name)
    head = ["data", "questions by", *(f"after {n}" for n in asking.N_QUESTIONS), "known"]
    figure = report.draw("Accuracy after questions", plots, len(plots), "64 bits, one split")
    text = f"{report.PRINTED['texts']['ask']}\n\n{format_table(head, rows)}"
    return Section(text, {"": figure}, title="What to ask a stranger")


def new_items_section(data: Path, quick: bool, progress: RunProgress) -> Section:
    """Hold out items of every data set, and rank them for the users who know the others."""
    names, n_splits = (_NEW_ITEM_DATASETS[:1], 1) if quick else (_NEW_ITEM_DATASETS, 3)
    rows = []
    for done, name in enumerate(names, 1):
        source = read(name, data)
        source = source.of_items(np.flatnonzero(source.ratings.per_item))
        found = [_judge_new_items(source, seed) for seed in range(n_splits)]
        for method in found[0]:
            mean = np.mean([each[method] for each in found])
            rows.append([DATASETS[name], method, format_accuracy(float(mean))])
        progress(done, len(names), name)
    text = report.PRINTED["texts"]["new-items"].format(n_splits=n_splits)
    table = format_table(["data", "method", "Accuracy@10"], rows)
    return Section(f"{text}\n\n{table}", title="Items that nobody has rated")


def _judge_new_items(data: ch.Dataset, seed: int) -> dict[str, float]:
    train, cold = ch.split_cold_items(data, 0.1, seed)
    table = cold.items.append_column("item_id", cold.ratings.items.values)
    model, _ = add_items(ch.MFDCF().fit(train, seed=seed), table)
    users = np.flatnonzero(np.diff(favourite_matrix(cold).indptr))
    users = np.sort(np.random.default_rng(seed).permutation(users)[:_MAX_USERS])
    known, new = train.of_users(users), cold.of_users(users)
    ids = list(new.ratings.users), list(new.ratings.items)
    scores = {
        method_name("mfdcf", score): model_scores(model, *ids, by_code=score == "hamming")
        for score in ("real", "hamming")
    }
    encoder = fit_content(train.plan, train.items)
    content, wanted = (encoder.apply(each.items, len(each.ratings.items)) for each in (train, cold))
    for name, peer in choose_peers(known, seed).items():
        scores[name] = peer(favourite_matrix(known), content, wanted)
    return {name: item_accuracy_at(10, each, new) for name, each in scores.items()}
