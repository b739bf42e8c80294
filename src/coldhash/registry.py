"""The table of all methods, each of which is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from coldhash.data.dataset import Dataset
    from coldhash.recommender.recommender import Recommender
    from coldhash.recommender.settings import Callback

_CLASSES = {
    "mfdcf": "coldhash.mfdcf.model.MFDCF",
    # the baselines of its paper
    "cbfknn": "coldhash.baselines.cbfknn.CBFKNN",
    "dfm": "coldhash.baselines.dfm.DFM",
    "ddl": "coldhash.baselines.ddl.DDL",
    "zsr": "coldhash.baselines.zsr.ZSR",
    # the related systems that it names
    "lsh": "coldhash.baselines.lsh.LSH",
    "itq": "coldhash.baselines.itq.ITQ",
    "bccf": "coldhash.baselines.bccf.BCCF",
    "ch": "coldhash.baselines.ch.CH",
    "pph": "coldhash.baselines.pph.PPH",
    "dcf": "coldhash.baselines.dcf.DCF",
    "dcmf": "coldhash.baselines.dcf.DCMF",
    "mf": "coldhash.baselines.mf.MF",
    # the controls that every table must show
    "popularity": "coldhash.baselines.popularity.Popularity",
    "ridge": "coldhash.baselines.ridge.Ridge",
}


class Model(Protocol):
    """The settings of a method: a frozen dataclass whose `fit` returns a `Recommender`.

    Parameters
    ----------
    **settings
        The settings of the method, by name.

    Examples
    --------
    >>> from coldhash import read
    >>> settings: Model = MODELS["ridge"](ridge=100.0)
    >>> settings.fit(read("sample", n_users=200, n_items=60)).name
    'ridge'
    """

    def __init__(self, **settings: object) -> None: ...

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Learn from a data set.

        Parameters
        ----------
        data
            Ratings, users and items.
        seed
            Seed of everything that is drawn.
        callback
            Called with the number of each round and the objective after it.

        Returns
        -------
        Recommender
            The fitted model.
        """
        ...


class _Models(Mapping[str, type[Model]]):
    """The methods by name: a mapping to their settings classes.

    Examples
    --------
    >>> from coldhash import MODELS, read
    >>> model = MODELS["popularity"]().fit(read("sample", n_users=200, n_items=60))
    >>> len(model.recommend({}, k=3))
    3
    """

    def __getitem__(self, name: str) -> type[Model]:
        module, _, form = _CLASSES[name].rpartition(".")
        return cast("type[Model]", getattr(import_module(module), form))

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


MODELS: Mapping[str, type[Model]] = _Models()
