"""A person as a few bit planes, so that plain SQL ranks the codes of a database.

A vector h is rounded to n planes: h ≈ s Σ_j 2^j p_j, with p_j of +1 and -1 and one scale s for all
coordinates, chosen so that the sum of squared errors is the smallest. Then, for a code d of b bits,

    h·d ≈ s (offset - 2 Σ_j 2^j bit_count(d xor p_j)),   offset = b (2^n - 1),

which any database computes that counts bits, and the score is gain * (base + h·d) with the columns
that `coldhash.recommender.export` writes. Where levels have a weight λ below 1, it is

    gain^λ * (3λ / (2 + λ) base + h·d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coldhash.arrays.codes import pack
from coldhash.errors import SettingError, check_choice, check_positive
from coldhash.features.people import Person
from coldhash.recommender.export import TABLE, bit_strings
from coldhash.recommender.items import code_items
from coldhash.recommender.recommender import Recommender

MAX_PLANES = 8
N_SCALES = 64  # that are tried
NARROWEST = 0.2  # of the range of a vector, which the smallest one covers


@dataclass(frozen=True, eq=False)
class Planes:
    """A vector as bit planes, the lowest first.

    Parameters
    ----------
    bits
        Planes x coordinates, +1 and -1 (int8).
    scale
        What 1 of the lowest plane is worth.

    Examples
    --------
    >>> planes = Planes.of(np.array([3.0, 1.0, -1.0, -3.0], dtype=np.float32), 2)
    >>> planes.bits.tolist(), planes.scale, planes.vector.tolist()
    ([[1, -1, 1, -1], [1, 1, -1, -1]], 1.0, [3.0, 1.0, -1.0, -3.0])
    """

    bits: np.ndarray
    scale: float

    @classmethod
    def of(cls, vector: np.ndarray, n_planes: int = 4) -> Planes:
        """Round a vector to planes.

        Parameters
        ----------
        vector
            Real numbers.
        n_planes
            How many planes: each one costs the database a count of bits for each item.

        Returns
        -------
        Planes
            The planes with the smallest squared error, of the scales that are tried.

        Raises
        ------
        SettingError
            `n_planes` is not between 1 and 8.
        """
        if not 1 <= n_planes <= MAX_PLANES:
            raise SettingError(f"planes={n_planes}", hint=f"1 to {MAX_PLANES}")
        vector = np.asarray(vector, np.float64)
        most = 2**n_planes - 1
        steps = np.abs(vector).max(initial=0.0) / most * np.linspace(NARROWEST, 1, N_SCALES)
        if not steps[-1] > 0:
            return cls(np.ones((n_planes, len(vector)), np.int8), 0.0)
        digits = np.clip(np.rint((vector / steps[:, None] + most) / 2), 0, most)
        odd = 2 * digits - most  # what the planes add up to
        scales = (odd @ vector) / (odd**2).sum(axis=1)
        best = int(np.argmin(((vector - scales[:, None] * odd) ** 2).sum(axis=1)))
        places = np.arange(n_planes)[:, None]
        bits = (digits[best].astype(np.int64) >> places & 1) * 2 - 1
        return cls(bits.astype(np.int8), float(np.float32(scales[best])))

    @property
    def offset(self) -> int:
        """What the planes add up to where all bits agree with a code."""
        n_planes, n_bits = self.bits.shape
        return int(n_bits * (2**n_planes - 1))

    @property
    def vector(self) -> np.ndarray:
        """The vector that the planes stand for."""
        weights = 2.0 ** np.arange(len(self.bits))
        return np.asarray(self.scale * (weights @ self.bits))

    @property
    def texts(self) -> list[str]:
        """The planes in hexadecimal: bit b is bit b % 8 of byte b // 8."""
        packed = np.packbits(self.bits > 0, axis=1, bitorder="little")
        return [plane.tobytes().hex() for plane in packed]


def query_sql(
    model: Recommender,
    to: str,
    person: Person,
    k: int = 10,
    *,
    planes: int = 4,
    popularity: float = 1.0,
    condition: str | None = None,
) -> str:
    """Return the SQL that ranks the items of an exported database for a person.

    Parameters
    ----------
    model
        The model that was exported.
    to
        `duckdb`, `sqlite` or `postgres`.
    person
        As for `Recommender.recommend`; items of the history are left out.
    k
        How many items.
    planes
        How many bit planes: with 4, lists are about as accurate as the model's own.
    popularity
        How much it counts what everybody likes, as for `Recommender.recommend`.
    condition
        What stands after WHERE, such as `year >= 1990`: SQL, which is not checked.

    Returns
    -------
    str
        A query of id and score. SQLite has to know a function `bit_count` of an integer, and, for
        `popularity` below 1, `power`, which most builds have.

    Raises
    ------
    SettingError
        The model has no codes, `planes` is not between 1 and 8, or `popularity` cannot be weighed.
    DataError
        A value or a rating cannot be right.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> sql = query_sql(model, "duckdb", {"age": 30}, k=3, condition="year >= 2000")
    >>> print(sql[sql.index("FROM") :])
    FROM items
    WHERE (year >= 2000)
    ORDER BY score DESC, place
    LIMIT 3;
    """
    check_choice("to", to, COUNTS)
    check_positive("k", k)
    code_items(model.items)
    base, gain = "base", "gain"
    if popularity != 1:
        base_weight, gain_power = weigh_levels(model, popularity)
        base, gain = f"{base_weight:.17g} * base", f"power(gain, {gain_power:.17g})"
    encoded = model.encode([person])
    found = Planes.of(encoded.vectors[0], planes)
    counts = " + ".join(
        f"{2**place} * ({COUNTS[to](plane[None])})" for place, plane in enumerate(found.bits)
    )
    conditions = [] if condition is None else [f"({condition})"]
    if encoded.history is not None and len(encoded.history.indices):
        seen = [model.item_ids[row] for row in encoded.history.indices.tolist()]
        texts = ", ".join("'" + item_id.replace("'", "''") + "'" for item_id in seen)
        conditions.append(f"id NOT IN ({texts})")
    where = f"WHERE {' AND '.join(conditions)}\n" if conditions else ""
    scale = f"CAST({found.scale:.9e} AS double precision)"
    return (
        f"SELECT id, {gain} * ({base} + {scale} * ({found.offset} - 2 * ({counts}))) AS score\n"
        f"FROM {TABLE}\n{where}ORDER BY score DESC, place\nLIMIT {k};"
    )


def weigh_levels(model: Recommender, popularity: float) -> tuple[float, float]:
    """Return what `base` is multiplied by, and the power of `gain`, for a `popularity`."""
    weight = model.level_weight(popularity)
    return 3 * weight / (2 + weight), weight


def _count_words(plane: np.ndarray) -> str:
    words = enumerate(pack(plane)[0].tolist())
    # as DOUBLE: exact, and faster than integers, which are checked
    return " + ".join(f"bit_count(xor(word{w}, {word}::UBIGINT))::DOUBLE" for w, word in words)


def _count_signed_words(plane: np.ndarray) -> str:
    words = enumerate(pack(plane)[0].view(np.int64).tolist())  # SQLite has no exclusive or
    return " + ".join(f"bit_count((word{w} | {word}) - (word{w} & {word}))" for w, word in words)


def _count_bits(plane: np.ndarray) -> str:
    return f"bit_count(code # B'{bit_strings(plane)[0]}')"


COUNTS = {"duckdb": _count_words, "sqlite": _count_signed_words, "postgres": _count_bits}
