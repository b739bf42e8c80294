"""Figures 1 and 2: accuracy for strangers, by k and by code length, under fair and unfair ties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from coldhash.evaluate.metrics import Ties as AnyTies
from coldhash.lab.figures import Line, Panel, draw
from coldhash.lab.reproduce.sections import DATASETS, Claim, Section, Verdict, figure, shown, table
from coldhash.lab.results import Results

Ties = Literal["expected", "optimistic"]

PAPER = ("mfdcf", "cbfknn", "zsr", "dfm", "ddl")
CONTROLS = ("popularity", "ridge")
K_AXIS = tuple(range(1, 21))
CLAIMED_KS = (5, 10, 20)
EXTRA_BITS = {"pph": 2}  # bits that come on top of the setting
VIEWS: tuple[tuple[str, str, Ties], ...] = (  # what it is called, score, ties
    ("Hamming, ties as hits", "hamming", "optimistic"),
    ("Hamming, fair ties", "hamming", "expected"),
    ("real-valued query, fair ties", "real", "expected"),
)


def accuracy_section(name: str, results: Results) -> Section:
    """Show how every method does on one data set, and judge the paper's claims about it."""
    dataset = DATASETS[results.values("dataset")[0]]
    bits = code_lengths(results)
    n_splits = len(results.values("split"))
    note = (
        f"{n_splits} split(s); a favourite among 1,000 unrated items. Methods without codes are"
        " the same in every row."
    )
    figures = [
        (name, draw(f"Strangers on {dataset}", _by_k(results, bits), len(bits), note)),
        (
            f"{name}-bits",
            draw(f"Strangers on {dataset}, by code length", _by_bits(results), 3, note, (4.2, 4.2)),
        ),
    ]
    text = "\n\n".join([_intro(results), main_table(results), _ties_table(results)])
    title = f"{name.replace('-', ' ').capitalize()}: {dataset}"
    return Section(name, title, text, figures, list(_claims(results, dataset)))


def code_lengths(results: Results) -> list[int]:
    """List the code lengths that MFDCF was run with."""
    return sorted(results.where(label="mfdcf").values("n_bits"))


def at_bits(results: Results, label: str, bits: int) -> Results:
    """Take a method at a code length; one without codes is the same at every length."""
    of_label = results.where(label=label)
    lengths = of_label.values("n_bits")
    if len(lengths) < 2:
        return of_label
    return of_label.where(n_bits=bits - EXTRA_BITS.get(label, 0))


def scored(results: Results, score: str) -> Results:
    """Take a way to score; a method without codes has one only."""
    return results.where(score=score) if score in results.values("score") else results


def best_scored(results: Results) -> Results:
    """Take the way to score that does the method the most credit."""
    return max((part for _, part in results.by("score")), key=lambda part: part.mean("accuracy@10"))


def metric(k: int, ties: AnyTies = "expected") -> str:
    """Name the figure."""
    return f"accuracy@{k}" if ties == "expected" else f"accuracy@{k} {ties}"


def _by_k(results: Results, bits: list[int]) -> list[Panel]:
    panels = []
    for view, score, ties in VIEWS:
        for length in bits:
            lines = []
            for label in (*PAPER, *CONTROLS):
                part = scored(at_bits(results, label, length), score)
                lines.append(
                    Line(shown(label), K_AXIS, [part.mean(metric(k, ties)) for k in K_AXIS])
                )
            y_label = f"{view}\nAccuracy@k" if length == bits[0] else ""
            panels.append(Panel(f"{length} bits", "k", y_label, lines))
    return panels


def _by_bits(results: Results) -> list[Panel]:
    bits = code_lengths(results)
    panels = []
    for view, score, ties in VIEWS:
        lines = []
        for label in results.values("label"):
            points = [
                (length, scored(part, score).mean(metric(10, ties)))
                for length in bits
                if (part := at_bits(results, label, length)).rows
            ]
            if points:
                lines.append(Line(shown(label), *zip(*points, strict=True)))
        panels.append(Panel(view, "bits", "Accuracy@10", lines, x_scale="log2"))
    return panels


def _intro(results: Results) -> str:
    counts = {label: len(part.values("split")) for label, part in results.by("label")}
    most = max(counts.values())
    text = (
        f"{most} random split(s), 20% of the users cold, nothing known of them but their features;"
        " every favourite ranked among 1,000 items that its user has not rated, the same for all"
        " methods; mean over splits, interval over users (95%, bootstrap)."
    )
    fewer = [
        f"{n} for {', '.join(shown(label) for label, count in counts.items() if count == n)}"
        for n in sorted(set(counts.values()) - {most}, reverse=True)
    ]
    return text + (f" Fewer splits: {'; '.join(fewer)}." if fewer else "")


