"""What MFDCF does with the users of one partition; what it returns is added up over all.

Letters as in `mfdcf.py`. A partition keeps, beside what `problem.py` prepared:

    SD   S V D, which follows from the item codes
    H    the user vectors
    B    the user codes, as bytes of bits; empty before the first round
    P    the vectors that its users would have had as strangers, as R turns them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coldhash.arrays.codes import signs
from coldhash.mfdcf.problem import multiply
from coldhash.partitions import Changes, Part, Step

Maps = dict[str, np.ndarray]  # W by group


@dataclass(frozen=True, eq=False)
class View:
    """What the steps over users must know of everybody."""

    fit_weight: float
    code_weight: float
    R: np.ndarray
    W: Maps
    mu: dict[str, float]
    eigenvalues: np.ndarray  # of R' D'VD R
    U: np.ndarray


def _multiply(part: Part, weighed: np.ndarray) -> tuple[Changes, None]:
    """S V D."""
    return {"SD": multiply(part["S"], weighed)}, None


def _consensus(part: Part, view: View) -> tuple[Changes, dict[str, Any]]:
    """H, exactly (19): one eigen-decomposition serves users with any set of groups."""
    alpha, beta = np.float32(view.fit_weight), np.float32(view.code_weight)
    right = alpha * (part["SD"] @ view.R)
    weight = np.full((len(right), 1), 1e-6, dtype=np.float32)
    if len(part["B"]):
        right += beta * (codes_of(part, len(view.R)) @ view.R)
        weight += beta
    for name, W in view.W.items():
        inverse = np.float32(1 / view.mu[name])
        right += inverse * (part["X"][name] @ W)
        weight += inverse * part["has"][name]
    H = ((right @ view.U) / (weight + alpha * view.eigenvalues)) @ view.U.T
    XtH = {name: features_times(part, name, H) for name in view.mu}
    return {"H": H}, {"XtH": XtH, "H": row_sum(H)}


def _consensus_and_codes(part: Part, view: View) -> tuple[Changes, dict[str, Any]]:
    """H, and B = sgn(H R'), exactly (21)."""
    changes, sums = _consensus(part, view)
    bits = changes["H"] @ view.R.T >= 0
    return changes | {"B": np.packbits(bits, axis=1)}, sums


def _codes(part: Part) -> tuple[Changes, np.ndarray]:
    return {}, part["B"]


def _vectors(part: Part) -> tuple[Changes, np.ndarray]:
    return {}, part["H"]


def _misfits(part: Part, W: Maps) -> tuple[Changes, dict[str, float]]:
    """‖H - X W‖² over the users who have the group."""
    H = part["H"]
    return {}, {name: square(_own(part, name, H) - part["X"][name] @ W[name]) for name in W}


def _rotation(part: Part, fit_weight: float, code_weight: float) -> tuple[Changes, Any]:
    """Give H'H and α D'S'H + β B'H: over R, (9) is α tr(R'D'D R H'H) - 2 tr(R'K)."""
    H = part["H"].astype(np.float64)
    K = fit_weight * part["SD"].T @ H
    if len(part["B"]):
        K += code_weight * codes_of(part, H.shape[1]).T @ H
    return {}, {"HtH": H.T @ H, "K": K}


def _gram(part: Part, R: np.ndarray) -> tuple[Changes, np.ndarray]:
    H = part["H"] @ R.T
    return {}, (H.T @ H).astype(np.float64)


def _strangers(
    part: Part, R: np.ndarray, W: Maps, mu: dict[str, float], average: np.ndarray
) -> tuple[Changes, dict[str, Any]]:
    """Find the users' vectors as strangers, and what the item step must know of them."""
    H = part["H"] @ R.T
    P = stranger_vectors(part, W, mu, average) @ R.T
    C = signs(P, np.float32)
    grams = {"HtH": H.T @ H, "PtP": P.T @ P, "CtC": C.T @ C}
    doubled: dict[str, Any] = {name: gram.astype(np.float64) for name, gram in grams.items()}
    return {"P": P}, doubled | {"CSD": vdot(C, part["SD"])}


def _pulls(part: Part, R: np.ndarray) -> tuple[Changes, np.ndarray]:
    """S' H."""
    return {}, multiply(part["St"], part["H"] @ R.T)


def _mixed_pulls(
    part: Part, R: np.ndarray, own: float, real: float, code: float
) -> tuple[Changes, np.ndarray]:
    """S' times users as they are, as vectors of strangers, and as codes of strangers."""
    P = part["P"]
    mixture = own * (part["H"] @ R.T) + real * P + code * signs(P, np.float32)
    return {}, multiply(part["St"], mixture.astype(np.float32))


def _losses(part: Part, R: np.ndarray) -> tuple[Changes, dict[str, Any]]:
    """Give the parts of (9) that are about ratings and codes."""
    Q = part["H"] @ R.T
    return {}, {
        "QtQ": (Q.T @ Q).astype(np.float64),
        "SDQ": vdot(part["SD"], Q),
        "BQ": square(codes_of(part, len(R)) - Q) if len(part["B"]) else 0.0,
    }


def _fold(part: Part, R: np.ndarray) -> tuple[Changes, np.ndarray]:
    """Put the rotation into H, where it belongs."""
    H = part["H"] @ R.T
    return {"H": H}, row_sum(H)


def _first_vectors(
    part: Part, limit: int, W: Maps, mu: dict[str, float], average: np.ndarray
) -> tuple[Changes, tuple[np.ndarray, np.ndarray]]:
    """Give the vectors of the first users, known and as strangers."""
    n_wanted = max(limit - part["first"], 0)
    if not n_wanted:
        nothing = np.zeros((0, len(average)), dtype=np.float32)
        return {}, (nothing, nothing)
    unseen = stranger_vectors(part, W, mu, average)
    return {}, (part["H"][:n_wanted], unseen[:n_wanted])


FEATURES = ("X", "has")
MULTIPLY = Step(_multiply, reads=("S",), writes=("SD",))
CONSENSUS = Step(_consensus, reads=("SD", "B", *FEATURES), writes=("H",))
CONSENSUS_AND_CODES = Step(_consensus_and_codes, reads=("SD", "B", *FEATURES), writes=("H", "B"))
CODES = Step(_codes, reads=("B",))
VECTORS = Step(_vectors, reads=("H",))
MISFITS = Step(_misfits, reads=("H", *FEATURES))
ROTATION = Step(_rotation, reads=("H", "SD", "B"))
GRAM = Step(_gram, reads=("H",))
STRANGERS = Step(_strangers, reads=("H", "SD", "X", "strangers"), writes=("P",))
PULLS = Step(_pulls, reads=("H", "St"))
MIXED_PULLS = Step(_mixed_pulls, reads=("H", "P", "St"))
LOSSES = Step(_losses, reads=("H", "SD", "B"))
FOLD = Step(_fold, reads=("H",), writes=("H",))
FIRST_VECTORS = Step(_first_vectors, reads=("first", "H", "X", "strangers"))


def stranger_vectors(part: Part, W: Maps, mu: dict[str, float], average: np.ndarray) -> np.ndarray:
    """Give the vectors that users would have had as strangers.

    Somebody with no group at all is taken for the average user.
    """
    n_users = len(part["strangers"][next(iter(part["strangers"]))])
    total = np.zeros((n_users, len(average)), dtype=np.float32)
    weight = np.zeros((n_users, 1), dtype=np.float32)
    for name, has in part["strangers"].items():
        inverse = np.float32(1 / mu[name]) * has
        total += inverse * (part["X"][name] @ W[name])
        weight += inverse
    return np.where(weight > 0, total / np.maximum(weight, 1e-12), average)


def features_times(part: Part, name: str, H: np.ndarray) -> np.ndarray:
    """X' H over the users who have the group."""
    return (part["X"][name].T @ _own(part, name, H)).astype(np.float64)  # type: ignore[no-any-return]


def _own(part: Part, name: str, H: np.ndarray) -> np.ndarray:
    """Give H with zeros for the users without the group."""
    has = part["has"][name]
    return H if has.all() else H * has


def codes_of(part: Part, n_bits: int) -> np.ndarray:
    """B, as +1 and -1."""
    bits = np.unpackbits(part["B"], axis=1, count=n_bits)
    return bits.astype(np.float32) * np.float32(2) - np.float32(1)


def row_sum(H: np.ndarray) -> np.ndarray:
    """Add up the rows."""
    return H.sum(axis=0).astype(np.float64)  # type: ignore[no-any-return]


def square(matrix: np.ndarray) -> float:
    """Add up squares in double precision."""
    return vdot(matrix, matrix)


def vdot(one: np.ndarray, two: np.ndarray) -> float:
    """Add up products in double precision."""
    return float(np.einsum("ij,ij->", one, two, dtype=np.float64))
