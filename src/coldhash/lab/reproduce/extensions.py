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
    by_method,
    format_accuracy,
    method_name,
    metric_name,
    select_best_score,
)
from coldhash.lab.results_log import Results, Row
from coldhash.render import format_table

_METRIC = "accuracy@10"


def ablation_section(results: Results) -> Section:
    """Show the corrections of the printed equations, one after the other."""
    rows, panels = [], []
    for dataset, of_data in results.by("dataset"):
        name, popularity = DATASETS[dataset], of_data.where(label="popularity").mean(_METRIC)
        for bits in sorted(cast(list[int], of_data.where(model="mfdcf").values("n_bits"))):
            steps = of_data.where(n_bits=bits)
            lines, n_steps = [], 0
            for score in ("real", "hamming"):
                values = [
                    part.mean(_METRIC)
                    for label, part in steps.where(score=score).by("label")
                    if str(label)[0].isdigit()
                ]
                n_steps = len(values)
                lines.append(Line(method_name("mfdcf", score), range(1, n_steps + 1), values))
            lines.append(Line("popularity", [1, n_steps], [popularity] * 2))
            title = f"{name}, {bits} bits"
            panels.append(Panel(title, "correction (see the table)", "Accuracy@10", lines))
            for label, part in steps.by("label"):
                scores = [part.where(score=score).mean(_METRIC) for score in ("real", "hamming")]
                rows.append([name, bits, label, *map(format_accuracy, scores)])
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
    """Show the accuracy by the number of ratings that a stranger gives."""
    panels, rows = [], []
    for dataset, of_data in results.by("dataset"):
        lines = []
        for name, part in by_method(of_data):
            means = [each.mean(_METRIC) for _, each in part.by("shots")]
            lines.append(Line(name, cast(list[int], part.values("shots")), means))
            given = ORDERS[part.rows[-1]["given_by"]]
            rows.append([DATASETS[dataset], name, given, *map(format_accuracy, means)])
        title = f"{DATASETS[dataset]}, {ORDERS[of_data.rows[-1]['given_by']]}"
        panels.append(Panel(title, "ratings given", "Accuracy@10", lines))
    head = ["data", "method", "chosen", *(f"{n} given" for n in results.values("shots"))]
    text = (
        "The model is given the first ratings of each cold user; the favourites among the rest"
        " are the test, so the columns are not tests of the same pairs.\n\n"
    )
    note = "64 bits, fair ties; methods that cannot use ratings stay as they are"
    return Section(
        "shots",
        "Accuracy against ratings given",
        text + format_table(head, rows),
        [("shots", draw("A stranger gives a few ratings", panels, 2, note))],
    )


def bytes_section(results: Results) -> Section:
    """Show the accuracy by the bytes of an item."""
    panels, rows = [], []
    for dataset, of_data in results.by("dataset"):
        curves = {}
        for label, of_label in of_data.by("label"):
            name, points = method_name(label), sorted(_accuracy_by_cost(of_label))
            curves[name] = tuple(zip(*points, strict=True))
            rows += [[DATASETS[dataset], name, f"{x:g}", format_accuracy(y)] for x, y in points]
        widest = max(x for costs, _ in curves.values() for x in costs)
        if "popularity" in curves:
            curves["popularity"] = ((1, widest), curves["popularity"][1][:1] * 2)
        lines = [Line(name, *curve) for name, curve in curves.items()]
        panels.append(Panel(DATASETS[dataset], "bytes an item", "Accuracy@10", lines, "log"))
    return Section(
        "bytes",
        "Accuracy against bytes per item",
        format_table(["data", "method", "bytes an item", "Accuracy@10"], rows),
        [("bytes", draw("What an item costs", panels, 2, "strangers, fair ties"))],
    )


def _accuracy_by_cost(of_label: Results) -> list[tuple[float, float]]:
    """Return bytes and accuracy by settings; bytes are a mean, as features differ by split."""
    grouped: dict[tuple[object, object], list[Row]] = {}
    for row in of_label.rows:
        grouped.setdefault((row["n_bits"], row.get("n_factors")), []).append(row)
    return [
        (fmean(map(_item_bytes, rows)), select_best_score(Results(rows)).mean(_METRIC))
        for rows in grouped.values()
    ]


def _item_bytes(row: Row) -> float:
    """Return the bytes of an item; numbers of few bits count as packed."""
    if row["model"] == "mf":
        return float(row["n_factors"] * row.get("bits_per_factor", 32) / 8)
    return float(row["bytes_per_item"])


def protocols_section(results: Results) -> Section:
    """Judge the same models by the protocols of the literature."""
    honest = results.where(oracle=False)
    head = ["Accuracy@10", *honest.values("protocol"), "with the oracle (a leak)"]
    parts = [
        "`sampled-1000` and `full` (which is also Du et al.'s) count ties fairly, `ddl` counts them"
        " as hits, `mdcf` averages users. The last column is sampled-1000 with the hidden ratings"
        " given to the model, as in works that build test users' features from all their ratings."
    ]
    for dataset, of_data in results.by("dataset"):
        rows = []
        for label, of_label in of_data.by("label"):
            for bits, of_bits in of_label.by("n_bits"):
                for score, part in of_bits.by("score"):
                    length = f", {bits} bits" if str(label).startswith("mfdcf") else ""
                    name = method_name(f"{label}{length}", score)
                    rows.append([name, *_protocol_cells(part)])
        parts.append(f"**{DATASETS[dataset]}**\n\n{format_table(head, rows)}")
    return Section("protocols", "The same models under other protocols", "\n\n".join(parts))


def _protocol_cells(part: Results) -> list[str]:
    means = [
        each.mean(metric_name(10, PROTOCOLS[str(protocol)].ties))
        for protocol, each in part.where(oracle=False).by("protocol")
    ]
    leak = part.where(oracle=True, protocol="sampled-1000").mean(_METRIC)
    return [format_accuracy(value) for value in (*means, leak)]
