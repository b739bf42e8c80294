"""Learn features from the training part of a data set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack

from coldhash.data.dataset import Dataset, UserRecords
from coldhash.data.plan import FeaturePlan
from coldhash.features.content import ContentEncoder
from coldhash.features.forms import FittedColumn
from coldhash.features.groups import FeatureEncoder, GroupEncoder
from coldhash.features.learning import Tally, count_values, fit_block, fit_tallies
from coldhash.features.preference import fit_preference
from coldhash.partitions import MemoryPartitions, Partitions


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
    users = MemoryPartitions(data.records())
    return learn_features(users, data.plan, data.items, data.ratings.scale[1], seed)


def learn_features(
    users: Partitions, plan: FeaturePlan, items: pa.Table, highest: float, seed: int
) -> FeatureEncoder:
    """Learn a feature encoder from partitions of users."""
    groups = _fit_groups(users, plan)
    encoder, content = fit_content(plan, items, items.num_rows)
    preference = None
    if plan.preference is not None:
        rng = np.random.default_rng(seed)
        preference = fit_preference(users, content, highest, plan.preference.max_width, rng)
    return FeatureEncoder(groups, preference, encoder)


def _fit_groups(users: Partitions, plan: FeaturePlan) -> dict[str, GroupEncoder]:
    """Learn the columns of each group of users."""
    groups, alone = plan.users, len(users) == 1

    def count(records: UserRecords) -> dict[tuple[str, str], Tally]:
        return {
            (group, name): count_values(spec, records.table.column(name), name, alone)
            for group, columns in groups.items()
            for name, spec in columns.items()
        }

    tallies = list(users.map(count, users.records)) if groups else []
    return {
        group: GroupEncoder.of(
            {
                name: fit_tallies(spec, [tally[group, name] for tally in tallies], name)
                for name, spec in columns.items()
            }
        )
        for group, columns in groups.items()
    }


def fit_content(
    plan: FeaturePlan, items: pa.Table, n_items: int
) -> tuple[ContentEncoder, csr_array]:
    """Learn the item columns, and encode them: what an item is made of; unknown is empty."""
    fitted: dict[str, FittedColumn] = {}
    blocks = [csr_array((n_items, 0), dtype=np.float32)]
    for name, spec in (pair for group in plan.items.values() for pair in group.items()):
        fitted[name], block = fit_block(spec, items.column(name), name)
        blocks.append(block)
    return ContentEncoder(fitted), csr_array(hstack(blocks, format="csr"))
