"""Release by night: fit on a folder of Parquet files, judge beside the model in service, replace.

    python examples/nightly.py DATA films.coldhash

DATA holds `ratings/` (any number of Parquet files), and may hold `users.parquet` and
`items.parquet`. A tenth of the people, always the same, is never trained on: neither the new model
nor the one in service has seen them. Both recommend to them as to strangers, without and with their
first five ratings. The new model takes the place of the other, by rename, unless it is worse: a
server that serves the file picks it up within a second. The one before is kept as
`films.coldhash.before`; to roll back:

    mv films.coldhash.before films.coldhash

The exit code is 0 if the new model is in service, and 3 if it was worse and is left at
`films.coldhash.new`.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

import coldhash as ch
from coldhash.evaluate import UserHits, compare, judge, make_trial
from coldhash.evaluate.protocol import ScoreFunction

GIVEN = (0, 5)  # ratings of the held-out people that the models are given
WORSE = 3  # the exit code


def read(folder: Path) -> ch.Dataset:
    """Read the data."""
    tables = [folder / name for name in ("users.parquet", "items.parquet")]
    users, items = (table if table.exists() else None for table in tables)
    return ch.Dataset.from_tables(folder / "ratings", users, items)


def split(data: ch.Dataset) -> tuple[ch.Dataset, ch.Dataset]:
    """Set a tenth of the people aside: by their ids, so that it is the same one every night."""
    held_out = np.array([zlib.crc32(user.encode()) % 10 == 0 for user in data.user_ids])
    return data.of_users(np.flatnonzero(~held_out)), data.of_users(np.flatnonzero(held_out))


def scored_by(model: ch.Recommender, data: ch.Dataset) -> ScoreFunction:
    """Return scores of the items of today; one that the model does not know comes last."""
    rows = model.item_ids.find(data.item_ids.values)
    known = rows >= 0

    def score(people: pa.Table, history: csr_array | None) -> np.ndarray:
        if history is not None:  # in the items of the model
            given = history.tocoo()
            kept = known[given.col]
            places = (given.row[kept], rows[given.col[kept]])
            history = csr_array(
                (given.data[kept], places), shape=(len(people), len(model.item_ids))
            )
        found = model.score(model.encode(people, history, unknown="ignore"))
        scores = np.full((len(found), len(rows)), found.min() - 1, found.dtype)
        scores[:, known] = found[:, rows[known]]
        return scores

    return score


def main(folder: Path, served: Path) -> int:
    """Fit, judge, and replace; return the exit code."""
    data = read(folder)
    train, held_out = split(data)
    new = served.with_name(f"{served.name}.new")
    candidate = ch.MFDCF().fit(train)
    candidate.save(new)
    is_worse = False
    if served.exists():
        models = {"new": candidate, "in service": ch.load(served)}
        for n_given in GIVEN:
            trial = make_trial(train, held_out, n_given=n_given)
            found = {
                name: judge(scored_by(model, data), trial, ks=[10])
                for name, model in models.items()
            }
            people = np.array(list(held_out.user_ids))
            difference = compare(
                *([UserHits(people, each.hits[:, 0], each.pairs)] for each in found.values())
            )
            is_worse |= difference.verdict == "behind"
            figures = {name: round(each.metrics["accuracy@10"], 4) for name, each in found.items()}
            print(json.dumps({"given": n_given, "verdict": difference.verdict, **figures}))
        if is_worse:
            return WORSE
        before = served.with_name(f"{served.name}.before")
        before.unlink(missing_ok=True)
        os.link(served, before)  # the name in service is never missing
    os.rename(new, served)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
