"""The report: verdicts first, then every figure and table with its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coldhash.files import replace_text
from coldhash.lab.figures import save
from coldhash.lab.reproduce.sections import Section, table
from coldhash.lab.running import stamp

INTRO = """\
# Results

Made by `{command}`, not written by hand. Every number below comes from that command, or from
`coldhash reproduce NAME` with the name of the section; a dataset's archive is never part of this
project.

Accuracy@k is the share of test pairs (a cold user, a favourite) in which the favourite is among
the first k of 1,001 items. **Fair ties**: items with the same score stand in random order, so a
tie counts by its expected value. **Ties as hits**: what much of the literature does; a model that
scores everything alike is then perfect. **Real-valued query**: the user's vector as it is, against
codes of items. **Hamming**: codes on both sides. "level" means that the 95% interval of the paired
difference over users contains 0.
"""


def write_report(sections: Sequence[Section], out: Path, command: str) -> Path:
    """Write `results.md` and its figures (PNG and SVG)."""
    parts = [INTRO.format(command=command)]
    claims = [(section, claim) for section in sections for claim in section.claims]
    if claims:
        rows = [
            [
                claim.text,
                f"**{claim.verdict}**",
                f"{claim.evidence} ([{section.name}](#{section.name}))",
            ]
            for section, claim in claims
        ]
        parts.append(
            "## The paper's claims\n\n"
            + table(["claim", "verdict", "evidence"], rows).replace("---:", "---")
        )
    for section in sections:
        pictures = []
        for name, figure in section.figures:
            save(figure, out / "figures", name)
            pictures.append(f"![{section.title}](figures/{name}.png)")
        anchor = f'<a id="{section.name}"></a>'
        parts.append("\n\n".join([f"{anchor}\n\n## {section.title}", *pictures, section.text]))
    parts.append(_made_with())
    out.mkdir(parents=True, exist_ok=True)
    path = out / "results.md"
    replace_text(path, "\n\n".join(parts) + "\n")
    return path


def _made_with() -> str:
    machine = dict(stamp())
    hardware = [machine.pop(name) for name in ("system", "processor", "cores")]
    versions = ", ".join(f"{name} {value}" for name, value in machine.items())
    return "## Made with\n\n{}; {}, {}, {} cores.".format(versions, *hardware)
