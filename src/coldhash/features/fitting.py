"""Learn features from the training part of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack

from coldhash.data.dataset import Dataset
from coldhash.features.columns import fit_block, fit_column
from coldhash.features.groups import FeatureEncoder, GroupEncoder
from coldhash.features.preference import fit_preference


def fit_features(data: Dataset, seed: int = 0) -> FeatureEncoder:
    """Learn a feature encoder from the training part.

    Examples
    --------
    >>> from coldhash.data.sources import read
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
    >>> one = encoder.apply({"age": 30, "city": "Atlantis"})
    >>> bool(one.has["demographics"][0]), bool(one.has["preference"][0])
    (True, False)
    """
    groups = fit_groups(data.plan.users, data.users)
    preference = None
    if data.plan.preference is not None:
        preference = fit_preference(
            item_content(data),
            data.ratings.matrix,
            data.ratings.scale[1],
            data.plan.preference.max_width,
            np.random.default_rng(seed),
        )
    return FeatureEncoder(groups, preference)


def fit_groups(groups: Mapping[str, Mapping[str, Any]], table: pa.Table) -> dict[str, GroupEncoder]:
    """Learn the columns of each group of one table."""
    return {
        group: GroupEncoder(
            {name: fit_column(spec, table.column(name), name) for name, spec in columns.items()}
        )
        for group, columns in groups.items()
    }


def item_content(data: Dataset) -> csr_array:
    """Encode the item table without constants: what an item is made of; unknown is empty."""
    columns = [pair for group in data.plan.items.values() for pair in group.items()]
    blocks = [fit_block(spec, data.items.column(name), name)[1] for name, spec in columns]
    return csr_array(hstack(blocks))
