"""The item-wise parts of a model: fewer of them, or more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack

from coldhash.data.ids import Ids
from coldhash.errors import DataError
from coldhash.features.groups import FeatureEncoder
from coldhash.recommender.encoders.consensus import ConsensusEncoder
from coldhash.recommender.encoders.encoded import Encoder
from coldhash.recommender.items import CodeItems, IndexedItems, Items, RealItems
from coldhash.recommender.recommender import Recommender

USUAL = 1.0  # how much a rating of a new item tells: as much as one of an average item


def taking(model: Recommender, rows: np.ndarray) -> Recommender:
    """Give the model with these items only."""
    popularity = np.asarray(model.popularity)[rows]
    if isinstance(model.items, RealItems):
        items: Items = RealItems(model.items.vectors[rows], popularity)
    else:
        items = CodeItems(model.items.packed[rows], model.items.n_bits).indexed(popularity)
    preference = model.features.preference
    features = replace(
        model.features, preference=None if preference is None else preference.take(rows)
    )
    return replace(
        model,
        items=items,
        item_ids=model.item_ids.take(rows),
        popularity=popularity,
        features=features,
        encoder=_rebuilt(model.encoder, items, features, rows, 0),
        seen=None if model.seen is None else csr_array(_writable(model.seen)[:, rows]),
        item_table=None if model.item_table is None else _take(model.item_table, rows),
    )


def joined_by(
    model: Recommender,
    item_ids: Ids,
    codes: np.ndarray,
    popularity: np.ndarray,
    content: csr_array,
    table: pa.Table,
    seen: csr_array,
) -> Recommender:
    """Give the model with more items after the ones it has; `seen` is of the new ones alone."""
    assert isinstance(model.items, IndexedItems)
    counts = np.concatenate([model.popularity, popularity.astype(model.popularity.dtype)])
    new = CodeItems.of(codes)
    items = CodeItems(np.vstack([model.items.packed, new.packed]), new.n_bits).indexed(counts)
    preference = model.features.preference
    features = replace(
        model.features, preference=None if preference is None else preference.extend(content)
    )
    rows = np.arange(len(model.item_ids))
    return replace(
        model,
        items=items,
        item_ids=Ids.of(pa.concat_arrays([_strings(model.item_ids), _strings(item_ids)]), "item"),
        popularity=counts,
        features=features,
        encoder=_rebuilt(model.encoder, items, features, rows, len(codes)),
        seen=None if model.seen is None else csr_array(hstack([_writable(model.seen), seen])),
        item_table=model.item_table and pa.concat_tables([model.item_table, table]),
    )


def fitted_table(model: Recommender, table: pa.Table, n_rows: int) -> pa.Table:
    """Give a table of new items the columns and types of the model's."""
    if model.item_table is None:
        return table
    columns, known = {}, set(table.column_names)
    for wanted in model.item_table.schema:
        if wanted.name not in known:
            columns[wanted.name] = pa.nulls(n_rows, wanted.type)
            continue
        try:
            columns[wanted.name] = table.column(wanted.name).cast(wanted.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"the item table, column {wanted.name!r}: {error}",
                hint=f"the model's items have {wanted.type} there",
            ) from None
    return pa.table(columns, schema=model.item_table.schema)


def _rebuilt(
    encoder: Encoder, items: Items, features: FeatureEncoder, rows: np.ndarray, n_more: int
) -> Encoder:
    """Let what histories say follow the items: the rows that stay, then `n_more`."""
    if not isinstance(encoder, ConsensusEncoder) or encoder.history is None:
        return encoder
    assert isinstance(items, IndexedItems)
    weights = encoder.history.item_weights
    more = np.full(n_more, USUAL, dtype=weights.dtype)
    history = replace(
        encoder.history,
        codes=items,
        content=None if features.preference is None else features.preference.main,
        item_weights=np.concatenate([weights[rows], more]),
    )
    return replace(encoder, history=history)


def _writable(seen: csr_array) -> csr_array:
    """Give what users have rated with ones of its own: a loaded model stores a single one."""
    ones = np.ones(len(seen.indices), dtype=np.float32)
    return csr_array((ones, seen.indices, seen.indptr), shape=seen.shape)


def _strings(ids: Ids) -> pa.Array:
    return ids.values.cast(pa.string())


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows)) if table.num_columns else table
