"""The page of all figures: reads what the benchmarks wrote with --out, writes docs/benchmarks.md.

python benchmarks/page.py [--results build/bench] [--page docs/benchmarks.md]

A benchmark is any bench_NAME.py beside this file, and soak.py; its results are in NAME.json. One
that has none is named as not measured.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ORDER = """read fit accuracy anywhere search recommend store models evaluate serve scale cold_items
peers hostile kills soak""".split()  # as the parts were built; others come last
HEAD = ("figure", "ours", "peer's", "ratio", "target", "holds", "peer", "date", "command")
BESIDE = {  # column -> how its figures are written
    "method": "{}",
    "accuracy@10": "{:.4f}",
    "ndcg@10": "{:.4f}",
    "fit s": "{:.3g}",
    "bytes an item": "{:.0f}",
    "µs a stranger": "{:.0f}",
    "package": "{}",
    "settings": "{}",
}
Facts = dict[str, Any]  # what one benchmark wrote


@dataclass(frozen=True)
class Script:
    """A benchmark: its file, the name of its results, and what it is about."""

    path: Path
    name: str
    about: str


@dataclass(frozen=True)
class Line:
    """One figure of the page: a row, or a family of rows with one target."""

    figure: str
    rows: list[Facts]

    @property
    def holds(self) -> bool:
        """Whether every row does."""
        return all(row["holds"] for row in self.rows)

    def cells(self) -> list[str]:
        """Write the line; what falls short is bold."""
        first, n_held = self.rows[0], sum(row["holds"] for row in self.rows)
        ratios = sorted(row["ratio"] for row in self.rows)
        shown = list(dict.fromkeys(number(ratio) for ratio in (ratios[0], ratios[-1])))
        alone = len(self.rows) == 1
        holds = ("yes" if self.holds else "no") if alone else f"{n_held} of {len(self.rows)}"
        figure, ratio = text(self.figure), " to ".join(shown)
        if not self.holds:
            figure, ratio, holds = (f"**{cell}**" for cell in (figure, ratio, holds))
        return [
            figure,
            number(first["ours"]) if alone else "",
            number(first["peer"]) if alone else "",
            ratio,
            first["target"],
            holds,
            text(first["against"]),
        ]


def scripts(folder: Path = HERE) -> list[Script]:
    """Find the benchmarks, in the order of the page."""
    found = []
    for path in [*folder.glob("bench_*.py"), *folder.glob("soak.py")]:
        about = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split(
            "\n\n"
        )[0]
        found.append(Script(path, path.stem.removeprefix("bench_"), " ".join(about.split())))
    places = {name: place for place, name in enumerate(ORDER)}
    return sorted(found, key=lambda script: (places.get(script.name, len(ORDER)), script.name))


def results(folder: Path, known: Iterable[Script]) -> dict[str, Facts]:
    """Read what the benchmarks wrote, as far as they did."""
    files = {script.name: folder / f"{script.name}.json" for script in known}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }


def lines(facts: Facts) -> list[Line]:
    """Put the rows of a family together, in the place of its first."""
    families: dict[tuple[str, str], list[Facts]] = defaultdict(list)
    for at, row in enumerate(facts["rows"]):
        families[(row["family"], row["target"]) if row["family"] else (str(at), "")].append(row)
    return [Line(rows[0]["family"] or rows[0]["what"], rows) for rows in families.values()]


def page(known: Sequence[Script], found: dict[str, Facts], reasons: dict[str, str]) -> str:
    """Write the whole page; reasons: pattern of figures -> why they are short of their target."""
    parts = [
        "# Benchmarks",
        verdict(known, found),
        "A ratio is ours / the peer's; both are measured in the same run, in turns, on the same "
        "machine. Without a peer it is what was measured / a fixed bound. Rows that differ only in "
        "details (k, threads, code length) share a line: the lowest and the highest ratio, and how "
        "many hold. `make bench` measures everything; `python benchmarks/COMMAND --out "
        "build/bench/NAME.json` (`bench_NAME.py`) and `python benchmarks/page.py` measure one "
        "benchmark anew and keep the others.",
        table(HEAD, figures(known, found)),
        "## Short of the target",
        "\n".join(shortfalls(found, reasons)) or "None.",
        "## Peers side by side",
        *side_by_side(known, found),
        "## How it was measured",
        *circumstances(found),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(known: Sequence[Script], found: dict[str, Facts]) -> str:
    """Say in a few words what holds, what does not, and what is not known."""
    by_script = {name: lines(facts) for name, facts in found.items()}
    every = [line for of_script in by_script.values() for line in of_script]
    said = [f"**{sum(line.holds for line in every)} of {len(every)} figures hold.**"]
    short = {name: sum(not line.holds for line in of) for name, of in by_script.items()}
    if any(short.values()):
        named = ", ".join(f"{name} {count}" for name, count in short.items() if count)
        said.append(f"Short of the target (bold in the table): {named}.")
    missing = [script.name for script in known if script.name not in found]
    if missing:
        said.append(f"Not measured: {', '.join(missing)}.")
    quick = [name for name, facts in found.items() if facts["quick"]]
    if quick:
        said.append(
            "Measured at smaller sizes (`--quick`), which the targets are not meant for: "
            f"{', '.join(quick)}."
        )
    return " ".join(said)


def figures(known: Sequence[Script], found: dict[str, Facts]) -> Iterator[list[str]]:
    """Give the rows of the one table; a benchmark without results has one, too."""
    for script in known:
        if script.name not in found:
            empty = [""] * (len(HEAD) - 3)
            yield [f"{text(script.about)}", "not measured", *empty, f"`{script.path.name}`"]
            continue
        facts = found[script.name]
        for line in lines(facts):
            yield [*line.cells(), facts["date"], f"`{facts['command']}`"]


def shortfalls(found: dict[str, Facts], reasons: dict[str, str]) -> Iterator[str]:
    """Explain in a line each what is short of its target, figures of one reason together."""
    named: dict[str, list[str]] = defaultdict(list)
    for facts in found.values():
        for line in lines(facts):
            if not line.holds:
                why = [why for figure, why in reasons.items() if re.search(figure, line.figure)]
                named[why[0] if why else "Not explained."].append(line.figure)
    for why, names in named.items():
        yield f"- {'; '.join(names)}: {why}"


def side_by_side(known: Sequence[Script], found: dict[str, Facts]) -> Iterator[str]:
    """Show the tables without targets."""
    tables = [script for script in known if found.get(script.name, {}).get("beside")]
    for script in tables:
        facts = found[script.name]
        rows = [
            [write.format(row[name]) if name in row else "" for name, write in BESIDE.items()]
            for row in facts["beside"]
        ]
        about = ast.get_docstring(ast.parse(script.path.read_text(encoding="utf-8"))) or ""
        yield " ".join(about.split()) + f" `{facts['command']}`, {facts['date']}."
        yield table(tuple(BESIDE), rows)
    if not tables:
        yield "Not measured: `bench_peers.py`."


def circumstances(found: dict[str, Facts]) -> Iterator[str]:
    """Say on what machine, with which versions, and how busy it was."""
    machines: dict[str, list[str]] = defaultdict(list)
    for name, facts in found.items():
        what = f"{facts['machine']}, {facts['cores']} cores, Python {facts['python']}"
        load = f"{name} ({facts['date']}, load {facts['load']:.1f})"
        machines[f"{what}, numpy {facts['numpy']}"].append(load)
    for machine, names in machines.items():
        yield f"- {text(machine)}: {', '.join(names)}."
    yield (
        "Load is the machine's load average over the minute before a benchmark began: above 0, "
        "others used its cores. Times are the best or the median of several turns, which noise "
        "meets alike; ratios stand noise better than times, and both stand it badly when they are "
        "near a target. Accuracies and counts do not depend on it. Data sets: MovieLens-1M and "
        "Book-Crossing in the folder that `--data DIR` or `COLDHASH_DATA` names."
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def number(value: float) -> str:
    """Write a figure with four digits that count, which targets such as 1.002 need."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def text(words: str) -> str:
    """Keep words in their cell."""
    return words.replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE.parent / "build" / "bench")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "benchmarks.md")
    args = parser.parse_args()
    known = scripts()
    reasons = tomllib.loads((HERE / "short.toml").read_text(encoding="utf-8"))
    args.page.write_text(page(known, results(args.results, known), reasons), encoding="utf-8")
    print(f"wrote {args.page}")


if __name__ == "__main__":
    main()
