"""The known data sets: one reader each, from a folder or a zip archive; the sample is generated."""

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
from numpy import ndarray
from numpy.random import Generator

from coldhash.data.dataset import Dataset
from coldhash.data.feedback import FeedbackKind
from coldhash.data.tables import TableFile, TableLike
from coldhash.errors import SettingError, SourceError

KNOWN, _NAMES = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("known.toml", "sample.toml")
)
_COUNTRY = r"(?:^|,)\s*(?P<country>[^,]*?)\s*$"
_STATE = r"(?:^|,)\s*(?P<state>[^,]*?)\s*,[^,]*$"
_GENRES, _FACTS = _NAMES["genres"], _NAMES["facts"]
_N_TRAITS = 3
_BLOCK_USERS = 256  # users drawn at a time, so that memory does not grow with their number


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
    known = inspect.signature(SOURCES[name]).parameters
    if unknown := options.keys() - known.keys():
        hint = f"it takes {', '.join(known)}".replace("path", "path (--data)")
        raise SettingError(f"{name}: no options {', '.join(sorted(unknown))}", hint=hint)
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
    years = books.column("Year-Of-Publication")
    is_year = pc.match_substring_regex(years, r"^0*[1-9][0-9]*$")  # others are unknown
    table = {
        "item_id": books.column("ISBN"),
        "title": books.column("Book-Title"),
        "author": books.column("Book-Author"),
        "publisher": books.column("Publisher"),
        "year": pc.if_else(is_year, years, None).cast(pa.int64()),
    }
    data = _build("book-crossing", ratings, people, table)
    if raw:
        return data
    # users and books come in the order in which they occur in the ratings
    raters, rated = (pc.unique(ratings.column(name)) for name in ("User-ID", "ISBN"))
    listed = rated.filter(pc.is_in(rated, books.column("ISBN").combine_chunks()))
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


def _read_sample(seed: int = 0, n_users: int = 2000, n_items: int = 1000) -> Dataset:
    """Generate the sample, with about 60 ratings per user, or a quarter of the items.

    How it is generated:

    - 1,000 items have one to three of twelve genres, a year, a title, and a Zipf popularity:
      the most popular items are worth recommending to nearly anybody.
    - 2,000 users have an age, a gender, an occupation and a city; some of these are unknown.
    - A user's taste over genres is the sum of effects of age, gender and occupation and of a
      random part; cities have no effect. An item has a quality, and hidden traits that users
      like or dislike independently of every column.
    - Whether a user picks an item depends on its popularity and on taste; the rating, 1 to 5,
      on quality, taste and noise.

    So demographics carry some information, a few ratings carry more, and popularity is a strong
    baseline: about as in MovieLens-1M, where MFDCF finds 1.10 times as many favourites of
    strangers as popularity does, and 1.32 times as many after five ratings (here 1.10 and
    1.34).

    The same seed gives the same data on every processor. Random numbers are uniform, and what
    is made of them needs only operations that IEEE 754 rounds correctly (no exp, log or power),
    added up in a fixed order.
    """
    ratings_per_user = min(60.0, n_items / 4)
    for name, value in (("n_users", n_users), ("n_items", n_items)):
        if value < 10:
            raise SettingError(f"sample: {name}={value}", hint="at least 10")
    rng = np.random.default_rng(seed)
    genre_share = _draw_genres(rng, n_items)
    traits = np.hstack([genre_share, _draw_bells(rng, 1.0, n_items, _N_TRAITS)])
    quality = _draw_bells(rng, 0.5, n_items)
    ranks = np.sqrt(np.arange(1.0, n_items + 1))
    popularity = rng.permutation(1 / (ranks * np.sqrt(ranks)))  # Zipf, to the power of 3/4
    popularity *= 1 + quality / 2 + quality * quality / 8
    items = _make_item_table(rng, genre_share)
    facts, users = _draw_users(rng, n_users)
    effects = {
        "gender": _draw_bells(rng, 1.4, len(_FACTS["gender"]), len(_GENRES)),
        "occupation": _draw_bells(rng, 1.1, len(_FACTS["occupation"]), len(_GENRES)),
        "peak_age": 12 + 58 * rng.random(len(_GENRES)),
    }
    uniform = rng.random(n_users)  # a long tail, with a mean of 1
    counts = ratings_per_user * (0.2 + 0.6 * uniform / np.sqrt(1 - uniform))
    counts = counts.clip(2, n_items / 2).astype(int)
    blocks = []
    for start in range(0, n_users, _BLOCK_USERS):
        some = slice(start, start + _BLOCK_USERS)
        tastes = _draw_tastes(rng, {name: codes[some] for name, codes in facts.items()}, effects)
        user_rows, item_rows = _draw_items(rng, popularity, counts[some], tastes, traits)
        liked = _liking(tastes, traits, user_rows, item_rows)
        score = 2.6 + quality[item_rows] + 0.6 * liked + _draw_bells(rng, 0.8, len(liked))
        blocks.append((start + user_rows + 1, item_rows + 1, np.clip(np.rint(score), 1, 5)))
    columns = map(np.concatenate, zip(*blocks, strict=True))
    ratings = dict(zip(("user_id", "item_id", "rating"), columns, strict=True))
    plan = _NAMES["plan"]
    return Dataset.from_tables(ratings, users, items, plan=plan, scale=(1.0, 5.0), name="sample")


