"""The known data sets: one reader each, from a folder or a zip archive."""

from __future__ import annotations

import inspect
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldhash.data.dataset import Dataset
from coldhash.data.ids import Ids
from coldhash.data.plan import Category, FeaturePlan
from coldhash.data.ratings import Ratings
from coldhash.data.sample import read_sample
from coldhash.data.tables import TableFile, infer_types
from coldhash.errors import SettingError, SourceError

_RATING_COLUMNS = ("user_id", "item_id", "rating", "timestamp")
_GENRES = tuple(
    "unknown Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy "
    "Film-Noir Horror Musical Mystery Romance Sci-Fi Thriller War Western".split()
)
_MOVIE_PLAN = FeaturePlan(
    users={"demographics": dict.fromkeys(("gender", "age", "occupation"), Category(min_count=1))},
    items={"content": {"genres": "multi-label", "title": "text", "year": "number"}},
    preference={},
)
_BOOK_PLAN = FeaturePlan(
    users={"demographics": {"age": "number", "country": "category", "state": "category"}},
    items={"content": {"author": "category", "publisher": "category", "title": "text"}},
    preference={},
)


def read(name: str, path: str | Path | None = None, **options: float | bool) -> Dataset:
    """Read a known data set.

    Parameters
    ----------
    name : str
        `ml-1m`, `ml-100k`, `book-crossing`, or `sample`, which needs no file.
    path : str or Path, optional
        The folder or the zip archive that holds it; `coldhash fetch NAME` downloads one.
    **options
        `book-crossing`: `raw=True` omits the filter. `sample`: `seed`, `n_users`, `n_items`,
        `ratings_per_user`.

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
        raise SettingError(
            f"no data set is called {name!r}",
            hint=f"one of {', '.join(SOURCES)}; your own tables: Dataset.from_tables(...)",
        )
    reader = SOURCES[name]
    allowed = inspect.signature(reader).parameters.keys()
    for option in sorted(options):
        if option not in allowed:
            known = ", ".join(sorted(allowed - {"path"})) or "none"
            raise SettingError(f"{name} has no option {option!r}", hint=f"it has: {known}")
    if "path" not in allowed:
        return reader(**options)
    if path is None:
        raise SettingError(
            f"{name} needs the path of its folder or archive",
            hint=f"`coldhash fetch {name} --to DIR` downloads it",
        )
    return reader(Path(path), **options)


def _read_ml_1m(path: Path) -> Dataset:
    """Read MovieLens-1M: 6,040 users and the movie ids 1 to 3,952, of which 3,883 are listed."""

    def file(name: str, names: tuple[str, ...], encoding: str = "utf-8") -> TableFile:
        return _find_file(path, name, names=names, separator="::", quote=None, encoding=encoding)

    path = _find_set(path, "movies.dat", "ratings.dat", "users.dat")
    listed = file("movies.dat", ("item_id", "title", "genres"), "latin-1").read()
    every_id = pa.array(range(1, 3953)).cast(pa.string())
    rows = pc.index_in(every_id, listed.column("item_id").combine_chunks())
    movies = _split_year(listed.take(rows).set_column(0, "item_id", every_id))
    ratings = file("ratings.dat", _RATING_COLUMNS)
    users = file("users.dat", ("user_id", "gender", "age", "occupation", "zip"))
    return _movie_data(ratings, users, movies, "ml-1m")


def _read_ml_100k(path: Path) -> Dataset:
    """Read MovieLens-100K: 943 users, 1,682 movies, genres as 19 columns of 0 and 1."""

    def file(name: str, names: tuple[str, ...], separator: str = "|") -> TableFile:
        style = {"separator": separator, "encoding": "latin-1"}
        return _find_file(path, name, names=names, quote=None, **style)

    columns = ("item_id", "title", "released", "video", "address", *_GENRES)
    listed = file("u.item", columns).read()
    flags = np.column_stack([listed.column(genre).to_numpy() == "1" for genre in _GENRES])
    genres = ["|".join(np.array(_GENRES)[row]) or None for row in flags]
    movies = listed.select(["item_id", "title"]).append_column("genres", pa.array(genres))
    ratings = file("u.data", _RATING_COLUMNS, "\t")
    users = file("u.user", ("user_id", "age", "gender", "occupation", "zip"))
    return _movie_data(ratings, users, _split_year(movies), "ml-100k")


def _movie_data(ratings: TableFile, users: TableFile, movies: pa.Table, name: str) -> Dataset:
    return Dataset.from_tables(
        ratings, users, movies, plan=_MOVIE_PLAN, scale=(1.0, 5.0), name=name
    )


def _split_year(movies: pa.Table) -> pa.Table:
    """Take the year out of titles such as "Heat (1995)"."""
    parts = pc.extract_regex(movies.column("title"), r"^(?P<title>.*?)\s*\((?P<year>\d{4})\)\s*$")
    title = pc.coalesce(pc.struct_field(parts, "title"), movies.column("title"))
    at = movies.column_names.index("title")
    year = pc.struct_field(parts, "year").cast(pa.int64())
    return movies.set_column(at, "title", title).append_column("year", year)


_BOOK_FILES = ("BX-Users.csv", "BX-Books.csv", "BX-Book-Ratings.csv")


def _read_book_crossing(path: Path, raw: bool = False) -> Dataset:
    """Read Book-Crossing: by default the part that published results use, or all of it.

    The filter, one pass each in this order: ratings, explicit and implicit, of listed books;
    books with more than 20 ratings; users with a known age and country; users with more than 20
    remaining ratings. It leaves 2,151 users, 6,830 books and 180,595 ratings. A rating of 0 means
    that a book was read and not rated: it is kept as a rating of 0.
    """
    path = _find_set(path, *_BOOK_FILES)
    users, books, ratings = (
        _find_file(path, name, separator=";", encoding="latin-1", escape="\\").read()
        for name in _BOOK_FILES
    )
    users = infer_types(users, keep="User-ID")
    country, state = _split_places(users.column("Location"))
    users = users.select(["User-ID", "Age"]).rename_columns(["user_id", "age"])
    users = users.append_column("country", country).append_column("state", state)
    years = _read_years(books.column("Year-Of-Publication"))
    books = books.select(["ISBN", "Book-Title", "Book-Author", "Publisher"])
    books = books.rename_columns(["item_id", "title", "author", "publisher"])
    books = books.append_column("year", years)
    rated = Ratings.from_columns(
        ratings.column("User-ID"),
        ratings.column("ISBN"),
        ratings.column("Book-Rating").cast(pa.float32()),
        scale=(0.0, 10.0),
        duplicates="last",
    )
    if not raw:
        rated = _filter_books(rated, users, books)
        users = users.take(pa.array(Ids.of(users.column("user_id")).rows(rated.users.values)))
        books = books.take(pa.array(Ids.of(books.column("item_id")).rows(rated.items.values)))
    user_rows = np.repeat(np.arange(len(rated.users)), rated.per_user)
    return Dataset.from_tables(
        {
            "user_id": rated.users.values.take(pa.array(user_rows)),
            "item_id": rated.items.values.take(pa.array(rated.matrix.indices)),
            "rating": rated.matrix.data,
        },
        users,
        books,
        plan=_BOOK_PLAN,
        scale=(0.0, 10.0),
        name="book-crossing",
    )


def _filter_books(rated: Ratings, users: pa.Table, books: pa.Table) -> Ratings:
    listed = rated.items.find(books.column("item_id"))
    rated = rated.of_items(np.sort(listed[listed >= 0]))
    rated = rated.of_items(np.flatnonzero(rated.per_item > 20))
    known = pc.and_(pc.is_valid(users.column("age")), pc.is_valid(users.column("country")))
    known_rows = rated.users.find(users.column("user_id").filter(known))
    rated = rated.of_users(np.sort(known_rows[known_rows >= 0]))
    rated = rated.of_users(np.flatnonzero(rated.per_user > 20))
    return rated.of_items(np.flatnonzero(rated.per_item > 0))


def _split_places(location: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Split "city, state, country" into country and state; an empty part or "n/a" is unknown."""
    parts = [text.split(",") if text else [] for text in location.to_pylist()]

    def part(at: int) -> pa.Array:
        named = ((row[at].strip() if len(row) >= -at else "") for row in parts)
        return pa.array([name if name not in ("", "n/a") else None for name in named], pa.string())

    return part(-1), part(-2)


