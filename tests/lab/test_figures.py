"""Figures: drawn without a display, the same bytes twice, every line in its colour."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash.lab.reproduce.report import STYLES, Line, Panel, draw, save


@pytest.fixture
def panels():
    x = [1, 2, 4, 8]
    lines = [
        Line("MFDCF", x, [0.1, 0.2, 0.3, 0.4], [0.05, 0.15, 0.25, 0.35], [0.15, 0.25, 0.35, 0.45]),
        Line("popularity", x, [0.1, 0.1, 0.1, 0.1]),
        Line("nobody knows it", x, [0.4, 0.3, 0.2, 0.1]),
    ]
    return [
        Panel("one", "k", "Accuracy@k", lines),
        Panel("two", "bits", "seconds", lines, "log2", "log"),
        Panel("three", "alpha", "Accuracy@k", lines[:1], "log"),
    ]


@pytest.mark.slow
def test_every_panel_and_every_line_is_there(panels):
    figure = draw("title", panels, columns=2, note="a note")
    drawn = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in drawn] == ["one", "two", "three"]
    assert [len(axes.get_lines()) for axes in drawn] == [3, 3, 1]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["MFDCF", "popularity", "nobody knows it"]
    assert drawn[0].get_lines()[0].get_color() == STYLES["MFDCF"][0]
    assert drawn[1].get_xscale() == "log"
    assert [tick.get_text() for tick in drawn[1].get_xticklabels()] == ["1", "2", "4", "8"]


@pytest.mark.slow
def test_saved_twice_it_is_the_same_and_not_empty(panels, tmp_path):
    first = save(draw("title", panels, 3), tmp_path / "a", "try")
    second = save(draw("title", panels, 3), tmp_path / "b", "try")
    assert [path.name for path in first] == ["try.png", "try.svg"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    from matplotlib.image import imread

    pixels = imread(first[0])
    red = np.array([0xD5, 0x5E, 0x00]) / 255
    assert (np.abs(pixels[..., :3] - red).max(axis=-1) < 0.02).sum() > 100, "no line of MFDCF"


def test_methods_can_be_told_apart():
    assert len(set(STYLES.values())) == len(STYLES)
