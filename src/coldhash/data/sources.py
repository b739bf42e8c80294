"""The known data sets: one reader each, from a folder or a zip archive."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data.dataset import Dataset
from coldhash.data.ids import Ids
from coldhash.data.plan import (
    Category,
    FeaturePlan,
    MultiLabel,
    Number,
    Preference,
    Text,
)
from coldhash.data.ratings import Ratings
from coldhash.data.sample import read_sample
from coldhash.data.tables import ID_TYPE, TableFile, infer_types
from coldhash.errors import SettingError, SourceError


def read(name: str, path: str | Path | None = None, **options: Any) -> Dataset:
    """Read a known data set.

    Parameters
    ----------
    name
        `ml-1m`, `ml-100k`, `book-crossing`, or `sample`, which needs no file.
    path
        The folder or the zip archive that holds it; `coldhash fetch NAME` downloads one.
    options
        `book-crossing`: `raw=True` leaves out the filter. `sample`: `seed`, `n_users`, `n_items`,
        `ratings_per_user`.

    Examples
    --------
    >>> data = read("sample", n_users=200, n_items=100)
    >>> data.ratings.matrix.shape
    (200, 100)
    """
    if name not in SOURCES:
        raise SettingError(
            f"no data set is called {name!r}",
            hint=f"one of {', '.join(SOURCES)}; your own tables: Dataset.from_tables(...)",
        )
    reader, needs_path, allowed = SOURCES[name]
    unknown = sorted(set(options) - allowed)
    if unknown:
        raise SettingError(
            f"{name} has no option {unknown[0]!r}",
            hint=f"it has: {', '.join(sorted(allowed)) or 'none'}",
        )
    if not needs_path:
        return reader(**options)
    if path is None:
        raise SettingError(
            f"{name} needs the path of its folder or archive",
            hint=f"`coldhash fetch {name} --to DIR` downloads it",
        )
    return reader(Path(path), **options)


def _ml_1m(path: Path) -> Dataset:
    """Read MovieLens-1M: 6,040 users and the movie ids 1 to 3,952, of which 3,883 are listed."""
    numbers = ("user_id", "item_id", "rating", "timestamp")
    ratings = _file(path, "ratings.dat", names=numbers, separator="::", quote=None)
    users = _file(
        path,
        "users.dat",
        names=("user_id", "gender", "age", "occupation", "zip"),
        separator="::",
        quote=None,
    )
    items = _file(
        path,
        "movies.dat",
        names=("item_id", "title", "genres"),
        separator="::",
        quote=None,
        encoding="latin-1",
    )
    movies = _with_year(_read_all(items))
    every_id = pa.array(range(1, 3953)).cast(pa.string())
    movies = pa.table({"item_id": every_id}).join(movies, "item_id").sort_by("item_id")
    movies = movies.take(pc.index_in(every_id, movies.column("item_id").combine_chunks()))
    return Dataset.from_tables(
        ratings, users, movies, plan=_movie_plan(), scale=(1.0, 5.0), name="ml-1m"
    )


def _ml_100k(path: Path) -> Dataset:
    """Read MovieLens-100K: 943 users, 1,682 movies, genres as 19 columns of 0 and 1."""
    columns = ("user_id", "item_id", "rating", "timestamp")
    ratings = _file(path, "u.data", names=columns, separator="\t", quote=None)
    users = _file(
        path,
        "u.user",
        names=("user_id", "age", "gender", "occupation", "zip"),
        separator="|",
        quote=None,
    )
    head = ("item_id", "title", "released", "video", "address")
    items = _file(
        path, "u.item", names=head + GENRES, separator="|", quote=None, encoding="latin-1"
    )
    table = _read_all(items)
    flags = np.column_stack([table.column(genre).to_numpy() == "1" for genre in GENRES])
    labels = [[g for g, flag in zip(GENRES, row, strict=True) if flag] for row in flags]
    movies = pa.table(
        {
            "item_id": table.column("item_id"),
            "title": table.column("title"),
            "genres": pa.array(["|".join(row) or None for row in labels]),
        }
    )
    return Dataset.from_tables(
        ratings, users, _with_year(movies), plan=_movie_plan(), scale=(1.0, 5.0), name="ml-100k"
    )


GENRES = tuple(
    "unknown Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy "
    "Film-Noir Horror Musical Mystery Romance Sci-Fi Thriller War Western".split()
)


def _movie_plan() -> FeaturePlan:
    one_hot = Category(min_count=1)
    return FeaturePlan(
        users={"demographics": {"gender": one_hot, "age": one_hot, "occupation": one_hot}},
        items={"content": {"genres": MultiLabel(), "title": Text(), "year": Number()}},
        preference=Preference(),
    )


def _with_year(movies: pa.Table) -> pa.Table:
    """Take the year out of a title such as "Heat (1995)"."""
    parts = pc.extract_regex(movies.column("title"), r"^(?P<title>.*?)\s*\((?P<year>\d{4})\)\s*$")
    title = pc.coalesce(pc.struct_field(parts, "title"), movies.column("title"))
    at = movies.column_names.index("title")
    year = pc.struct_field(parts, "year").cast(pa.int64())
    return movies.set_column(at, "title", title).append_column("year", year)


def _book_crossing(path: Path, raw: bool = False) -> Dataset:
    """Read Book-Crossing: by default the part that published results use, or all of it.

    The filter, one pass each in this order: ratings, explicit and implicit, of listed books;
    books with more than 20 ratings; users with a known age and country; users with more than 20
    remaining ratings. It leaves 2,151 users, 6,830 books and 180,595 ratings. A rating of 0 says
    that a book was read and not rated: it is kept as a rating of 0.
    """
    style = {"separator": ";", "encoding": "latin-1", "escape": "\\"}
    users = infer_types(_read_all(_file(path, "BX-Users.csv", **style)), keep="User-ID")
    books = _read_all(_file(path, "BX-Books.csv", **style))
    ratings = _file(path, "BX-Book-Ratings.csv", **style).read(
        lambda _: {"User-ID": ID_TYPE, "ISBN": ID_TYPE, "Book-Rating": pa.float32()}
    )
    users = pa.table(
        {
            "user_id": users.column("User-ID"),
            "age": users.column("Age"),
            **_places(users.column("Location")),
        }
    )
    books = pa.table(
        {
            "item_id": books.column("ISBN"),
            "title": books.column("Book-Title"),
            "author": books.column("Book-Author"),
            "publisher": books.column("Publisher"),
            "year": _years(books.column("Year-Of-Publication")),
        }
    )
    rated = Ratings.from_columns(
        ratings.column("User-ID"),
        ratings.column("ISBN"),
        ratings.column("Book-Rating"),
        scale=(0.0, 10.0),
        duplicates="last",
    )
    if not raw:
        rated = _often_rated(rated, users, books)
        users = _aligned(users, "user_id", rated.users)
        books = _aligned(books, "item_id", rated.items)
    return _assemble(rated, users, books)


def _often_rated(rated: Ratings, users: pa.Table, books: pa.Table) -> Ratings:
    listed = rated.items.find(books.column("item_id"))
    rated = rated.of_items(np.sort(listed[listed >= 0]))
    rated = rated.of_items(np.flatnonzero(rated.per_item > 20))
    known = pc.and_(pc.is_valid(users.column("age")), pc.is_valid(users.column("country")))
    known_rows = rated.users.find(users.column("user_id").filter(known))
    rated = rated.of_users(np.sort(known_rows[known_rows >= 0]))
    rated = rated.of_users(np.flatnonzero(rated.per_user > 20))
    return rated.of_items(np.flatnonzero(rated.per_item > 0))


def _aligned(table: pa.Table, key: str, ids: Ids) -> pa.Table:
    return table.take(pa.array(Ids.of(table.column(key)).rows(ids.values)))


def _assemble(rated: Ratings, users: pa.Table, books: pa.Table) -> Dataset:
    """Put ratings and tables together whatever their order."""
    user_rows, item_rows = (
        np.repeat(np.arange(len(rated.users)), rated.per_user),
        rated.matrix.indices,
    )
    return Dataset.from_tables(
        {
            "user_id": rated.users.values.take(pa.array(user_rows)),
            "item_id": rated.items.values.take(pa.array(item_rows)),
            "rating": rated.matrix.data,
        },
        users,
        books,
        plan=FeaturePlan(
            users={
                "demographics": {
                    "age": Number(),
                    "country": Category(),
                    "state": Category(),
                }
            },
            items={
                "content": {
                    "author": Category(),
                    "publisher": Category(),
                    "title": Text(),
                }
            },
            preference=Preference(),
        ),
        scale=(0.0, 10.0),
        name="book-crossing",
    )


def _places(location: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Split "city, state, country"; an empty part or "n/a" is unknown."""
    parts = [text.split(",") if text else [] for text in location.to_pylist()]

    def part(at: int) -> pa.Array:
        named = ((row[at].strip() if len(row) >= -at else "") for row in parts)
        return pa.array([name if name not in ("", "n/a") else None for name in named], pa.string())

    return {"country": part(-1), "state": part(-2)}


