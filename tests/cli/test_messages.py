"""Hints in the language of the command line, and the note about compilation."""

from __future__ import annotations

import time

import pytest
from numba.core import event

from coldhash.arrays.compiled import compilations
from coldhash.cli import output
from coldhash.cli.output import note_compilation, translate_hint

OPTIONS = {
    "--score",
    "--ratings",
    "--duplicates",
    "--column",
    "--exclude-seen",
    "--no-exclude-seen",
    "--new",
}


@pytest.mark.parametrize(
    ("hint", "translated"),
    [
        ("score='real'", "--score real"),
        ("duplicates='last', 'mean' or 'sum'", "--duplicates last, 'mean' or 'sum'"),
        ("exclude_seen=False", "--no-exclude-seen"),
        ("exclude_seen=True", "--exclude-seen"),
        ("new=False", "--new False"),
        ("columns={'user_id': NAME}", "--column user_id=NAME"),
        ("columns={'a': B}, or {'rating': None}", "--column a=B, or --column rating="),
        ("columns={'user_id': 'buyer'}", "--column user_id=buyer"),
        ("MFDCF(level=True)", "MFDCF(level=True)"),
        ("Dataset.from_tables(...)", "--ratings FILE"),
        ("one of real, hamming", "one of real, hamming"),
    ],
)
def test_hints_speak_of_options(hint, translated):
    message = f"score='best' is odd; hint: {hint}"
    assert translate_hint(message, OPTIONS) == f"score='best' is odd; hint: {translated}"
    assert translate_hint(message, ()) == message


@pytest.mark.parametrize(
    ("compiles", "seconds", "told"), [(True, 0, True), (True, 9, False), (False, 0, False)]
)
def test_a_long_compilation_is_noted(monkeypatch, capsys, compiles, seconds, told):
    monkeypatch.setattr(output, "_USUAL_SECONDS", seconds + 0.05)
    compilations.buffer.clear()
    with note_compilation():
        if compiles:
            event.broadcast(event.Event("numba:compile", event.EventStatus.START))
        time.sleep(0.3)
    assert capsys.readouterr().err == ("compiling, once\n" if told else "")
