"""Small disks, read-only disks, clocks that jump, and the command line in a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.world import make_world
from serve.conftest import live, model, model_files, put_file, version_of  # noqa: F401

JUMPING = """
import itertools, time
real, calls = time.time, itertools.count()
def jumped():  # a day ahead, a day back, right, with every call
    return real() + 86400 * (next(calls) % 3 - 1)
time.time, time.time_ns = jumped, lambda: int(jumped() * 1e9)
"""
AHEAD = """
import time
real = time.time
time.time, time.time_ns = lambda: real() + 86400, lambda: int((real() + 86400) * 1e9)
"""


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Tables, a plan, and a model, as files."""
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@dataclass(frozen=True)
class Disk:
    """A disk to which nothing can be written; `limit` bounds files where none could be mounted."""

    folder: Path
    limit: int | None = None

    def command(self, *arguments):
        """Run a command that writes to it."""

        def limited():
            if self.limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))

        return subprocess.run(
            [sys.executable, "-m", "coldhash", *map(str, arguments)],
            capture_output=True,
            encoding="utf-8",
            timeout=600,
            preexec_fn=limited,
        )


def mounted(folder, *options):
    """Mount a disk of memory, if we may."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def full_disk(tmp_path):
    """A disk with room for names alone; otherwise, files that may not grow."""
    folder = tmp_path / "disk"
    if not mounted(folder, "size=64k"):
        yield Disk(folder, limit=0)
        return
    try:
        with suppress(OSError), (folder / "filling").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def read_only_disk(tmp_path):
    folder = tmp_path / "disk"
    if not mounted(folder, "ro"):
        pytest.skip("no disk can be mounted here, and root may write everywhere else")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def with_clock(tmp_path):
    """Return the environment of a process whose clock is wrong."""

    def environment(source):
        folder = tmp_path / "clock"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(source, encoding="utf-8")
        before = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join([str(folder), *([before] if before else [])])}

    return environment
