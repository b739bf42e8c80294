"""Learn features from the training part of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack

from coldhash.data.dataset import Dataset
from coldhash.features.columns import FittedColumn, fit_block, fit_column
from coldhash.features.content import ContentEncoder
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
    content, matrix = fit_content(data)
    preference = None
    if data.plan.preference is not None:
        preference = fit_preference(
            matrix,
            data.ratings.matrix,
            data.ratings.scale[1],
            data.plan.preference.max_width,
            np.random.default_rng(seed),
        )
    return FeatureEncoder(groups, preference, content)


def fit_groups(groups: Mapping[str, Mapping[str, Any]], table: pa.Table) -> dict[str, GroupEncoder]:
    """Learn the columns of each group of one table."""
    return {
        group: GroupEncoder(
            {name: fit_column(spec, table.column(name), name) for name, spec in columns.items()}
        )
        for group, columns in groups.items()
    }


def fit_content(data: Dataset) -> tuple[ContentEncoder, csr_array]:
    """Learn the item columns, and encode them: what an item is made of; unknown is empty."""
    fitted: dict[str, FittedColumn] = {}
    blocks = [csr_array((len(data.ratings.items), 0), dtype=np.float32)]
    for name, spec in (pair for group in data.plan.items.values() for pair in group.items()):
        fitted[name], block = fit_block(spec, data.items.column(name), name)
        blocks.append(block)
    return ContentEncoder(fitted), csr_array(hstack(blocks, format="csr"))
