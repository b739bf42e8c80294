from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import httpx
import pytest
from starlette.testclient import TestClient

from coldhash import MFDCF, Ids, load, read
from coldhash.serve import create_app


@pytest.fixture(scope="session")
def model():
    fitted = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=120))
    people = [{"age": age, "history": {"1": 5}} for age in range(100)]
    for score in ("real", "hamming"):  # compile here, before requests have time limits
        fitted.recommend(people, k=20, score=score, threads=1)
    return fitted


def renamed(model, letter):
    """The same model with other item ids, so that its answers can be told apart."""
    ids = Ids.of([f"{letter}{row}" for row in range(len(model.item_ids))], "item")
    return replace(model, item_ids=ids)


@pytest.fixture(scope="session")
def model_files(model, tmp_path_factory):
    """Two model files; the first letter of an item id says which one answered."""
    folder = tmp_path_factory.mktemp("models")
    for letter in "ab":
        renamed(model, letter).save(folder / f"{letter}.coldhash")
    return {letter: folder / f"{letter}.coldhash" for letter in "ab"}


def put(content, place):
    """Put a copy of a file in the place of another, as one step."""
    draft = place.with_name("draft")
    draft.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    os.replace(draft, place)


@pytest.fixture
def log():
    return []


@pytest.fixture
def client(model, log):
    with TestClient(create_app(model, log=log.append)) as client:
        yield client


class Live:
    """A real server process on loopback."""

    def __init__(self, process, talk):
        self.process, self._talk = process, talk
        self.url = self._until(lambda: self._address())
        self.client = httpx.Client(base_url=self.url, timeout=120)
        self._until(lambda: self.client.get("/readyz").status_code == 200)

    def _address(self):
        first = self.log().partition("\n")
        return first[0].removeprefix("serving on ") if first[1] else None

    def _until(self, test):
        for _ in range(9000):  # a busy machine is no failure
            assert self.process.poll() is None, self.log()
            if found := test():
                return found
            time.sleep(0.02)
        raise AssertionError(f"never happened; the log: {self.log()}")

    def log(self):
        return self._talk.read_text(encoding="utf-8")

    def events(self, name):
        """The entries of the log about an event."""
        lines = (line for line in self.log().splitlines() if line.startswith("{"))
        return [entry for entry in map(json.loads, lines) if entry.get("event") == name]

    def version(self):
        return self.client.get("/v1/model").json()["model"]

    def until_version(self, version):
        self._until(lambda: self.version() == version)

    def until_logged(self, text):
        self._until(lambda: text in self.log())


@pytest.fixture
def live(tmp_path):
    """Start servers; each is stopped at the end."""
    with contextlib.ExitStack() as stack:

        def start(*arguments, **environment):
            talk = tmp_path / f"stderr-{len(os.listdir(tmp_path))}"
            command = [sys.executable, "-m", "coldhash", "serve", *map(str, arguments)]
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, "--port", "0"],
                    stderr=stack.enter_context(talk.open("w", encoding="utf-8")),
                    env=os.environ | environment,
                )
            )
            stack.callback(process.send_signal, signal.SIGTERM)
            server = Live(process, talk)
            stack.callback(server.client.close)
            return server

        yield start


@pytest.fixture
def version_of():
    def version(path):
        assert load(path)
        return path.read_bytes()[-32:].hex()[:16]

    return version


@pytest.fixture
def put_file():
    return put
