"""Write the report: sections with text, tables, figures and verdicts on claims."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from coldhash.files import replace_text
from coldhash.lab.experiment import experiments_folder
from coldhash.lab.figures import Line, Panel, save
from coldhash.lab.results import Results
from coldhash.lab.runner import stamp
from coldhash.render import format_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ClaimVerdict = Literal["holds", "does not hold", "does not hold under fair ties", "inconclusive"]

PRINTED = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
DATASETS: dict[object, str] = PRINTED["datasets"]
ORDERS = {"time": "in order of time", "random": "at random", None: "none"}  # of events given
KS = (5, 10, 20, 50)
METRICS = ("@5", "@10", "@20", "@50", "@10 between", "NDCG@10", "coverage", "distinct lists")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what the runs show."""

    text: str
    verdict: ClaimVerdict
    evidence: str

    @classmethod
    def of(cls, name: str, verdict: bool | ClaimVerdict, /, **facts: object) -> Claim:
        """Judge a claim of `paper.toml`: whether it holds, or another verdict."""
        if isinstance(verdict, bool):
            verdict = "holds" if verdict else "does not hold"
        text, evidence = (part.format(**facts) for part in PRINTED["claims"][name])
        return cls(text, verdict, evidence)


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the report; figures by what follows its name in their files."""

    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    name: str = ""
    title: str = ""


def method_name(label: object, score: object = "real") -> str:
    """Return the name of a method in tables and figures."""
    model, comma, variant = str(label).partition(", ")
    name = f"{PRINTED['methods'].get(model, model.upper())}{comma}{variant}"
    return f"{name}, Hamming" if score == "hamming" else name


def metric_name(k: int, ties: str = "expected") -> str:
    """Return the name of an accuracy in `Results`."""
    return f"accuracy@{k}" if ties == "expected" else f"accuracy@{k} {ties}"


def format_accuracy(value: float) -> str:
    """Format an accuracy with four places, without the leading zero."""
    return f"{value:.4f}".removeprefix("0")


def metric_cells(part: Results) -> list[str]:
    """Return the cells of a table under `METRICS`."""
    bounds = part.interval(10)
    return [
        *(format_accuracy(part.mean(metric_name(k))) for k in KS),
        f"{format_accuracy(bounds.low)} to {format_accuracy(bounds.high)}",
        format_accuracy(part.mean("ndcg@10")),
        f"{part.mean('coverage@10'):.3f}",
        f"{part.mean('distinct_lists@10'):.2f}",
    ]


def make_curves(
    groups: Iterable[tuple[str, Results]],
    x: str,
    x_label: str,
    x_scale: Literal["linear", "log"] = "linear",
) -> tuple[str, list[Panel]]:
    """Tabulate all metrics by method and a column, and draw Accuracy@10: a panel for each group."""
    panels, rows = [], []
    for title, group in groups:
        lines = []
        for (label, score), of_method in group.groups("label", "score"):
            name = method_name(label, score)
            points = sorted(cast(Iterable[tuple[float, Results]], of_method.by(x)))
            found = [part.interval(10) for _, part in points]
            bounds = zip(*((each.mean, each.low, each.high) for each in found), strict=True)
            lines.append(Line(name, [value for value, _ in points], *bounds))
            rows += [[title, name, f"{value:g}", *metric_cells(part)] for value, part in points]
        panels.append(Panel(title, x_label, "Accuracy@10", lines, x_scale))
    return format_table(["", "method", x_label, *METRICS], rows), panels


def write_report(sections: Sequence[Section], out: Path, command: str) -> Path:
    """Write `results.md` and its figures as PNG and SVG."""
    intro = (experiments_folder() / "introduction.txt").read_text(encoding="utf-8")
    parts = [intro.format(command=command)]
    claims = [
        [claim.text, f"**{claim.verdict}**", f"{claim.evidence} ([{each.name}](#{each.name}))"]
        for each in sections
        for claim in each.claims
    ]
    if claims:
        table = format_table(["claim", "verdict", "evidence"], claims).replace("---:", "---")
        parts.append(f"## The paper's claims\n\n{table}")
    for section in sections:
        parts.append(f'<a id="{section.name}"></a>\n\n## {section.title}')
        for ending, figure in section.figures.items():
            save(figure, out / "figures", f"{section.name}{ending}")
            parts.append(f"![{section.title}](figures/{section.name}{ending}.png)")
        parts.append(section.text)
    machine = dict(stamp())
    hardware = [machine.pop(name) for name in ("system", "processor", "cores")]
    versions = ", ".join(f"{name} {value}" for name, value in machine.items())
    parts.append("## Made with\n\n{}; {}, {}, {} cores.".format(versions, *hardware))
    out.mkdir(parents=True, exist_ok=True)
    replace_text(out / "results.md", "\n\n".join(parts) + "\n")
    return out / "results.md"
