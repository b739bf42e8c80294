"""The journal of an experiment: what is done, safely on disk.

    OUT/NAME/runs.jsonl           a line for each run, added when all of the run is there
    OUT/NAME/users/KEY.parquet    the hits of each user
    OUT/NAME/results.parquet      all figures in one table, in the order of the plan

The user table is written first and the line last, so a line stands for a whole run. A line that
was cut off is dropped when the journal is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from coldhash.files import lock_file, replace_file, writing


class Journal:
    """The finished runs of one experiment, by key."""

    def __init__(self, folder: Path, lines: dict[str, dict[str, Any]], file: IO[bytes]) -> None:
        self.folder, self.lines, self._file = folder, lines, file

    @classmethod
    def open(cls, out: Path, name: str) -> Journal:
        """Open or begin it; one process at a time may."""
        folder = out / name
        with writing(folder):
            (folder / "users").mkdir(parents=True, exist_ok=True)
        busy = f"{folder}: another process is running this experiment"
        file = lock_file(folder / "runs.jsonl", busy)
        return cls(folder, dict(_whole_lines(file)), file)

    def __contains__(self, key: str) -> bool:
        return key in self.lines

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, key: str, line: dict[str, Any], users: pa.Table) -> None:
        """Add a run: once this returns, it is never done again."""
        path = self.users_file(key)
        entry = {"key": key, **line}
        with replace_file(path) as file:
            pq.write_table(users, file)
        with writing(self.folder / "runs.jsonl"):
            left = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
            while left:  # a disk that fills up takes a part first
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        self.lines[key] = entry

    def finish(self, keys: Iterable[str]) -> None:
        """Write the table of all figures, in the order of the plan."""
        rows = [row for key in keys if key in self.lines for row in flat(self.lines[key])]
        if rows:
            with replace_file(self.folder / "results.parquet") as file:
                pq.write_table(pa.Table.from_pylist(rows), file)

    def users_file(self, key: str) -> Path:
        """Say where the hits of each user are."""
        return self.folder / "users" / f"{key}.parquet"


def flat(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give one row for each question that the run answered."""
    plain = {
        name: value
        for name, value in line.items()
        if name not in ("judgements", "settings", "stamp", "objective", "fit_parts")
    }
    for judged in line["judgements"]:
        asked = {name: judged[name] for name in ("protocol", "shots", "oracle", "score")}
        yield {
            **plain,
            "settings": json.dumps(line["settings"], sort_keys=True),
            **asked,
            **judged["metrics"],
            "judge_seconds": judged["seconds"],
        }


def _whole_lines(file: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the lines, and cut off what a killed process left of its last one."""
    file.seek(0)
    *whole, cut = file.read().split(b"\n")
    for raw in whole:
        line = json.loads(raw)
        yield line["key"], line
    if cut:
        file.truncate(file.tell() - len(cut))
