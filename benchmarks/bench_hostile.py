"""100,000 requests, most of them hostile, against a server process: nothing breaks or grows.

Every fifth request is a good one, whose answer must be the one that the model gives here. Memory is
the resident set of the server; it is compared with what it was after the first tenth, when caches
are full and everything is loaded.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import tests_path  # noqa: F401
from http_load import Client, running
from table import Row, finish, options

from coldhash import MFDCF, load, read
from hostile import shots
from storm import Outcome, right_answers, served_5xx, storm


def resident(pid: int) -> float:
    """Megabytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    args = options(__doc__ or "")
    n = 5000 if args.quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.coldhash"
        MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=500)).save(file)
        model = load(file)
        answers, ids = right_answers(model), list(model.item_ids)
        outcome, start = Outcome(), time.perf_counter()
        command = ["-m", "coldhash", "serve", str(file), "--port", "0", "--allowed-host", "x"]
        with running(command) as (process, port):
            asyncio.run(storm(port, shots(n // 10, 1, answers, ids), outcome))
            before = resident(process.pid)
            asyncio.run(storm(port, shots(n - n // 10, 2, answers, ids), outcome))
            after = resident(process.pid)
            alive = process.poll() is None
            status, figures = asyncio.run(Client.ask_once(port, "GET", "/metrics"))
            assert status == 200
    for kind, statuses in sorted(outcome.kinds.items()):
        print(
            f"{kind:18}", ", ".join(f"{told}: {count:,}" for told, count in statuses.most_common())
        )
    for what in (outcome.bad, outcome.wrong, outcome.hung):
        print(*what[:5], sep="\n", end="\n" if what else "")
    print(f"{n:,} requests in {time.perf_counter() - start:.0f} s, {before:.1f} -> {after:.1f} MB")
    finish(
        [
            Row("requests / wanted", sum(outcome.statuses.values()) + len(outcome.hung), n, ">= 1"),
            Row("statuses of 500 and above + 1", len(outcome.bad) + 1, 1, "<= 1"),
            Row("... by the server's own count + 1", served_5xx(figures.decode()) + 1, 1, "<= 1"),
            Row("requests without an end + 1", len(outcome.hung) + 1, 1, "<= 1"),
            Row("good requests not answered right + 1", len(outcome.wrong) + 1, 1, "<= 1"),
            Row("servers alive at the end", float(alive), 1, ">= 1"),
            Row("MB at the end / after a tenth", after, before, "<= 1.05"),
        ],
        args.out,
    )


if __name__ == "__main__":
    main()