def _years(column: pa.ChunkedArray) -> pa.Array:
    """Years of publication; 0 and what is not a number are unknown."""
    years = (int(text) if text and text.isdecimal() else 0 for text in column.to_pylist())
    return pa.array([year or None for year in years], pa.int64())


def _file(path: Path, name: str, **style: Any) -> TableFile:
    """Find a data set's file in a folder or a zip archive, at the top or one folder down."""
    if path.is_dir():
        for found in (path / name, *sorted(path.glob(f"*/{name}"))):
            if found.is_file():
                return TableFile(path=found, **style)
        archives = sorted(path.glob("*.zip"))
        for archive in archives:
            if _member(archive, name):
                return _file(archive, name, **style)
        raise SourceError(f"{path} holds no {name}", hint="`coldhash fetch` downloads data sets")
    if not path.exists():
        raise SourceError(f"{path} does not exist", hint="`coldhash fetch` downloads data sets")
    member = _member(path, name)
    if member is None:
        raise SourceError(f"{path} holds no {name}")
    return TableFile(path=path, member=member, **style)


def _member(archive: Path, name: str) -> str | None:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"{archive}: not a zip archive: {error}") from None
    return next((found for found in names if found.rsplit("/", 1)[-1] == name), None)


def _read_all(file: TableFile) -> pa.Table:
    return file.read(lambda _: {})


SOURCES: dict[str, tuple[Callable[..., Dataset], bool, set[str]]] = {
    "ml-1m": (_ml_1m, True, set()),
    "ml-100k": (_ml_100k, True, set()),
    "book-crossing": (_book_crossing, True, {"raw"}),
    "sample": (read_sample, False, {"seed", "n_users", "n_items", "ratings_per_user"}),
}
