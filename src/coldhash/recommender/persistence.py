"""From a Recommender to a model file, and back by memory map."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from coldhash.arrays.checks import check_finite, check_places, part_of, take
from coldhash.arrays.products import SparseRows
from coldhash.data.feedback import Feedback
from coldhash.data.ids import Ids
from coldhash.errors import ModelFileError, check_choice
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import ANSWERS, HISTORY
from coldhash.recommender import model_file
from coldhash.recommender.items import restore_items
from coldhash.recommender.recommender import Recommender

# where the encoders are that a model file may name
ENCODERS = {
    "BucketEncoder": "coldhash.baselines.lsh",
    "CellEncoder": "coldhash.baselines.controls",
    "ConsensusEncoder": "coldhash.recommender.encoders",
    "NeighbourEncoder": "coldhash.baselines.cbfknn",
    "NetworkEncoder": "coldhash.baselines.ddl",
    "StackEncoder": "coldhash.baselines.shared",
}


def save_model(model: Recommender, path: Path) -> None:
    """Write a model to one file, in one step."""
    check_choice("encoder", type(model.encoder).__name__, ENCODERS)
    encoder, encoder_arrays = model.encoder.state()
    features, feature_arrays = model.features.state()
    facts: dict[str, Any] = {
        "name": model.name,
        "settings": model.settings,
        "scale": list(model.scale),
        "feedback": asdict(model.feedback),
        "columns": model.columns,
        "features": features,
        "encoder": {"form": type(model.encoder).__name__, "state": encoder},
        "n_bits": model.items.n_bits,
        "levels": model.items.levels is not None,
        # without timings: fits of one seed write the same bytes
        "report": {name: said for name, said in model.report.items() if name != "seconds"},
    }
    parts = {
        "items/": model.items.arrays(),
        "item_ids/": model.item_ids.arrays(),
        "user_ids/": model.user_ids.arrays(),
        "encoder/": encoder_arrays,
        "features/": feature_arrays,
        "seen/": {"indptr": model.seen.indptr, "indices": model.seen.indices},
    }
    tensors = {"popularity": model.popularity, "users/vectors": model.user_vectors}
    if model.guessed is not None:
        tensors["guessed"] = model.guessed
    tensors |= {prefix + name: a for prefix, own in parts.items() for name, a in own.items()}
    if model.item_table.num_columns and model.item_table.num_rows:
        tensors["item_table"] = model_file.arrow_bytes(model.item_table)
    model_file.write(path, facts, tensors)


def load(path: str | Path, verify: bool = True, *, file: BinaryIO | None = None) -> Recommender:
    """Read a model from its file, by memory map.

    Replace the file by another one (`mv`, `save`) while it is loaded, but do not write over it: the
    model would change, and a file that is cut off ends the process.

    Parameters
    ----------
    path
        The file.
    verify
        Check the checksum, all values and one answer; False trusts the file.
    file
        An open file to read instead of the one at `path`, which errors name.

    Returns
    -------
    Recommender
        The model.

    Raises
    ------
    ModelFileError, ChecksumError
        The file is not a model, or damaged.
    SourceError
        The file cannot be read.

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
    facts, tensors = model_file.read(Path(path), verify, file)
    try:
        model = _restored(facts, tensors, verify)
        if verify:
            check_answers(model)
    except Exception as error:  # a wrong part may lead to any of them
        raise ModelFileError(
            f"{path}: a part of the model is missing or odd: {error!r}",
            hint="save the model again",
        ) from error
    return model


