"""Results beyond the paper: corrections, given ratings, bytes per item, other protocols."""

from __future__ import annotations

from statistics import fmean
from typing import cast

from coldhash.evaluate import PROTOCOLS
from coldhash.lab.figures import Line, Panel, draw
from coldhash.lab.reproduce.report import (
    DATASETS,
    ORDERS,
    Claim,
    Section,
    format_accuracy,
    make_curves,
    method_name,
    metric_name,
)
from coldhash.lab.results import Results, Row
from coldhash.render import format_table

_METRIC = "accuracy@10"
_SCORES = ("real", "hamming")


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
            panels.append(Panel(title, "correction (see the table)", "Accuracy@10", lines))
        rows.append([name, "", "popularity", format_accuracy(popularity), ""])
    note = "1: as printed; 9: corrected, without level; 10: the default; fair ties"
    return Section(
        "ablation",
        "What each correction of the printed equations brings",
        format_table(["data", "bits", "variant", "real-valued query", "Hamming"], rows),
        [("ablation", draw("From the printed equations to ours", panels, 2, note))],
        [_sign_claim(results)],
    )


def _sign_claim(results: Results) -> Claim:
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
    return Claim(
        "item codes by a sign of the pseudo-inverse lose acceptably little",
        "does not hold" if behind else "inconclusive",
        "; ".join(evidence),
    )


def shots_section(results: Results) -> Section:
    """Show the accuracy by the number of ratings that a stranger gives, in both orders."""
    groups = (
        (f"{DATASETS[dataset]}, {ORDERS[part.rows[-1]['given_by']]}", part)
        for (dataset, _), part in results.groups("dataset", "order")
    )
    table, panels = make_curves(groups, "shots", "ratings given")
    text = (
        "The model is given some ratings of each cold user; the favourites among the rest are the"
        " test, so numbers of ratings given are not tests of the same pairs.\n\n"
    )
    note = "64 bits, fair ties; methods that cannot use ratings stay as they are"
    figure = draw("A stranger gives a few ratings", panels, 2, note)
    return Section("shots", "Accuracy against ratings given", text + table, [("shots", figure)])


def bytes_section(results: Results) -> Section:
    """Show the accuracy by the bytes of an item; a mean, as features differ by split."""
    rows = []
    for _, part in results.groups("dataset", "label", "settings"):
        n_bytes = round(fmean(map(_item_bytes, part.rows)), 1)
        rows += [row | {"bytes": n_bytes} for row in part.rows]
    groups = ((DATASETS[dataset], part) for dataset, part in Results(rows).by("dataset"))
    table, panels = make_curves(groups, "bytes", "bytes an item", "log")
    figure = draw("What an item costs", panels, 2, "strangers, fair ties")
    return Section("bytes", "Accuracy against bytes per item", table, [("bytes", figure)])


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
            each.mean(metric_name(10, PROTOCOLS[str(protocol)].ties))
            for protocol, each in part.where(oracle=False).by("protocol")
        ]
        leak = part.where(oracle=True).mean(_METRIC)
        name = method_name(f"{label}{length}", score)
        rows.append([DATASETS[dataset], name, *map(format_accuracy, (*means, leak))])
    protocols = results.where(oracle=False).values("protocol")
    text = (
        "`sampled-1000` and `full` (which is also Du et al.'s) count ties fairly, `ddl` counts them"
        " as hits, `mdcf` averages users. The last column is sampled-1000 with the hidden ratings"
        " given to the model, as in works that build test users' features from all their ratings."
    )
    table = format_table(["data", "Accuracy@10", *protocols, "with the oracle (a leak)"], rows)
    return Section("protocols", "The same models under other protocols", f"{text}\n\n{table}")
