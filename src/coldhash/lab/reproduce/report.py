"""Write the report: sections with text, tables, figures and verdicts on claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coldhash.files import replace_text
from coldhash.lab.figures import save
from coldhash.lab.results_log import Results
from coldhash.lab.runner import stamp
from coldhash.render import format_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ClaimVerdict = Literal["holds", "does not hold", "does not hold under fair ties", "inconclusive"]

DATASETS: dict[object, str] = {
    "ml-1m": "MovieLens-1M",
    "ml-100k": "MovieLens-100K",
    "book-crossing": "Book-Crossing",
    "complete-journey": "The Complete Journey",
    "jester": "Jester",
    "sample": "the sample",
}
ORDERS = {"time": "in order of time", "random": "at random", None: "none"}  # of events given
NAMES = {  # where it is not the label in upper case
    "popularity": "popularity",
    "ridge": "ridge",
    "dcf": "DCF+map",
    "ch": "CH+map",
    "itq": "ITQ+map",
    "bccf": "BCCF+map",
    "pph": "PPH+map",
}
INTRO = """\
# Results

Made by `{command}`, not written by hand. Every number below comes from that command, or from
`coldhash reproduce NAME` with the name of the section; a dataset's archive is never part of this
project.

Accuracy@k is the share of test pairs (a cold user, a favourite) in which the favourite is among
the first k of 1,001 items. **Fair ties**: items with the same score are in random order, so a
tie counts by its expected value. **Ties as hits**: what much of the literature does; a model that
scores everything alike is then perfect. **Real-valued query**: the user's vector as it is, against
codes of items. **Hamming**: codes on both sides. **MFDCF** is the method by default: 8 of its bits
are the level of an item. **MFDCF, no level** is the paper's method, corrected, and the paper's
claims are judged by it. In a comparison "tied" means that the 95% interval of the paired
difference over users contains 0.
"""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what the runs show."""

    text: str
    verdict: ClaimVerdict
    evidence: str


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the report."""

    name: str
    title: str
    text: str
    figures: Sequence[tuple[str, Figure]] = ()
    claims: Sequence[Claim] = ()


def method_name(label: object, score: object = "real") -> str:
    """Return the name of a method in tables and figures."""
    model, comma, variant = str(label).partition(", ")
    name = f"{NAMES.get(model, model.upper())}{comma}{variant}"
    return f"{name}, Hamming" if score == "hamming" else name


def by_method(results: Results) -> Iterator[tuple[str, Results]]:
    """Iterate over the methods and the ways they are scored, by their names."""
    for label, of_label in results.by("label"):
        for score, part in of_label.by("score"):
            yield method_name(label, score), part


def metric_name(k: int, ties: str = "expected") -> str:
    """Return the name of an accuracy in `Results`."""
    return f"accuracy@{k}" if ties == "expected" else f"accuracy@{k} {ties}"


def select_best_score(results: Results) -> Results:
    """Select the way of scoring with the highest accuracy."""
    return max((part for _, part in results.by("score")), key=lambda part: part.mean("accuracy@10"))


def format_accuracy(value: float) -> str:
    """Format an accuracy with four places, without the leading zero."""
    return f"{value:.4f}".removeprefix("0")


def write_report(sections: Sequence[Section], out: Path, command: str) -> Path:
    """Write `results.md` and its figures as PNG and SVG."""
    parts = [INTRO.format(command=command)]
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
        for name, figure in section.figures:
            save(figure, out / "figures", name)
            parts.append(f"![{section.title}](figures/{name}.png)")
        parts.append(section.text)
    machine = dict(stamp())
    hardware = [machine.pop(name) for name in ("system", "processor", "cores")]
    versions = ", ".join(f"{name} {value}" for name, value in machine.items())
    parts.append("## Made with\n\n{}; {}, {}, {} cores.".format(versions, *hardware))
    out.mkdir(parents=True, exist_ok=True)
    replace_text(out / "results.md", "\n\n".join(parts) + "\n")
    return out / "results.md"
