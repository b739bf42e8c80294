"""The model that is served: its catalogue, and how another model takes its place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property, partial, reduce
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from coldhash import __version__
from coldhash.errors import SourceError
from coldhash.features.columns import Given, Words
from coldhash.features.people import ANSWERS, HISTORY
from coldhash.files import lock_file, open_regular, reason_of, replace_file
from coldhash.recommender.encoders import Encoded
from coldhash.recommender.model_file import file_date, read_version
from coldhash.recommender.persistence import check_answers, load
from coldhash.recommender.recommender import USER_ID, Recommender
from coldhash.recommender.results import Row
from coldhash.serve.schemas import Person, RequestTypes, item_columns, person_fields

MAX_TITLE = 300  # characters of a title that are sent; the search is in all of it
MAX_SHOWN = 3  # columns of an item on the page


def cut_title(item: Row) -> Row:
    """Return an item with a title of a length that may be sent, None if it has none."""
    title = item.get("title")
    if title is not None and len(title) <= MAX_TITLE:
        return item
    return item | {"title": None if title is None else title[: MAX_TITLE - 1] + "…"}


COPY_HINT = "name a folder with more room in TMPDIR"
LOCK, NEW, ACCEPTED = "lock", ".new", ".accepted"  # names of copies that workers share
IN_MEMORY = "memory"  # the version of a model that has no file
MAX_CACHED = 4096  # answers to strangers
MAX_CACHED_ANSWER = 4096  # bytes

Stamp = tuple[int, ...]  # identifies the content of a file: device, inode, size and times
# a private copy of a model file, which a change of the file in place does not reach; its stamp
ModelCopy = tuple[BinaryIO, Stamp]


class PersonAnswer(NamedTuple):
    """An answer to one person as JSON, and what is counted of it."""

    body: bytes
    fallback: bool
    missing: list[str]  # groups
    is_known: bool = False  # a user of the training data


class ServedModel:
    """A checked model with what requests need of it."""

    def __init__(self, model: Recommender, version: str, stamp: Stamp | None = None) -> None:
        self.model = model
        self.version = version
        self.stamp = stamp  # of the model file
        self.fields = person_fields(model.features)
        self.card = orjson.dumps(self._make_card(), option=orjson.OPT_SERIALIZE_NUMPY)
        self.types = cache(partial(RequestTypes, model))  # by the limits of the server
        # to requests: many strangers are alike
        self.answers: OrderedDict[bytes, PersonAnswer] = OrderedDict()

    def cache_answer(self, request: bytes, person: Person, answer: PersonAnswer) -> None:
        """Keep the answer to a short request about a stranger without a history or an id."""
        is_short = len(answer.body) <= MAX_CACHED_ANSWER
        if is_short and not any(map(person.get, (HISTORY, ANSWERS, USER_ID))):
            if len(self.answers) >= MAX_CACHED:
                self.answers.popitem(last=False)
            self.answers[request] = answer

    def search_items(self, text: str, limit: int) -> np.ndarray:
        """Find rows by a part of title or id: those that start with it first, popular ones first.

        The empty text finds the most popular items.
        """
        wanted = "".join(map(str.lower, text.strip()))  # letter by letter, as Arrow does it

        def match(test: pc.Function) -> pa.Array:
            found = [pc.and_kleene(each.is_valid(), test(each, wanted)) for each in self._lowered]
            return reduce(pc.or_, found)

        starts = match(pc.starts_with)
        masks = (starts, pc.and_not(match(pc.match_substring), starts))
        places = pa.concat_arrays([pc.indices_nonzero(mask) for mask in masks])[:limit]
        return np.asarray(self.model.items.order[places.to_pylist()])

    @cached_property
    def _lowered(self) -> list[pa.Array]:
        """Lower-case texts to search in, the most popular item first.

        A large catalogue stays in the mapped copy of the file, which all workers share; only these
        texts are made in memory, by the first search. That takes no part of Arrow which imports
        pandas, where it is installed: `pa.array`, `pa.scalar` and the like.
        """
        rows = self.model.items.order.astype(np.int64)
        order = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
        texts = (self.model.item_ids.values, self.model.titles)
        return [pc.utf8_lower(text.take(order)) for text in texts if text is not None]

    def describe(self, encoded: Encoded) -> list[Row]:
        """Return the code of each person, the weights of the groups, and what was ignored."""
        n_bits, codes = self.model.items.n_bits, [None] * len(encoded.vectors)
        if n_bits is not None:
            # the bytes of codes.pack(signs(vectors)), without its checks
            bits = np.packbits(encoded.vectors >= 0, axis=1, bitorder="little")
            codes = [code.tobytes().hex() for code in bits]
        ignored: list[list[str]] = [[] for _ in codes]
        for place, item_id in encoded.ignored:
            ignored[place].append(item_id)
        weights = {group: shares.tolist() for group, shares in encoded.weights.items()}
        return [
            {
                "code": codes[place],
                "n_bits": n_bits,
                "weights": {group: shares[place] for group, shares in weights.items()},
                "fallback": fallback,
                "ignored": ignored[place],
                "model": self.version,
            }
            for place, fallback in enumerate(encoded.fallback.tolist())
        ]

    def _make_card(self) -> Row:
        """Return what `/v1/model` says."""
        model, columns = self.model, item_columns(self.model)
        rated = {model.item_ids[0]: model.scale[1]} if len(model.item_ids) else {}
        without, with_rating = (model.encode({HISTORY: history}) for history in ({}, rated))
        content = model.features.content.columns
        # what tells most of an item in few words: labels, numbers and dates
        short = [name for name, column in content.items() if not isinstance(column, Words | Given)]
        return {
            "model": self.version,
            "coldhash": __version__,
            "date": None if self.stamp is None else file_date(self.stamp[3]),
            "n_ratings": len(model.seen.indices),
            "feedback": model.feedback.kind,
            "method": model.name,
            "n_bits": model.items.n_bits,
            "n_items": len(model.item_ids),
            "n_users": len(model.user_ids),
            "scale": list(model.scale),
            "scores": ["real", "hamming"] if model.has_codes else ["real"],
            "groups": list(without.weights),
            "fields": list(self.fields.values()),
            "takes_answers": model.encoder.answers is not None,
            "takes_history": not np.array_equal(without.vectors, with_rating.vectors),
            "has_level": model.items.levels is not None,
            "labels": model.features.labels,
            "shown_fields": [name for name in short if name in columns][:MAX_SHOWN],
            "judged": model.report.get("judged"),
            "item_fields": [{"name": name, "kind": kind} for name, kind in columns.items()],
        }


class ModelRegistry:
    """Holds the current model; `refresh` replaces it if its file has changed.

    A copy of the file is served. Processes with the same folder `copies` share it, and a process
    that starts later begins with the last one that was accepted, so that a damaged file in its
    place does not keep it from starting. A bad model or file is an error of the constructor.
    """

    def __init__(self, source: Recommender | str | Path, copies: Path | None = None) -> None:
        self._path: Path | None = None
        self._stamp: Stamp | None = None
        self._copies = copies
        if isinstance(source, Recommender):
            check_answers(source)
            self.current = ServedModel(source, IN_MEMORY)
        else:
            self._path = Path(source)
            accepted = None if copies is None else _open_accepted(copies)
            self.current = self._load(accepted or copy_model(self._path, copies))

    def refresh(self, force: bool = False) -> bool:
        """Serve a new file, or raise an error about it and keep the current model.

        A refused file is not tried again until it changes, unless by `force`. Returns whether
        another model is served.
        """
        if self._path is None:
            return False
        try:
            stamp = _stamp(os.stat(self._path))
        except OSError:  # between two files: the old one is still served
            return False
        if stamp == self._stamp and not force:
            return False
        self._stamp = stamp
        new = self._load(copy_model(self._path, self._copies))
        if new.version == self.current.version:
            return False
        self.current = new
        return True

    def _load(self, copy: ModelCopy) -> ServedModel:
        assert self._path is not None
        file, self._stamp = copy
        with file:
            model = load(self._path, file=file)
            served = ServedModel(model, read_version(file), self._stamp)
        if self._copies is not None:
            _accept_copy(self._copies, self._stamp)
        return served


def copy_model(path: Path, folder: Path | None = None) -> ModelCopy:
    """Copy a model file to a temporary file without a name, or to one in `folder`.

    There it is named after the stamp: other processes that copy the same file get the same copy. A
    file that is changed while it is copied is noticed by its checksum.
    """
    with open_regular(path) as file, explain_failure(f"cannot copy {path}", COPY_HINT):
        stamp = _stamp(os.fstat(file.fileno()))
        if folder is None:
            with ExitStack() as stack:
                copy = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(file, copy)
                copy.flush()
                stack.pop_all()  # it stays open
            return copy, stamp
        with lock_file(folder / LOCK):  # one process copies, the others wait
            place = next(folder.glob(f"{_name(stamp)}.*"), None)
            if place is None:
                for refused in folder.glob(f"*{NEW}"):
                    refused.unlink()
                place = folder / f"{_name(stamp)}{NEW}"
                with replace_file(place) as draft:
                    shutil.copyfileobj(file, draft)
            return place.open("rb"), stamp


def _accept_copy(folder: Path, stamp: Stamp) -> None:
    """Let processes that start later begin with a copy, unless there is a newer one already."""
    place = folder / f"{_name(stamp)}{NEW}"
    with lock_file(folder / LOCK):
        if place.exists():
            for earlier in folder.glob(f"*{ACCEPTED}"):  # who serves it has it open
                earlier.unlink()
            place.rename(place.with_suffix(ACCEPTED))


def _open_accepted(folder: Path) -> ModelCopy | None:
    with lock_file(folder / LOCK):
        for place in folder.glob(f"*{ACCEPTED}"):
            return place.open("rb"), tuple(map(int, place.stem.split("_")))
    return None


@contextmanager
def explain_failure(message: str, hint: str) -> Iterator[None]:
    """Raise an error of the operating system as one of ours."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{message}: {reason_of(error)}", hint=hint) from None


def _name(stamp: Stamp) -> str:
    return "_".join(map(str, stamp))


def _stamp(stat: os.stat_result) -> Stamp:
    # the time of the last change, too: a program can set all others back
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
