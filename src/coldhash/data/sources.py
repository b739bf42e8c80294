"""The known data sets: one reader each, from a folder or a zip archive."""

from __future__ import annotations

import inspect
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data.dataset import Dataset
from coldhash.data.feedback import FeedbackKind
from coldhash.data.sample import read_sample
from coldhash.data.tables import TableFile, TableLike
from coldhash.errors import SettingError, SourceError

KNOWN = tomllib.loads(Path(__file__).with_name("known.toml").read_text(encoding="utf-8"))
_COUNTRY = r"(?:^|,)\s*(?P<country>[^,]*?)\s*$"
_STATE = r"(?:^|,)\s*(?P<state>[^,]*?)\s*,[^,]*$"


def read(
    name: str,
    path: str | Path | None = None,
    *,
    feedback: FeedbackKind | None = None,
    favourite: float | None = None,
    **options: object,
) -> Dataset:
    """Read a known data set.

    Parameters
    ----------
    name : str
        `ml-1m`, `ml-100k`, `book-crossing`, `complete-journey`, `jester`, or `sample`, which needs
        no file.
    path : str or Path, optional
        The folder or the zip archive that holds it; `coldhash fetch NAME` downloads the first
        three.
    feedback, favourite : optional
        What the ratings are, and which of them make an item a favourite, as for
        `Dataset.from_tables`.
    **options
        `book-crossing`: `raw=True` omits the filter. `sample`: `seed`, `n_users`, `n_items`.

    Returns
    -------
    Dataset

    Raises
    ------
    SettingError
        If the name or an option is unknown, or the path is missing.
    SourceError
        If a file cannot be found or read.

    Examples
    --------
    >>> data = read("sample", n_users=200, n_items=100)
    >>> data.ratings.matrix.shape
    (200, 100)
    """
    if name not in SOURCES:
        hint = f"one of {', '.join(SOURCES)}; your own tables: Dataset.from_tables(...)"
        raise SettingError(f"no data set is called {name!r}", hint=hint)
    if name != "sample":
        if path is None:
            can_fetch = "archive" in KNOWN[name]
            hint = f"`coldhash fetch {name} --to DIR` downloads it" if can_fetch else "path=..."
            raise SettingError(f"{name} needs the path of its folder or archive", hint=hint)
        options = {"path": Path(path), **options}
    signature = inspect.signature(SOURCES[name])
    try:
        signature.bind(**options)
    except TypeError as error:
        hint = f"it takes {', '.join(signature.parameters)}".replace("path", "path (--data)")
        raise SettingError(f"{name}: {error}", hint=hint) from None
    data = SOURCES[name](**options)
    is_as_usual = feedback is None and favourite is None
    return data if is_as_usual else data.with_feedback(feedback, favourite)


def _build(name: str, ratings: TableLike, users: TableLike | None, items: TableLike) -> Dataset:
    own = KNOWN[name]
    return Dataset.from_tables(ratings, users, items, plan=own["plan"], name=name, **own["options"])


def _read_ml_1m(path: Path) -> Dataset:
    """Read MovieLens-1M: 6,040 users and the movie ids 1 to 3,952, of which 3,883 are listed."""
    ratings, users, movies = _find_files("ml-1m", path)
    table = movies.read()
    every_id = pa.array(range(1, 3953)).cast(pa.string())
    rows = pc.index_in(every_id, table.column("item_id").combine_chunks())
    table = table.take(rows).set_column(0, "item_id", every_id)
    return _build("ml-1m", ratings, users, _split_titles(table))


def _read_ml_100k(path: Path) -> Dataset:
    """Read MovieLens-100K: 943 users, 1,682 movies, genres as 19 columns of 0 and 1."""
    ratings, users, movies = _find_files("ml-100k", path)
    table = movies.read()
    names = np.array(table.column_names[-19:])
    flags = np.column_stack([table.column(genre).to_numpy() == "1" for genre in names])
    genres = pa.array(["|".join(names[row]) or None for row in flags])
    return _build("ml-100k", ratings, users, _split_titles(table.append_column("genres", genres)))


