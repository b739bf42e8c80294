"""Draw the picture of the README, docs/figures/overview.svg, from the first table of results.md.

`python docs/picture.py`; a test checks that the picture is that of the table.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PICTURE = HERE / "figures" / "overview.svg"
GIVEN = ("0", "1", "5", "20")
# Okabe and Ito's colours, which colour-blind readers can distinguish
COLOURS = ("#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#56B4E9")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 340, 60, 540, 50, 290
LABEL_STEP = 17  # pixels between labels, at least


def read_ratios() -> dict[str, list[float]]:
    """Return the ratios to popularity of each data set, by the number of events given."""
    text = (HERE / "results.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (?:at random|in order of time) \|(.*)$", text, re.MULTILINE)
    ratios = {name: [float(x) for x in re.findall(r"\((\d\.\d+)\)", row)] for name, row in rows[:8]}
    # thinned copies of a data set are in the table
    return {name: found for name, found in ratios.items() if "a user" not in name}


def draw(ratios: dict[str, list[float]]) -> str:
    """Return the picture as SVG."""
    highest = max(max(found) for found in ratios.values()) + 0.05

    def across(place: int) -> float:
        return LEFT + 20 + place * (RIGHT - LEFT - 40) / (len(GIVEN) - 1)

    def down(ratio: float) -> float:
        return BOTTOM - (ratio - 0.95) / (highest - 0.95) * (BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' font-family="sans-serif" font-size="13" fill="#222">',
        "<title>Accuracy@10 for new people relative to popularity, by events given</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT - 40}" y="24" font-size="15" font-weight="bold">'
        "Accuracy@10 for people never seen, relative to popularity</text>",
    ]
    for tenth in range(10, int(highest * 10) + 1):
        y = down(tenth / 10)
        colour = "#777" if tenth == 10 else "#e4e4e4"
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{colour}"/>')
        label = f"{tenth / 10:.1f}"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for place, given in enumerate(GIVEN):
        x = across(place)
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{given}</text>')
    middle = (LEFT + RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{BOTTOM + 40}" text-anchor="middle">'
        "ratings or purchases given by the new person</text>"
    )
    label_at = float(TOP - LABEL_STEP)
    ordered = sorted(ratios.items(), key=lambda pair: -pair[1][-1])
    for colour, (name, found) in zip(COLOURS, ordered, strict=False):
        points = [(across(place), down(ratio)) for place, ratio in enumerate(found)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        label_at = max(points[-1][1] + 4, label_at + LABEL_STEP)
        parts.append(f'<text x="{RIGHT}" y="{label_at:.1f}">{name} {found[-1]:.2f}</text>')
        x, y = points[-1]
        parts.append(
            f'<path d="M{x + 4:.1f} {y:.1f}L{RIGHT - 3} {label_at - 4:.1f}" stroke="{colour}"/>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(read_ratios()), encoding="utf-8")
