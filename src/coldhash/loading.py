"""From a model file back to a Recommender, by memory map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash import store
from coldhash.data.ids import Ids
from coldhash.encoders import ENCODERS
from coldhash.errors import ModelFileError
from coldhash.features.groups import FeatureEncoder
from coldhash.item_map import ItemMap
from coldhash.items import stored_items
from coldhash.recommend import Recommender


def load(path: str | Path, verify: bool = True) -> Recommender:
    """Load a model by memory map; `verify=False` skips the checksum.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/m.coldhash")
    ...     again = load(f"{folder}/m.coldhash")
    ...     answers = [one.recommend({"age": 30}, k=3).item_ids for one in (model, again)]
    >>> answers[0] == answers[1]
    True
    """
    facts, tensors = store.read(Path(path), verify)
    try:
        return _restored(facts, tensors, verify)
    except (
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        pa.ArrowException,
    ) as error:
        raise ModelFileError(f"{path}: a part of the model is missing or odd: {error!r}") from None


def _restored(facts: dict[str, Any], tensors: dict[str, np.ndarray], verify: bool) -> Recommender:
    def part(prefix: str) -> dict[str, np.ndarray]:
        return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

    popularity = tensors["popularity"]
    items = stored_items(part("items/"), facts["n_bits"], popularity)
    features = FeatureEncoder.from_state(facts["features"], part("features/"))
    form = ENCODERS[facts["encoder"]["form"]]
    encoder = form.restore((facts["encoder"]["state"], part("encoder/")), items, features)
    _check_types(tensors)
    item_ids = Ids.stored(part("item_ids/"), "item")
    user_ids = Ids.stored(part("user_ids/"), "user")
    _check_sizes(tensors, len(item_ids), len(user_ids), facts["n_bits"])
    if verify:
        _check_places(tensors, len(item_ids), len(user_ids))
    seen = None
    if "seen/indptr" in tensors:
        indices = tensors["seen/indices"]
        ones = np.broadcast_to(np.float32(1), indices.shape)
        shape = (len(user_ids), len(item_ids))
        seen = csr_array((ones, indices, tensors["seen/indptr"]), shape=shape, copy=False)
    table = store.arrow_table(tensors["item_table"]) if "item_table" in tensors else None
    item_map = None
    if facts["item_map"] is not None:
        item_map = ItemMap.restore((facts["item_map"], part("item_map/")))
    return Recommender(
        name=facts["name"],
        settings=facts["settings"],
        features=features,
        encoder=encoder,
        item_ids=item_ids,
        items=items,
        popularity=popularity,
        scale=(facts["scale"][0], facts["scale"][1]),
        user_ids=user_ids,
        user_vectors=tensors["users/vectors"],
        report=facts["report"],
        seen=seen,
        item_table=table,
        item_map=item_map,
    )


def _check_sizes(
    tensors: dict[str, np.ndarray], n_items: int, n_users: int, n_bits: int | None
) -> None:
    """Refuse parts that do not fit each other."""
    sizes = {"popularity": n_items, "items/order": n_items, "items/rank": n_items}
    sizes |= {"item_ids/order": n_items, "user_ids/order": n_users, "users/vectors": n_users}
    sizes["seen/indptr"] = n_users + 1
    for name, size in sizes.items():
        if name in tensors and len(tensors[name]) != size:
            raise ValueError(f"{name} holds {len(tensors[name])} entries instead of {size}")
    for ids in ("item_ids", "user_ids"):
        if tensors[f"{ids}/offsets"][-1] != len(tensors[f"{ids}/bytes"]):
            raise ValueError(f"{ids} do not end where their text ends")
    if n_bits is not None:
        expected = (-(-n_items // 64), -(-n_bits // 8), 64)
        if tensors["items/stripes"].shape != expected:
            raise ValueError(f"codes of shape {tensors['items/stripes'].shape}, not {expected}")


def _check_types(tensors: dict[str, np.ndarray]) -> None:
    """Refuse types that nobody writes: compiled code and Arrow would take them for others."""
    kinds = {"items/stripes": "u1", "items/order": "i4", "items/rank": "i4"}
    for ids in ("item_ids", "user_ids"):
        kinds |= {f"{ids}/offsets": "i4 i8", f"{ids}/bytes": "u1", f"{ids}/order": "u4"}
    for name, wanted in kinds.items():
        if name in tensors and tensors[name].dtype.str[1:] not in wanted.split():
            raise ValueError(f"{name} is of type {tensors[name].dtype}")


def _check_places(tensors: dict[str, np.ndarray], n_items: int, n_users: int) -> None:
    """Refuse places outside of what they point into, which neither compiled code nor Arrow checks.

    A checksum tells of damage, but whoever writes a file on purpose can write a right one.
    """
    ends = {"items/order": n_items, "items/rank": n_items, "seen/indices": n_items}
    ends |= {"item_ids/order": n_items, "user_ids/order": n_users}
    if "items/indices" in tensors:
        ends["items/indices"] = int(tensors["items/shape"][1])
    for name, end in ends.items():
        places = tensors.get(name)
        if places is not None and len(places) and not 0 <= places.min() <= places.max() < end:
            raise ValueError(f"{name} points outside of 0 to {end - 1}")
    starts = {f"{ids}_ids/offsets": len(tensors[f"{ids}_ids/bytes"]) for ids in ("item", "user")}
    starts |= {
        f"{part}/indptr": len(tensors.get(f"{part}/indices", ())) for part in ("seen", "items")
    }
    for name, end in starts.items():
        ranges = tensors.get(name)
        if ranges is not None and (
            ranges[0] != 0 or ranges[-1] != end or (ranges[1:] < ranges[:-1]).any()
        ):
            raise ValueError(f"{name} are no ranges of 0 to {end}")