def _read_years(column: pa.ChunkedArray) -> pa.Array:
    """Read years of publication; 0 and what is not a number are unknown."""
    years = (int(text) if text and text.isdecimal() else 0 for text in column.to_pylist())
    return pa.array([year or None for year in years], pa.int64())


def _find_set(path: Path, *names: str) -> Path:
    """Return the folder or archive in a folder that holds all files of a data set."""
    for place in sorted(path.iterdir()) if path.is_dir() else []:
        if place.is_dir() or place.suffix == ".zip":
            with suppress(SourceError):
                for name in names:
                    _find_file(place, name)
                return place
    return path


def _find_file(
    path: Path,
    name: str,
    names: tuple[str, ...] | None = None,
    quote: str | None = '"',
    **style: str,
) -> TableFile:
    """Find a data set's file in a folder or a zip archive, at the top or one folder down."""
    hint = "`coldhash fetch` downloads data sets"
    if not path.exists():
        raise SourceError(f"{path} does not exist", hint=hint)
    archives = sorted(path.glob("*.zip")) if path.is_dir() else [path]
    files = [path / name, *sorted(path.glob(f"*/{name}"))] if path.is_dir() else []
    for file in files:
        if file.is_file():
            return TableFile(path=file, names=names, quote=quote, **style)
    for archive in archives:
        try:
            with zipfile.ZipFile(archive) as opened:
                members = opened.namelist()
        except (zipfile.BadZipFile, OSError) as error:
            raise SourceError(f"{archive}: not a zip archive: {error}", hint=hint) from None
        for member in members:
            if member.rsplit("/", 1)[-1] == name:
                return TableFile(path=archive, member=member, names=names, quote=quote, **style)
    raise SourceError(f"{path} holds no {name}", hint=hint)


SOURCES: dict[str, Callable[..., Dataset]] = {
    "ml-1m": _read_ml_1m,
    "ml-100k": _read_ml_100k,
    "book-crossing": _read_book_crossing,
    "sample": read_sample,
}