def _draw_bells(rng: Generator, scale: float, *shape: int) -> ndarray:
    """Draw about normal numbers: sums of four uniform ones, of which a third is the variance."""
    total = np.zeros(shape)
    for _ in range(4):
        total += rng.random(shape)
    return np.asarray((total - 2) * (scale * np.sqrt(3.0)))


def _draw_places(rng: Generator, weights: ndarray, size: int) -> ndarray:
    """Draw places with probabilities in proportion to weights."""
    ladder = np.cumsum(weights)
    return np.asarray(ladder[:-1].searchsorted(rng.random(size) * ladder[-1], side="right"))


def _draw_genres(rng: Generator, n_items: int) -> ndarray:
    """Draw one to three genres for each item, with shares that add up to 1."""
    order = np.argsort(rng.random((n_items, len(_GENRES))), axis=1, kind="stable")
    how_many = rng.integers(1, 4, size=n_items)
    share = np.zeros((n_items, len(_GENRES)))
    for place in range(3):
        has = how_many > place
        share[has, order[has, place]] = 1.0 / how_many[has]
    return share


def _make_item_table(rng: Generator, genre_share: ndarray) -> pa.Table:
    n_items, patterns = len(genre_share), _NAMES["patterns"]
    years = 2025 - (70 * rng.random(n_items) * rng.random(n_items)).astype(int)
    chosen = np.minimum(*rng.integers(len(patterns), size=(2, n_items)))
    words = {
        part: np.array(several)[rng.integers(len(several), size=n_items)]
        for part, several in _NAMES["words"].items()
    }
    titles = [
        patterns[pattern].format(**{part: column[item] for part, column in words.items()})
        for item, pattern in enumerate(chosen)
    ]
    genres = ["|".join(np.array(_GENRES)[row > 0]) for row in genre_share]
    ids = np.arange(1, n_items + 1)
    return pa.table({"item_id": ids, "title": titles, "genres": genres, "year": years})


def _draw_users(rng: Generator, n_users: int) -> tuple[dict[str, ndarray], pa.Table]:
    """Draw the attributes of each user, and a table in which each is unknown for some."""
    facts = {
        "age": (12 + 32 * (rng.random(n_users) + rng.random(n_users))).astype(int),
        "gender": _draw_places(rng, np.array([0.48, 0.49, 0.03]), n_users),
        "occupation": rng.integers(len(_FACTS["occupation"]), size=n_users),
        "city": _draw_places(rng, 1.0 / np.arange(1, len(_FACTS["city"]) + 1), n_users),  # Zipf
    }
    columns = {"user_id": pa.array(np.arange(1, n_users + 1))}
    unknown_shares = {"age": 0.1, "gender": 0.05, "occupation": 0.15, "city": 0.3}
    for name, share in unknown_shares.items():
        unknown = rng.random(n_users) < share
        values = np.array(_FACTS[name])[facts[name]] if name in _FACTS else facts[name]
        columns[name] = pa.array(values, mask=unknown)
    return facts, pa.table(columns)


def _draw_tastes(rng: Generator, facts: dict[str, ndarray], effects: dict[str, ndarray]) -> ndarray:
    """Draw the taste of users for genres and hidden traits."""
    decades_off = (facts["age"][:, None] - effects["peak_age"]) / 12
    liking = effects["gender"][facts["gender"]] + effects["occupation"][facts["occupation"]]
    liking += 2.8 / (1 + decades_off * decades_off) - 1.0
    liking += _draw_bells(rng, 0.8, *liking.shape)
    return np.hstack([liking, _draw_bells(rng, 1.2, len(liking), _N_TRAITS)])


def _liking(tastes: ndarray, traits: ndarray, user_rows: ndarray, item_rows: ndarray) -> ndarray:
    """Return how much users like items; the order of a sum must not depend on the processor."""
    total = np.zeros(len(user_rows))
    for taste, trait in zip(tastes.T, traits.T, strict=True):
        total += taste[user_rows] * trait[item_rows]
    return total


def _draw_items(
    rng: Generator, popularity: ndarray, counts: ndarray, tastes: ndarray, traits: ndarray
) -> tuple[ndarray, ndarray]:
    """Draw items by popularity and keep those that taste accepts, each once, up to the count."""
    n_items = len(popularity)
    user_rows = np.repeat(np.arange(len(counts)), counts * 6)
    item_rows = _draw_places(rng, popularity, len(user_rows))
    lean = 1.6 * _liking(tastes, traits, user_rows, item_rows) - 0.6
    accepted = 2 * rng.random(len(lean)) < 1 + lean / np.sqrt(1 + lean * lean)
    user_rows, item_rows = user_rows[accepted], item_rows[accepted]
    _, first = np.unique(user_rows * n_items + item_rows, return_index=True)
    first.sort()  # back to the order drawn, so that the count cuts fairly
    user_rows, item_rows = user_rows[first], item_rows[first]
    starts = np.searchsorted(user_rows, np.arange(len(counts)))
    keep = np.arange(len(user_rows)) - starts[user_rows] < counts[user_rows]
    return user_rows[keep], item_rows[keep]


SOURCES: dict[str, Callable[..., Dataset]] = {
    "ml-1m": _read_ml_1m,
    "ml-100k": _read_ml_100k,
    "book-crossing": _read_book_crossing,
    "complete-journey": _read_complete_journey,
    "jester": _read_jester,
    "sample": _read_sample,
}
