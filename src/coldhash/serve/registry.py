"""The model that is being served, and how another one takes its place.

A request takes `shelf.current` once, so its answer comes from one model whatever happens meanwhile.
A small file is copied into memory, so that a change in place, or a truncation, does not reach the
model that is served. A large one is mapped: there, a change in place is noticed and logged.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from coldhash.errors import SourceError
from coldhash.files import open_regular
from coldhash.recommender.model_file import N_CHECKSUM
from coldhash.recommender.persistence import check_answers, load
from coldhash.recommender.recommender import Recommender
from coldhash.serve.catalogue import Catalogue
from coldhash.serve.encodings import Encodings
from coldhash.serve.fields import Field, fields_of

N_VERSION = 16  # hexadecimal digits of a checksum that name a model
TRIES = 5  # at a file that is replaced while it is read
COPIED = 32 << 20  # bytes up to which a file is copied; a larger one is shared by all workers

Stamp = tuple[int, ...]  # tells one file in a place from the next one


@dataclass(frozen=True, eq=False)
class Served:
    """A model with all that requests need, ready to answer."""

    model: Recommender
    version: str
    catalogue: Catalogue
    encodings: Encodings
    fields: dict[str, Field]
    card: bytes  # what GET /v1/model says

    @property
    def n_bits(self) -> int | None:
        """How long codes are, None for a method without codes."""
        return self.model.items.n_bits


class Shelf:
    """Holds the current model; `refresh` puts the file's new content in its place."""

    def __init__(self, current: Served, path: Path | None = None, stamp: Stamp | None = None):
        self.current = current
        self.path = path
        self.on_swap: Callable[[Served], None] = lambda served: None
        self.on_refusal: Callable[[Exception], None] = lambda error: None
        self._stamp = stamp
        self._lock = threading.Lock()

    @classmethod
    def of(cls, source: Recommender | str | Path, watch: Path | None = None) -> Shelf:
        """Take a model, or read one from a file; a bad file is an error here.

        Newer files are looked for in the place of `source`, or in that of `watch`.
        """
        if isinstance(source, Recommender):
            check_answers(source)
            return cls(made_ready(source, _digest(source)))
        served, stamp = _read(Path(source))
        return cls(served, watch or Path(source), stamp)

    def refresh(self, force: bool = False) -> None:
        """Look at the file; if it is another one, serve it, or refuse it and keep what there is.

        A refused file is not tried again until it changes, unless by `force`.
        """
        if self.path is None:
            return
        with self._lock:
            before, stamp = self._stamp, _stamp(self.path)
            if stamp is None or (stamp == before and not force):
                return
            self._stamp = stamp
            try:
                served, self._stamp = _read(self.path)
                served.catalogue.warm_up()
            except Exception as error:  # whatever is wrong with it, there is a model that works
                self.on_refusal(_told(error, self.path, before, stamp))
                return
            if served.version != self.current.version:
                self.current = served
                self.on_swap(served)


def made_ready(model: Recommender, version: str) -> Served:
    """Prepare a model that was checked."""
    rated = {model.item_ids[0]: model.scale[1]} if len(model.item_ids) else {}
    alone, moved = (model.encode({"history": each}) for each in ({}, rated))
    takes_history = not np.array_equal(alone.vectors, moved.vectors)
    fields = fields_of(model.features)
    card = orjson.dumps(_card(model, version, fields, list(alone.weights), takes_history))
    return Served(model, version, Catalogue(model), Encodings(model), fields, card)


def _card(
    model: Recommender,
    version: str,
    fields: dict[str, Field],
    groups: list[str],
    takes_history: bool,
) -> dict[str, Any]:
    return {
        "model": version,
        "method": model.name,
        "n_bits": model.items.n_bits,
        "n_items": len(model.item_ids),
        "n_users": len(model.user_ids),
        "scale": list(model.scale),
        "scores": ["real", "hamming"] if model.has_codes else ["real"],
        "groups": groups,
        "fields": [field.as_json() for field in fields.values()],
        "takes_history": takes_history,
    }


def _read(path: Path) -> tuple[Served, Stamp]:
    """Load a file, and see to it that the version is that of what was loaded."""
    for _ in range(TRIES):
        before = _stamp(path)
        model = load(path, copy_up_to=COPIED)
        version = _checksum(path)
        if before is not None and before == _stamp(path):
            return made_ready(model, version), before
    raise SourceError(f"{path} is replaced faster than it can be read")


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = os.stat(path)
    except OSError:  # between two files: the old one is still served
        return None
    # the time of the last change, too: a program can set all others back
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _told(error: Exception, path: Path, before: Stamp | None, now: Stamp) -> Exception:
    """Return the error to log, which is another one if the served model is mapped and damaged."""
    _, _, size, *_ = before or now
    if before is None or before[:2] != now[:2] or before == now or size <= COPIED:
        return error
    return SourceError(
        f"{path} was changed in place while it is served, so answers may be wrong: {error}",
        hint="put the file there again by mv, or restart with a good one",
    )


def _checksum(path: Path) -> str:
    with open_regular(path) as file:
        file.seek(-N_CHECKSUM, os.SEEK_END)
        return file.read().hex()[:N_VERSION]


def _digest(model: Recommender) -> str:
    """Name a model that has no file by what it answers with."""
    digest = hashlib.sha256(repr((model.name, model.settings)).encode())
    _, encoder = model.encoder.state()
    for arrays in (model.items.arrays(), encoder, model.item_ids.arrays()):
        for array in arrays.values():
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:N_VERSION]
