"""The item-wise parts of a model: fewer of them, or more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack

from coldhash.data.ids import Ids
from coldhash.errors import DataError, SettingError
from coldhash.recommender.items import CodeItems, code_items
from coldhash.recommender.recommender import Recommender


def codes_of(model: Recommender) -> CodeItems:
    """Return the items of a model whose codes come from MFDCF's item step; refuse any other."""
    items = code_items(model.items)
    if items is None or "stranger_weight" not in model.settings:
        raise SettingError(
            f"{model.name} does not know how codes of new items are made",
            hint="fit MFDCF(new_items=True), or fit again on all ratings",
        )
    return items


def taking(model: Recommender, rows: np.ndarray) -> Recommender:
    """Give the model with these items only."""
    popularity = np.asarray(model.popularity)[rows]
    items = model.items.select(rows, popularity)
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
        encoder=model.encoder.follow_items(items, features, rows, 0),
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
    counts = np.concatenate([model.popularity, popularity.astype(model.popularity.dtype)])
    items = codes_of(model).extend(codes, counts)
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
        encoder=model.encoder.follow_items(items, features, rows, len(codes)),
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


def _writable(seen: csr_array) -> csr_array:
    """Give what users have rated with ones of its own: a loaded model stores a single one."""
    ones = np.ones(len(seen.indices), dtype=np.float32)
    return csr_array((ones, seen.indices, seen.indptr), shape=seen.shape)


def _strings(ids: Ids) -> pa.Array:
    return ids.values.cast(pa.string())


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows)) if table.num_columns else table
