"""kill -9 at random moments: of a fit, of saves, of an experiment, of a fit from disk.

Each job runs in a child that is forked with everything imported, so that a random moment of its
run is a moment of its work and not of the start of Python. After each kill every file that is
there under its final name is read; then the job is started again, must come to its end, and must
give what the job gives that nobody killed.

python -m faults.kills N: kill each job N times, print the counts as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numba
import pyarrow.parquet as pq

from coldhash import load
from coldhash.errors import ColdhashError
from coldhash.lab.runner import _read
from coldhash.recommender import model_file
from coldhash.scale import Prepared
from faults.world import Result, command, experiment_facts, fit_of, make_world, model_facts

DRAFT = re.compile(r"\..*\.(part|draft)|.*\.draft")  # names of what is not finished
SAVES = 10  # of a run that saves


@dataclass(frozen=True)
class Job:
    """Something that may be killed in a folder, and what it should have made there in the end."""

    prepare: Callable[[Path], None]  # what is there before
    run: Callable[[Path], None]
    check: Callable[[Path], None]  # raises if a file is damaged
    result: Callable[[Path], Result]


def warm_up(world: Path) -> None:
    """Do here, once, what every process does before its work; nothing that starts threads."""
    for module in ("rich.progress", "coldhash.registry", "coldhash.scale"):
        import_module(module)
    load(world / "old").recommend({"age": 30}, k=1, threads=1)
    _read("sample", None)


# The jobs


def fitting(world: Path) -> Job:
    """`coldhash fit` over a model of old: the old one or the new one is there, always."""
    old = model_facts(world / "old")

    def check(folder: Path) -> None:
        load(folder / "m")
        found = model_facts(folder / "m")
        if found != old and found != model_facts(world / "fit" / "m"):
            raise ValueError("a model that is neither the old one nor the new one")

    return Job(
        lambda folder: (shutil.copy(world / "old", folder / "m"), None)[1],
        lambda folder: command(*fit_of(world), "--out", folder / "m"),
        check,
        lambda folder: model_facts(folder / "m"),
    )


def saving(world: Path) -> Job:
    """Two models saved to one place in turn: it holds one of them, to the byte."""
    contents = [(world / name).read_bytes() for name in ("one", "two")]

    def save(folder: Path) -> None:
        for _ in range(SAVES):
            for name in ("one", "two"):
                load(world / name).save(folder / "m")

    def check(folder: Path) -> None:
        if (folder / "m").read_bytes() not in contents:
            raise ValueError("a model that nobody saved")

    return Job(
        lambda folder: (shutil.copy(world / "one", folder / "m"), None)[1],
        save,
        check,
        lambda folder: {"bytes": (folder / "m").read_bytes()},
    )


def experimenting(world: Path) -> Job:
    """`coldhash experiment`: every file is whole."""

    def check(folder: Path) -> None:
        for path in (folder / "out").rglob("*.parquet"):
            pq.read_table(path)

    def run(folder: Path) -> None:
        command("experiment", world / "plan.toml", "--out", folder / "out", "--jobs", 1)

    return Job(lambda folder: None, run, check, experiment_facts)


def from_disk(world: Path) -> Job:
    """`coldhash prepare` and `fit --parts`: partitions, checkpoints and the model."""

    def run(folder: Path) -> None:
        parts = folder / "parts"
        command("prepare", "--ratings", world / "r.csv", "--users", world / "u.csv", "--out", parts,
                "--part-users", 100)  # fmt: skip
        command("fit", "--parts", parts, "--bits", 16, "--out", folder / "m")

    def check(folder: Path) -> None:
        for path in folder.glob("parts/*.parquet"):
            pq.read_table(path)
        if (folder / "parts" / "manifest.json").exists():
            Prepared.open(folder / "parts")
        for path in (folder / "m.work" / "checkpoint", folder / "m"):
            if path.exists():
                model_file.read(path)

    def result(folder: Path) -> Result:
        load(folder / "m")
        return model_facts(folder / "m")

    return Job(lambda folder: None, run, check, result)


JOBS: dict[str, Callable[[Path], Job]] = {
    "fit": fitting,
    "save": saving,
    "experiment": experimenting,
    "fit from disk": from_disk,
}


def finals(folder: Path) -> list[Path]:
    """Give the files that stand under their final names."""
    return [p for p in folder.rglob("*") if p.is_file() and not DRAFT.fullmatch(p.name)]


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in finals(folder))


# Killing


def started(work: Callable[[], None], log: Path) -> int:
    """Do some work in a child; gives its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    with contextlib.suppress(BaseException), log.open("w", encoding="utf-8") as talk:
        for number in (1, 2):
            os.dup2(talk.fileno(), number)
        numba.set_num_threads(1)  # one core is enough, and leaves the others to others
        work()
        status = 0
    os._exit(status)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def completed(job: Job, folder: Path, log: Path) -> tuple[bool, float]:
    """Run a job to its end; gives whether it came there, and the seconds that it took."""
    start = time.perf_counter()
    status = ended(started(lambda: job.run(folder), log))
    return status == 0, time.perf_counter() - start


