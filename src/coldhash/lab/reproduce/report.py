"""Write the report: sections with text, tables, figures and verdicts on claims.

A method has the same colour everywhere, that of `figures.toml`; methods that share one differ in
marker and dash. No display is needed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Literal, cast

from coldhash.errors import import_extra
from coldhash.files import replace_text
from coldhash.lab.experiment import experiments_folder
from coldhash.lab.runner import Results, stamp
from coldhash.render import format_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ClaimVerdict = Literal["holds", "does not hold", "does not hold under fair ties", "inconclusive"]

_LOOK = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
STYLES = {name: tuple(style) for name, style in _LOOK["styles"].items()}
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


@dataclass(frozen=True)
class Line:
    """The points of one method, with the bounds of their intervals if known.

    Parameters
    ----------
    label
        The name of the method, which determines colour and marker.
    x, y
        The points.
    low, high
        The bounds of y.

    Examples
    --------
    >>> Line("MFDCF", x=[1, 2, 3], y=[0.1, 0.2, 0.3], low=[0, 0.1, 0.2], high=[0.2, 0.3, 0.4]).label
    'MFDCF'
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Parameters
    ----------
    title, x_label, y_label
        Texts.
    lines
        What to draw.
    x_scale, y_scale
        "linear", "log", or for x "log2".

    Examples
    --------
    >>> panel = Panel("Strangers", "k", "Accuracy@k", [Line("MFDCF", [1, 2], [0.1, 0.2])])
    >>> panel.x_scale
    'linear'
    """

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    x_scale: Literal["linear", "log", "log2"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"


def draw(
    title: str,
    panels: Sequence[Panel],
    columns: int,
    note: str = "",
    size: tuple[float, float] = (3.1, 2.9),
) -> Figure:
    """Draw panels in rows with one legend for all of them.

    Parameters
    ----------
    title
        The title of the figure.
    panels
        What to draw.
    columns
        Panels in a row.
    note
        A line below the figure.
    size
        Width and height of a panel in inches.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    SettingError
        If matplotlib is missing.

    Examples
    --------
    >>> panel = Panel("Strangers", "k", "Accuracy@k", [Line("MFDCF", [1, 2], [0.1, 0.2])])
    >>> len(draw("Two panels", [panel, panel], columns=2).axes)
    2
    """
    matplotlib = import_extra("matplotlib", "plots")
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(_LOOK["rc"]):
        shape = (max(6.0, size[0] * columns + 0.6), size[1] * rows + 1.5)
        figure = Figure(figsize=shape, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for each, panel in zip(axes, panels, strict=False):
            _draw_panel(each, panel)
        for each in axes[len(panels) :]:
            each.axis("off")
        _add_legend(figure, title, note)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for place, line in enumerate(panel.lines):
        names = [name for name in STYLES if f"{line.label}, ".startswith(f"{name}, ")]
        others = _LOOK["others"]["styles"]
        colour, marker = STYLES[max(names, key=len)] if names else others[place % len(others)]
        is_mfdcf = line.label.startswith("MFDCF")
        axes.plot(
            line.x,
            line.y,
            color=colour,
            marker=marker or ("D" if len(line.x) == 1 else ""),  # a point alone must be seen
            linestyle="--" if names and line.label not in STYLES else "-",
            markersize=4.5,
            linewidth=2.4 if is_mfdcf else 1.5,
            zorder=3 if is_mfdcf else 2,
            markevery=max(1, len(line.x) // 6),
            label=line.label,
        )
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    if panel.x_scale == "linear":
        axes.locator_params(axis="x", integer=True)
    else:
        axes.set_xscale("log", base=2 if panel.x_scale == "log2" else 10)
    if panel.x_scale == "log2":
        ticks = sorted({x for line in panel.lines for x in line.x})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label, yscale=panel.y_scale)
    if panel.y_scale == "linear":
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _add_legend(figure: Figure, title: str, note: str) -> None:
    """Add the title, the note and one legend below all panels, with every method once."""
    found = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
    handles = {label: handle for pairs in found for handle, label in pairs}
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    width = figure.get_figwidth()
    figure.legend(
        list(handles.values()),
        list(handles),
        title=fill(note, int(11 * width)),
        loc="outside lower center",
        ncols=max(2, min(6, int(width // 2))),
        frameon=False,
    )


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG; the same figure has the same bytes.

    Parameters
    ----------
    figure
        What `draw` returned.
    folder
        Where to write; created if missing.
    name
        The file name without its ending.

    Returns
    -------
    list of pathlib.Path

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> panel = Panel("Strangers", "k", "Accuracy@k", [Line("MFDCF", [1, 2], [0.1, 0.2])])
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in save(draw("One", [panel], 1), Path(folder), "one")]
    ['one.png', 'one.svg']
    """
    matplotlib = import_extra("matplotlib", "plots")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with matplotlib.rc_context(_LOOK["rc"]):
        figure.savefig(paths[0], metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths
