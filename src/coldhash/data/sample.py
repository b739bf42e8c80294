"""The sample: a small synthetic data set, generated from a seed.

How it is generated:

- 1,000 items have one to three of twelve genres, a year, a title of made-up words, and a Zipf
  popularity: the most popular items are worth recommending to nearly anybody.
- 2,000 users have an age, a gender, an occupation and a city; some of these are unknown.
- A user's taste over genres is the sum of effects of age, gender and occupation and of a random
  part; cities have no effect. An item has a quality, and hidden traits that users like or dislike
  independently of every column.
- Whether a user picks an item depends on its popularity and on taste; the rating, 1 to 5, on
  quality, taste and noise.

So demographics carry some information, a few ratings carry more, and popularity is a strong
baseline.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from coldhash.data.dataset import Dataset
from coldhash.data.plan import FeaturePlan
from coldhash.errors import SettingError

_GENRES = tuple(
    "adventure biography comedy crime documentary drama family fantasy history music mystery "
    "romance".split()
)
_OCCUPATIONS = tuple(
    "artist carpenter clerk cook doctor driver engineer farmer lawyer manager musician nurse "
    "programmer retired sailor scientist student teacher".split()
)
_CITIES = tuple("Aren Boldt Corvo Dunmere Elsk Farrow Gant Holm Ister Jorvik Kells Lund".split())
_GENDERS = ("female", "male", "other")
_LABELS = {"gender": _GENDERS, "occupation": _OCCUPATIONS, "city": _CITIES}
_WORDS = tuple(
    "amber arrow autumn bridge candle cedar cloud copper crow daughter dawn desert door dream dust "
    "echo ember empty falcon feather field fire forest garden ghost glass golden harbour heart "
    "hidden hollow house iron island key king lantern last letter light little long lost marble "
    "meadow midnight mirror moon mountain night northern ocean old orchard paper quiet rain red "
    "river road rose salt sea secret shadow silent silver sky sleeping snow song southern star "
    "stone storm stranger summer sun thread tide time tower train tree valley velvet violet voice "
    "water white wild wind winter witness wolf wooden".split()
)
_N_TRAITS = 6
_BLOCK_USERS = 256  # users drawn at a time, so that memory does not grow with their number
_PLAN = FeaturePlan(
    users={
        "demographics": {"age": "number"}
        | dict.fromkeys(("gender", "occupation", "city"), "category"),
    },
    items={"content": {"genres": "multi-label", "title": "text", "year": "number"}},
    preference={},
)


def read_sample(
    seed: int = 0, n_users: int = 2000, n_items: int = 1000, ratings_per_user: float | None = None
) -> Dataset:
    """Generate the sample; by default about 60 ratings per user."""
    if ratings_per_user is None:
        ratings_per_user = min(60.0, n_items / 4)
    for name, value in (("n_users", n_users), ("n_items", n_items)):
        if value < 10:
            raise SettingError(f"sample: {name}={value}", hint="at least 10")
    if not 1 <= ratings_per_user <= n_items / 2:
        hint = f"from 1 to half the items ({n_items / 2:g})"
        raise SettingError(f"sample: ratings_per_user={ratings_per_user:g}", hint=hint)
    rng = np.random.default_rng(seed)
    genre_share = _draw_genres(rng, n_items)
    traits = np.hstack([genre_share, rng.normal(size=(n_items, _N_TRAITS))], dtype=np.float32)
    quality = rng.normal(scale=0.5, size=n_items)
    popularity = rng.permutation(1.0 / np.arange(1, n_items + 1) ** 0.8) * np.exp(0.5 * quality)
    items = _make_item_table(rng, genre_share)
    facts, users = _draw_users(rng, n_users)
    effects = _draw_effects(rng)
    counts = np.clip(rng.lognormal(np.log(ratings_per_user) - 0.32, 0.8, n_users), 2, n_items / 2)
    blocks = []
    for start in range(0, n_users, _BLOCK_USERS):
        some = slice(start, start + _BLOCK_USERS)
        tastes = _draw_tastes(rng, {name: codes[some] for name, codes in facts.items()}, effects)
        user_rows, item_rows = _draw_items(
            rng, popularity, counts[some].astype(int), tastes, traits
        )
        taste = np.einsum("nt,nt->n", tastes[user_rows], traits[item_rows])
        score = 3.4 + quality[item_rows] + 0.6 * taste + rng.normal(scale=0.8, size=len(taste))
        blocks.append((start + user_rows + 1, item_rows + 1, np.clip(np.rint(score), 1, 5)))
    columns = map(np.concatenate, zip(*blocks, strict=True))
    ratings = dict(zip(("user_id", "item_id", "rating"), columns, strict=True))
    return Dataset.from_tables(ratings, users, items, plan=_PLAN, scale=(1.0, 5.0), name="sample")


def _draw_genres(rng: np.random.Generator, n_items: int) -> np.ndarray:
    """Draw one to three genres for each item, with shares that add up to 1."""
    order = np.argsort(rng.gumbel(size=(n_items, len(_GENRES))), axis=1)
    how_many = rng.integers(1, 4, size=n_items)
    share = np.zeros((n_items, len(_GENRES)))
    for place in range(3):
        has = how_many > place
        share[has, order[has, place]] = 1.0 / how_many[has]
    return share


def _make_item_table(rng: np.random.Generator, genre_share: np.ndarray) -> pa.Table:
    n_items = len(genre_share)
    years = 2025 - rng.geometric(0.06, size=n_items).clip(1, 90)
    words = np.array(_WORDS)[rng.integers(len(_WORDS), size=(n_items, 3))]
    how_many = rng.integers(1, 4, size=n_items)
    titles = [" ".join(row[:n]).title() for row, n in zip(words, how_many, strict=True)]
    titles = [f"The {title}" if " " in title else title for title in titles]
    genres = ["|".join(g for g, s in zip(_GENRES, row, strict=True) if s) for row in genre_share]
    return pa.table(
        {"item_id": np.arange(1, n_items + 1), "title": titles, "genres": genres, "year": years}
    )


def _draw_users(rng: np.random.Generator, n_users: int) -> tuple[dict[str, np.ndarray], pa.Table]:
    """Draw the attributes of each user, and a table in which each is unknown for some."""
    shares = 1.0 / np.arange(1, len(_CITIES) + 1)  # Zipf
    facts = {
        "age": np.clip(rng.gamma(6.0, 6.0, n_users) + 8, 10, 90).astype(int),
        "gender": rng.choice(len(_GENDERS), n_users, p=(0.48, 0.49, 0.03)),
        "occupation": rng.integers(len(_OCCUPATIONS), size=n_users),
        "city": rng.choice(len(_CITIES), n_users, p=shares / shares.sum()),
    }
    columns = {"user_id": pa.array(np.arange(1, n_users + 1))}
    unknown_shares = {"age": 0.1, "gender": 0.05, "occupation": 0.15, "city": 0.3}
    for name, share in unknown_shares.items():
        unknown = rng.random(n_users) < share
        values = np.array(_LABELS[name])[facts[name]] if name in _LABELS else facts[name]
        columns[name] = pa.array(values, mask=unknown)
    return facts, pa.table(columns)


def _draw_effects(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw the effect of gender, occupation and age on the taste for each genre."""
    return {
        "gender": rng.normal(scale=0.7, size=(len(_GENDERS), len(_GENRES))),
        "occupation": rng.normal(scale=0.6, size=(len(_OCCUPATIONS), len(_GENRES))),
        "peak_age": rng.uniform(12, 70, size=len(_GENRES)),
    }


