"""Figure 4 and Table 2: convergence, and what training costs."""

from __future__ import annotations

import numpy as np

from coldhash.lab.figures import Line, Panel, draw
from coldhash.lab.reproduce.sections import DATASETS, Claim, Section, Verdict, shown, table
from coldhash.lab.results import Results

IN_A_ROUND = ("users", "maps", "items", "objective")
PAPER_SECONDS = {  # its Table 2: an i7-6700, presumably Matlab
    "ddl": {8: 3148.86, 16: 3206.09, 32: 3289.81, 64: 3372.19, 128: 3855.81},
    "dfm": {8: 166.55, 16: 170.86, 32: 172.75, 64: 196.45, 128: 246.5},
    "mfdcf": {8: 58.87, 16: 60.49, 32: 62.55, 64: 68.41, 128: 90.17},
}


def convergence_section(results: Results) -> Section:
    """Show how the objective falls, and how a round's time grows."""
    curves, rows = [], []
    by_bits: list[Line] = []
    by_data: list[Line] = []
    exponents: dict[str, float] = {}
    near, fallen = [], []
    for dataset, part in results.by("dataset"):
        name = DATASETS[dataset]
        objective = part.where(label="convergence").rows[0]["objective"]
        curves.append(Line(name, range(1, len(objective) + 1), np.divide(objective, objective[0])))
        near.append(_first_round(np.divide(objective, objective[-1]) <= 1.01))
        fall = np.subtract(objective[0], objective) / (objective[0] - objective[-1])
        fallen.append(_first_round(fall >= 0.99))
        bits = [(n, _seconds_a_round(each)) for n, each in part.where(label="bits").by("n_bits")]
        data = [
            (each.rows[0]["train_ratings"] / 1000, _seconds_a_round(each))
            for _, each in part.where(label="data").by("train_share")
        ]
        for what, points, lines in (("bits", bits, by_bits), ("thousand ratings", data, by_data)):
            lines.append(Line(name, *zip(*points, strict=True)))
            exponents[f"{name}, {what}"] = _exponent(points)
            rows += [[name, what, f"{x:,.0f}", f"{seconds * 1000:.1f}"] for x, seconds in points]
    panels = [
        Panel("(a) convergence", "round", "objective / that of round 1", curves),
        Panel("(b) code length", "bits", "seconds a round", by_bits, "log2", "log"),
        Panel("(c) data", "thousand training ratings", "seconds a round, 32 bits", by_data),
    ]
    text = table(["data", "against", "value", "ms a round"], rows) + "\n\nFitted exponents: "
    text += "; ".join(f"{name}: {value:.2f}" for name, value in exponents.items()) + "."
    return Section(
        "figure-4",
        "Figure 4: convergence and cost of a round",
        text,
        [("figure-4", draw("MFDCF: convergence and time", panels, 3, "one thread"))],
        _claims(exponents, max(near), max(fallen)),
    )


def _claims(exponents: dict[str, float], near: int, fallen: int) -> list[Claim]:
    bits = [value for name, value in exponents.items() if name.endswith("bits")]
    data = [value for name, value in exponents.items() if name.endswith("ratings")]
    fast: Verdict = "holds" if near <= 10 else "does not hold"
    linear: Verdict = "holds" if max(data) <= 1.2 else "does not hold"
    square: Verdict = "holds" if min(bits) >= 1.7 else "does not hold"
    shown_bits = ", ".join(f"{value:.2f}" for value in bits)
    return [
        Claim(
            "MFDCF converges very fast",
            fast,
            f"the objective is within 1% of its value after 20 rounds from round {near} on, and has"
            f" made 99% of its fall by round {fallen}",
        ),
        Claim(
            "the time of a round grows linearly with the data",
            linear,
            f"exponents {', '.join(f'{value:.2f}' for value in data)}: at most linear; part of a"
            " round costs the same however few users there are",
        ),
        Claim(
            "the time of a round grows quadratically with the code length",
            square,
            f"exponents {shown_bits}: at these lengths the terms linear in bits outweigh the"
            " quadratic ones, which is cheaper than claimed",
        ),
    ]


def _first_round(reached: np.ndarray) -> int:
    return int(np.argmax(reached)) + 1


def _seconds_a_round(part: Results) -> float:
    """Give the median over splits of the time in the steps, per round."""
    return float(
        np.median(
            [
                sum(row["fit_parts"][name] for name in IN_A_ROUND) / len(row["objective"])
                for row in part.rows
            ]
        )
    )


def _exponent(points: list[tuple[float, float]]) -> float:
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def training_time_section(results: Results) -> Section:
    """Compare training times, and the ratios with the paper's."""
    bits = sorted(results.values("n_bits"))
    seconds = {
        label: {n: _median_fit(part.where(n_bits=n)) for n in bits}
        for label, part in results.by("label")
    }
    rows = [
        [shown(label), *(f"{seconds[label][n]:.2f}" for n in bits)]
        for label in ("ddl", "dfm", "mfdcf")
    ]
    rows += [
        [f"{shown(label)} / MFDCF (paper's)", *(_ratio(seconds, label, n) for n in bits)]
        for label in ("ddl", "dfm")
    ]
    title = "Table 2: training time"
    text = "Seconds, one thread, median over splits:\n\n" + table(
        ["method", *(f"{n} bits" for n in bits)], rows
    )
    return Section(
        "table-2", title, text, (), [_faster(seconds, "ddl", 50), _faster(seconds, "dfm", 3)]
    )


def _median_fit(part: Results) -> float:
    return float(np.median([row["fit_seconds"] for row in part.rows]))


def _ratio(seconds: dict[str, dict[int, float]], label: str, n: int) -> str:
    paper = PAPER_SECONDS[label][n] / PAPER_SECONDS["mfdcf"][n]
    return f"{seconds[label][n] / seconds['mfdcf'][n]:.1f} ({paper:.1f})"


def _faster(seconds: dict[str, dict[int, float]], label: str, times: float) -> Claim:
    ratios = [seconds[label][n] / seconds["mfdcf"][n] for n in seconds[label]]
    verdict: Verdict = "holds" if min(ratios) >= times else "does not hold"
    return Claim(
        f"MFDCF trains about {times:g} times as fast as {shown(label)}",
        verdict,
        f"{min(ratios):.1f} to {max(ratios):.1f} times as fast when both are written with the same"
        " care (compiled kernels, one thread)",
    )