def is_corrupt(job: Job, folder: Path) -> bool:
    try:
        job.check(folder)
    except (ColdhashError, OSError, ValueError, KeyError) as error:  # Arrow's are ValueErrors
        print(f"corrupt: {error!r}", file=sys.stderr)
        return True
    return False


def killed(name: str, world: Path, n_kills: int, draw: random.Random) -> Counter[str]:
    """Kill a job again and again, each time in a new folder; counts what came of it."""
    reference, log = world / name.replace(" ", "-"), world / "log"
    job = JOBS[name](world)
    for attempt in range(2):  # the first one fills the cache of compiled code
        shutil.rmtree(reference, ignore_errors=True)
        reference.mkdir()
        job.prepare(reference)
        done, took = completed(job, reference, log)
        assert done, (attempt, log.read_text(encoding="utf-8"))
    wanted = job.result(reference)
    count: Counter[str] = Counter(kills=0, drafts=0, corrupt=0, stuck=0, different=0, left=0)
    while count["kills"] < n_kills:
        with tempfile.TemporaryDirectory(dir=world) as place:
            folder = Path(place)
            job.prepare(folder)
            child = started(lambda job=job, folder=folder: job.run(folder), log)
            time.sleep(draw.uniform(0, took))
            os.kill(child, signal.SIGKILL)
            if ended(child) != -signal.SIGKILL:
                took *= 0.9  # it was done before: the machine was slower when the time was taken
                continue
            count["kills"] += 1
            count["drafts"] += any(DRAFT.fullmatch(path.name) for path in folder.rglob("*"))
            count["corrupt"] += is_corrupt(job, folder)
            done, _ = completed(job, folder, log)
            if not done:
                print(f"stuck: {log.read_text(encoding='utf-8')}", file=sys.stderr)
            count["stuck"] += not done
            count["different"] += done and not same(job.result(folder), wanted)
            count["left"] += names(folder) != names(reference)  # no harm, but no use either
    print(f"{name}: a run takes {took:.2f} s; {dict(count)}", file=sys.stderr, flush=True)
    return count


def same(one: Result, two: Result) -> bool:
    odd = [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)]
    if odd:
        print(f"different: {odd}", file=sys.stderr)
    return not odd


def kill_jobs(n_kills: int, jobs: Iterable[str] = JOBS, seed: int = 0) -> Counter[str]:
    """Kill each job n times; return how often what came of it."""
    draw, total = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="coldhash-kills-") as folder:
        world = Path(folder)
        child = started(lambda: make_world(world), world / "log")
        assert ended(child) == 0, (world / "log").read_text(encoding="utf-8")
        warm_up(world)
        for name in jobs:
            total += killed(name, world, n_kills, draw)
    return total


if __name__ == "__main__":
    print(json.dumps(kill_jobs(int(sys.argv[1]))))