def main_table(results: Results) -> str:
    """Give every method at its longest usual code beside MFDCF, with paired comparisons."""
    bits = 64 if 64 in code_lengths(results) else max(code_lengths(results))
    ours = best_scored(at_bits(results, "mfdcf", bits))
    rows = []
    for label in results.values("label"):
        part = at_bits(results, label, bits)
        if not part.rows:
            continue
        part = best_scored(part)
        sure = part.interval(10)
        versus = "" if label == "mfdcf" else ours.against(part, 10).verdict
        rows.append(
            [
                shown(label) + (", Hamming" if part.values("score") == ["hamming"] else ""),
                f"{part.mean('bytes_per_item'):.0f}",
                *(figure(part.mean(metric(k))) for k in (5, 10, 20, 50)),
                f"{figure(sure.low)} to {figure(sure.high)}",
                figure(part.mean("ndcg@10")),
                f"{part.mean('coverage@10'):.2f}",
                f"{part.mean('distinct_lists@10'):.2f}",
                versus,
            ]
        )
    head = ["method", "bytes an item", "Accuracy@5", "@10", "@20", "@50", "@10 between", "NDCG@10",
            "coverage", "distinct lists", "MFDCF is"]  # fmt: skip
    return (
        f"Codes of {bits} bits, each method scored in the way that suits it best (real-valued query"
        " if not said otherwise):\n\n" + table(head, rows)
    )


def _ties_table(results: Results) -> str:
    """Show what ties do to Hamming distances, by code length."""
    rows = []
    for label in ("mfdcf", "dfm", "ddl"):
        for bits in code_lengths(results):
            part = at_bits(results, label, bits).where(score="hamming")
            if part.rows:
                values = [
                    part.mean(f"accuracy@10{ties}") for ties in ("", " optimistic", " pessimistic")
                ]
                rows.append(
                    [shown(label), str(bits), *map(figure, values), f"{part.mean('tied'):.2f}"]
                )
    head = [
        "by Hamming distance",
        "bits",
        "@10, fair",
        "ties as hits",
        "ties as misses",
        "share tied",
    ]
    return "What ties do to codes on both sides:\n\n" + table(head, rows)


def _claims(results: Results, dataset: str) -> Iterator[Claim]:
    rivals = {
        "MFDCF consistently outperforms the hashing methods": ("dfm", "ddl"),
        "MFDCF outperforms the real-valued methods": ("cbfknn", "zsr"),
    }
    for text, labels in rivals.items():
        for score, how in (
            ("hamming", "codes on both sides, as in the paper"),
            ("real", "real-valued query, ours"),
        ):
            yield _outperforms(results, f"{text} on {dataset} ({how})", labels, score)


def _outperforms(results: Results, text: str, labels: tuple[str, ...], score: str) -> Claim:
    """Compare at every code length and k; rivals are taken at their best."""
    counts = {}
    for ties in ("expected", "optimistic"):
        verdicts = [
            scored(at_bits(results, "mfdcf", bits), score)
            .against(best_scored(at_bits(results, label, bits)), k, ties)
            .verdict
            for bits in code_lengths(results)
            for label in labels
            for k in CLAIMED_KS
        ]
        counts[ties] = {name: verdicts.count(name) for name in ("ahead", "level", "behind")}
    fair, unfair = counts["expected"], counts["optimistic"]
    verdict: Verdict
    if fair["behind"] == fair["level"] == 0:
        verdict = "holds"
    elif fair["behind"] == 0:
        verdict = "cannot be told"
    elif unfair["behind"] == 0 and unfair["ahead"]:
        verdict = "does not hold under fair ties"
    else:
        verdict = "does not hold"
    evidence = (
        f"against {', '.join(map(shown, labels))} at {len(code_lengths(results))} lengths and k of"
        f" {', '.join(map(str, CLAIMED_KS))}: fair ties {_count(fair)};"
        f" ties as hits {_count(unfair)}"
    )
    return Claim(text, verdict, evidence)


def _count(counts: dict[str, int]) -> str:
    return f"{counts['ahead']} ahead, {counts['level']} level, {counts['behind']} behind"
