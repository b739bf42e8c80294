"""Data is printed as text: no control character reaches the terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from coldhash import MFDCF, Ids, read
from commands import coldhash_in_process

pytestmark = pytest.mark.slow

NASTY = "a\x1b[31m\r\n\x07\x9b2J\u202eb\u2028c\x7f"


def is_plain(text):
    """Whether a text holds no control characters but the ends of lines and tabs."""
    controls = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2028"} - {*"\n\t"}
    return not controls & {*text}


@pytest.fixture(scope="module")
def nasty_file(tmp_path_factory):
    """A model whose ids and titles hold control characters, and titles are long."""
    model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=120))
    items = Ids.of([f"{NASTY}{row}" for row in range(len(model.item_ids))], "item")
    users = Ids.of([f"{NASTY}{row}" for row in range(len(model.user_ids))], "user")
    titles = pa.table({"title": [f"{NASTY}{'x' * 100_000}"] * len(items)})
    path = tmp_path_factory.mktemp("nasty") / "m.coldhash"
    replace(model, item_ids=items, user_ids=users, item_table=titles).save(path)
    return path


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        ["recommend", "--user", '{"age": 30}', "-k", "3"],
        ["recommend", "--user-id", f"{NASTY}1", "-k", "3"],
        ["similar", "--item", f"{NASTY}1", "-k", "3"],
    ],
)
def test_ids_and_titles_are_escaped_and_cut(nasty_file, command, as_json):
    name, *rest = command
    run = coldhash_in_process(name, nasty_file, *rest, *(["--json"] if as_json else []))
    assert run.returncode == 0, run.stderr
    assert is_plain(run.stdout)
    if as_json:
        found = json.loads(run.stdout)
        first = found["items"][0]
        assert any(str(value).startswith(NASTY) for value in first.values())  # nothing is lost
    else:
        lines = run.stdout.splitlines()
        assert len(lines) == 3
        assert all(len(line) < 2000 for line in lines)
        assert all(r"\u001b[31m\u000d\u000a" in line for line in lines)


def test_errors_are_escaped(nasty_file, tmp_path):
    unknown = coldhash_in_process("similar", nasty_file, "--item", "\x1b[31mnobody\n")
    (tmp_path / "r.csv").write_text("user_id,item_id,rating\n1,2,\x1b[31mfive\n", encoding="utf-8")
    table = coldhash_in_process("describe", "--ratings", tmp_path / "r.csv")
    for run in (unknown, table):
        assert run.returncode == 2
        assert is_plain(run.stderr)
        assert len(run.stderr.splitlines()) == 1


def test_names_of_columns_are_escaped(tmp_path):
    (tmp_path / "r.csv").write_text(
        "user_id,item_id,rating\n1,a,5\n2,a,3\n2,b,4\n", encoding="utf-8"
    )
    (tmp_path / "u.csv").write_text("user_id,to\x1b[31mwn\n1,Oslo\n2,Rome\n", encoding="utf-8")
    command = ["describe", "--ratings", tmp_path / "r.csv", "--users", tmp_path / "u.csv"]
    for options in ([], ["--json"]):
        run = coldhash_in_process(*command, *options)
        assert run.returncode == 0, run.stderr
        assert is_plain(run.stdout)
        assert r"to\u001b[31mwn" in run.stdout
