"""Draw figures of lines in one style.

A method has the same colour everywhere, that of `figures.toml`; methods that share one differ in
marker and dash. No display is needed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Literal

from coldhash.errors import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOK = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
STYLES = {name: tuple(style) for name, style in _LOOK["styles"].items()}


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
