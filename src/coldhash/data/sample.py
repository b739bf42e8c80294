"""The sample: a small synthetic data set, generated from a seed.

How it is generated:

- 1,000 items have one to three of twelve genres, a year, a title, and a Zipf popularity: the most
  popular items are worth recommending to nearly anybody.
- 2,000 users have an age, a gender, an occupation and a city; some of these are unknown.
- A user's taste over genres is the sum of effects of age, gender and occupation and of a random
  part; cities have no effect. An item has a quality, and hidden traits that users like or dislike
  independently of every column.
- Whether a user picks an item depends on its popularity and on taste; the rating, 1 to 5, on
  quality, taste and noise.

So demographics carry some information, a few ratings carry more, and popularity is a strong
baseline: about as in MovieLens-1M, where MFDCF finds 1.10 times as many favourites of strangers as
popularity does, and 1.32 times as many after five ratings (here 1.10 and 1.34).

The same seed gives the same data on every processor. Random numbers are uniform, and what is made
of them needs only operations that IEEE 754 rounds correctly (no exp, log or power), added up in a
fixed order.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy import ndarray
from numpy.random import Generator

from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError

_NAMES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_GENRES, _FACTS = _NAMES["genres"], _NAMES["facts"]
_N_TRAITS = 3
_BLOCK_USERS = 256  # users drawn at a time, so that memory does not grow with their number


def read_sample(seed: int = 0, n_users: int = 2000, n_items: int = 1000) -> Dataset:
    """Generate the sample, with about 60 ratings per user, or a quarter of the items."""
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
    effects = _draw_effects(rng)
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


def _draw_effects(rng: Generator) -> dict[str, ndarray]:
    """Draw the effect of gender, occupation and age on the taste for each genre."""
    return {
        "gender": _draw_bells(rng, 1.4, len(_FACTS["gender"]), len(_GENRES)),
        "occupation": _draw_bells(rng, 1.1, len(_FACTS["occupation"]), len(_GENRES)),
        "peak_age": 12 + 58 * rng.random(len(_GENRES)),
    }


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