def _split_titles(movies: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Take the year out of titles such as "Heat (1995)"."""
    parts = pc.extract_regex(movies.column("title"), r"^(?P<title>.*?)\s*\((?P<year>\d{4})\)\s*$")
    return {
        "item_id": movies.column("item_id"),
        "title": pc.coalesce(pc.struct_field(parts, "title"), movies.column("title")),
        "genres": movies.column("genres"),
        "year": pc.struct_field(parts, "year").cast(pa.int64()),
    }


def _read_book_crossing(path: Path, raw: bool = False) -> Dataset:
    """Read Book-Crossing: by default the part that published results use, or all of it.

    The filter, one pass each in this order: ratings, explicit and implicit, of listed books;
    books with more than 20 ratings; users with a known age and country; users with more than 20
    remaining ratings. It leaves 2,151 users, 6,830 books and 180,595 ratings. A rating of 0 means
    that a book was read and not rated: it is kept as a rating of 0.
    """
    ratings, users, books = (file.read() for file in _find_files("book-crossing", path))
    people = {
        "user_id": users.column("User-ID"),
        "age": users.column("Age"),
        "country": _find_place(users.column("Location"), _COUNTRY),
        "state": _find_place(users.column("Location"), _STATE),
    }
    table = {
        "item_id": books.column("ISBN"),
        "title": books.column("Book-Title"),
        "author": books.column("Book-Author"),
        "publisher": books.column("Publisher"),
        "year": _read_years(books.column("Year-Of-Publication")),
    }
    data = _build("book-crossing", ratings, people, table)
    return data if raw else _filter_books(data, ratings, books.column("ISBN"))


def _filter_books(data: Dataset, ratings: pa.Table, books: pa.ChunkedArray) -> Dataset:
    """Apply the filter; users and books come in the order in which they occur in the ratings."""
    raters, rated = (pc.unique(ratings.column(name)) for name in ("User-ID", "ISBN"))
    listed = rated.filter(pc.is_in(rated, books.combine_chunks()))
    data = data.of_users(data.user_ids.rows(raters)).of_items(data.item_ids.rows(listed))
    data = data.of_items(np.flatnonzero(data.ratings.per_item > 20))
    known = pc.and_(*(pc.is_valid(data.users.column(name)) for name in ("age", "country")))
    data = data.of_users(np.flatnonzero(known))
    data = data.of_users(np.flatnonzero(data.ratings.per_user > 20))
    return data.of_items(np.flatnonzero(data.ratings.per_item > 0))


def _read_complete_journey(path: Path) -> Dataset:
    """Read The Complete Journey: what 2,469 households bought in a year, 801 of them described.

    A product counts once for each household that bought it, at the time of the first purchase.
    """
    purchases, households, products = _find_files("complete-journey", path)
    latest_first = purchases.read().sort_by([("transaction_timestamp", "descending")])
    described = KNOWN["complete-journey"]["plan"]["items"]["content"]
    table = products.read().select(["product_id", *described])
    data = _build("complete-journey", latest_first, households, table)
    return data.of_items(np.flatnonzero(data.ratings.per_item))


def _read_jester(path: Path) -> Dataset:
    """Read Jester: 5,000 people and 100 jokes, -9.95 to 9.9; a favourite has 5 or more."""
    ratings, jokes = _find_files("jester", path)
    return _build("jester", ratings, None, jokes)


def _find_place(location: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Find a part of "city, state, country"; an empty one or "n/a" is unknown."""
    part = pc.struct_field(pc.extract_regex(location, pattern), 0)
    return pc.if_else(pc.is_in(part, pa.array(["", "n/a"])), None, part)


def _read_years(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Read years of publication; 0 and what is not a number are unknown."""
    is_year = pc.match_substring_regex(column, r"^0*[1-9][0-9]*$")
    return pc.if_else(is_year, column, None).cast(pa.int64())


def _find_files(name: str, path: Path) -> list[TableFile]:
    """Find the files of a data set in a folder or archive, or in one within the folder."""
    files = KNOWN[name]["files"]
    for found in map(_list_files, [path, *sorted(path.glob("*"))]):
        if files.keys() <= found.keys():
            return [TableFile(**found[file], **style) for file, style in files.items()]
    reason = f"holds no {' or no '.join(files)}" if path.exists() else "does not exist"
    raise SourceError(f"{path} {reason}", hint="`coldhash fetch` downloads data sets")


def _list_files(place: Path) -> dict[str, dict[str, Any]]:
    """Return where the files of a folder or zip archive are, by name."""
    if place.is_dir():
        return {file.name: {"path": file} for file in place.iterdir()}
    try:
        with zipfile.ZipFile(place) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return {}
    return {name.rsplit("/", 1)[-1]: {"path": place, "member": name} for name in members}


SOURCES: dict[str, Callable[..., Dataset]] = {
    "ml-1m": _read_ml_1m,
    "ml-100k": _read_ml_100k,
    "book-crossing": _read_book_crossing,
    "complete-journey": _read_complete_journey,
    "jester": _read_jester,
    "sample": read_sample,
}
