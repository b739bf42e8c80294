"""The figure that a model file may carry: how its settings do for people whom no fit has seen."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.evaluate.compare import compare_models
from coldhash.files import Json
from coldhash.registry import MODELS, Model

JUDGED = "judged"  # its name in the report of a model
SHARE = 0.2  # of the users that are held out
N_GIVEN = 5  # ratings that people give first, where most have more than twice as many


def judge_held_out(data: Dataset, settings: Model, seed: int = 0) -> dict[str, Json]:
    """Judge settings and popularity on users that are held out, and describe what was found.

    A model is fitted on the other users, so the figure is that of the settings, not of the model
    that is then fitted on all users.

    Parameters
    ----------
    data
        Ratings and features.
    settings
        Settings of a method.
    seed
        Seed of the split and of the fit.

    Returns
    -------
    dict
        The number of held-out `users`; `k`; and `rows`, for each number of ratings `given` the
        Accuracy@k of the `model` and of `popularity` with 95% intervals, and whether the model is
        "ahead", "tied" or "behind".

    Raises
    ------
    DataError
        There are too few users or favourites to judge by.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> found = judge_held_out(read("sample", n_users=500, n_items=200), MFDCF(n_bits=32))
    >>> found["users"], [row["given"] for row in found["rows"]]
    (100, [0, 5])
    """
    shots = (0, N_GIVEN) if np.median(data.ratings.per_user) > 2 * N_GIVEN else (0,)
    models = {"model": settings, "popularity": MODELS["popularity"]()}
    found = compare_models(data, models, splits=1, share=SHARE, shots=shots, seed=seed)
    rows = {(row.model, row.shots): row for row in found.rows}
    judged: list[Json] = [
        {
            "given": n,
            "model": asdict(rows["model", n].accuracy),
            "popularity": asdict(rows["popularity", n].accuracy),
            "verdict": rows["popularity", n].verdict,
        }
        for n in shots
    ]
    users = int(rows["model", 0].metrics["users"])
    return {"users": users, "k": found.k, "rows": judged}
