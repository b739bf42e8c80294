"""Small worlds whose right answers are plain to see."""

from __future__ import annotations

import numpy as np

from coldhash import Dataset


def checkerboard(n_users: int = 24, n_items: int = 20) -> Dataset:
    """Even users rate even items, odd users odd ones, all but one each; parity is known."""
    users, items = np.indices((n_users, n_items)).reshape(2, -1)
    same = (users % 2) == (items % 2)
    left_out = items // 2 == (users // 2) % (n_items // 2)
    keep = same & ~left_out
    return Dataset.from_tables(
        {"user_id": users[keep], "item_id": items[keep], "rating": np.full(keep.sum(), 5.0)},
        {
            "user_id": np.arange(n_users),
            "parity": ["even" if u % 2 == 0 else "odd" for u in range(n_users)],
        },
        {
            "item_id": np.arange(n_items),
            "colour": ["white" if i % 2 == 0 else "black" for i in range(n_items)],
        },
        scale=(0.0, 5.0),
        feedback="counts",  # every one is a favourite
        name="checkerboard",
    )