def check_answers(model: Recommender) -> None:
    """Answer once in every way, so that a model that cannot is refused; this compiles, too."""
    person = model.features.example()
    ends = [model.item_ids[row] for row in (0, -1)] if len(model.item_ids) else []
    rated = dict.fromkeys(ends[:1], model.scale[1])
    people = [{}, person, {HISTORY: rated}, {**person, HISTORY: rated}]
    if model.encoder.answers is not None:
        people.append({ANSWERS: rated})
        for known in ({}, person):  # with all fields missing, and with none
            model.ask(known)
    asked: list[dict[str, Any]] = [{"users": people}]
    if len(model.user_ids):
        asked.append({"user_ids": [model.user_ids[0]]})
    for score in ("real", "hamming") if model.has_codes else ("real",):
        for who in asked:
            model.recommend(**who, k=1, score=score, threads=1, candidates=ends)


def _restored(facts: dict[str, Any], tensors: dict[str, np.ndarray], verify: bool) -> Recommender:
    item_ids = Ids.stored(part_of(tensors, "item_ids/"), "item", verify)
    user_ids = Ids.stored(part_of(tensors, "user_ids/"), "user", verify)
    n_items, n_users = len(item_ids), len(user_ids)
    popularity = take(tensors, {"popularity": ("f i u", n_items)})["popularity"]
    items = restore_items(part_of(tensors, "items/"), facts["n_bits"], facts["levels"], popularity)
    vectors = take(tensors, {"users/vectors": ("f", n_users, items.width)})["users/vectors"]
    features = FeatureEncoder.from_state(facts["features"], part_of(tensors, "features/"))
    name = facts["encoder"]["form"]
    form = getattr(import_module(ENCODERS[name]), name)
    state = facts["encoder"]["state"], part_of(tensors, "encoder/")
    encoder = form.restore(state, items, features)
    rated = take(tensors, {"indices": ("i", "entries"), "indptr": ("i", n_users + 1)}, "seen/")
    ones = np.broadcast_to(np.float32(1), rated["indices"].shape)
    seen = SparseRows(ones, rated["indices"], rated["indptr"], (n_users, n_items))
    guessed = take(tensors, {"guessed": ("b", n_items)}) if "guessed" in tensors else {}
    if verify:
        _check_values(tensors, n_items, n_users, items.width)
    table = pa.table({})
    if "item_table" in tensors:
        content = take(tensors, {"item_table": ("u1", "bytes")})["item_table"]
        table = model_file.arrow_table(content, verify)
        if table.num_rows != n_items:
            raise ModelFileError(f"a table of {table.num_rows} lines for {n_items} items")
    return Recommender(
        name=facts["name"],
        settings=facts["settings"],
        features=features,
        encoder=encoder,
        item_ids=item_ids,
        items=items,
        popularity=popularity,
        scale=(facts["scale"][0], facts["scale"][1]),
        feedback=Feedback(**facts["feedback"]),
        columns={str(role): str(name) for role, name in facts["columns"].items()},
        user_ids=user_ids,
        user_vectors=vectors,
        report=facts["report"],
        seen=seen,
        item_table=table,
        **guessed,
    )


def _check_values(tensors: dict[str, np.ndarray], n_items: int, n_users: int, width: int) -> None:
    """Refuse numbers that are not finite, and places outside of what they point into.

    A checksum tells of damage, but whoever writes a file on purpose can write a right one.
    """
    check_finite(tensors)
    ends = {"items/order": n_items, "items/rank": n_items, "seen/indices": n_items}
    ends |= {"item_ids/order": n_items, "user_ids/order": n_users, "items/indices": width}
    for name, end in ends.items():
        if name in tensors:
            check_places(name, tensors[name], end)
    levels = tensors.get("items/levels", np.zeros(0, np.uint8))
    if (levels[1:] > levels[:-1]).any():
        raise ModelFileError("'items/levels' ascend")
    for part in ("seen", "items"):
        if f"{part}/indptr" in tensors:
            ranges, end = tensors[f"{part}/indptr"], len(tensors[f"{part}/indices"])
            if ranges[0] != 0 or ranges[-1] != end or (ranges[1:] < ranges[:-1]).any():
                raise ModelFileError(f"'{part}/indptr' are no ranges of 0 to {end}")