def _draw_tastes(
    rng: np.random.Generator, facts: dict[str, np.ndarray], effects: dict[str, np.ndarray]
) -> np.ndarray:
    """Draw the taste of users for genres and hidden traits."""
    years_off = np.abs(facts["age"][:, None] - effects["peak_age"])
    liking = effects["gender"][facts["gender"]] + effects["occupation"][facts["occupation"]]
    liking += 1.2 * np.exp(-((years_off / 15) ** 2)) - 0.4
    liking += rng.normal(scale=0.7, size=liking.shape)
    leaning = rng.normal(scale=0.45, size=(len(liking), _N_TRAITS))
    return np.hstack([liking, leaning], dtype=np.float32)


def _draw_items(
    rng: np.random.Generator,
    popularity: np.ndarray,
    counts: np.ndarray,
    tastes: np.ndarray,
    traits: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw items by popularity and keep those that taste accepts, each once, up to the count."""
    n_items, ladder = len(popularity), np.cumsum(popularity / popularity.sum())
    user_rows = np.repeat(np.arange(len(counts)), counts * 6)
    item_rows = np.searchsorted(ladder, rng.random(len(user_rows)) * ladder[-1], side="right")
    item_rows = np.minimum(item_rows, n_items - 1)
    taste = np.einsum("nt,nt->n", tastes[user_rows], traits[item_rows])
    accepted = rng.random(len(taste)) < 1 / (1 + np.exp(1.0 - 1.6 * taste))
    user_rows, item_rows = user_rows[accepted], item_rows[accepted]
    _, first = np.unique(user_rows * n_items + item_rows, return_index=True)
    first.sort()  # back to the order drawn, so that the count cuts fairly
    user_rows, item_rows = user_rows[first], item_rows[first]
    starts = np.searchsorted(user_rows, np.arange(len(counts)))
    keep = np.arange(len(user_rows)) - starts[user_rows] < counts[user_rows]
    return user_rows[keep], item_rows[keep]
