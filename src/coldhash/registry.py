"""Ratings and features -> a fitted model; one method per file. MODELS is the one table of them.

Examples
--------
>>> from coldhash import read
>>> model = MODELS["popularity"]().fit(read("sample", n_users=200, n_items=60))
>>> len(model.recommend({}, k=3))
3
"""

from __future__ import annotations

from typing import Any, Protocol

from coldhash.baselines.bccf import BCCF
from coldhash.baselines.biased_mf import BiasedMF
from coldhash.baselines.cbfknn import CBFKNN
from coldhash.baselines.ch import CH
from coldhash.baselines.dcf import DCF
from coldhash.baselines.dcmf import DCMF
from coldhash.baselines.ddl import DDL
from coldhash.baselines.dfm import DFM
from coldhash.baselines.itq import ITQ
from coldhash.baselines.lsh import LSH, SignLSH
from coldhash.baselines.mf import MF
from coldhash.baselines.popularity import Popularity
from coldhash.baselines.pph import PPH
from coldhash.baselines.ridge import Ridge
from coldhash.baselines.zsr import ZSR
from coldhash.data.dataset import Dataset
from coldhash.mfdcf.model import MFDCF
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback


class Model(Protocol):
    """The settings of a method: frozen; `fit` gives a `Recommender`.

    Examples
    --------
    >>> from coldhash import read
    >>> settings: Model = MODELS["ridge"](ridge=100.0)
    >>> settings.fit(read("sample", n_users=200, n_items=60)).name
    'ridge'
    """

    def __init__(self, **settings: Any) -> None: ...

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Learn from a data set."""
        ...


MODELS: dict[str, type[Model]] = {
    "mfdcf": MFDCF,
    # the baselines of its paper
    "cbfknn": CBFKNN,
    "dfm": DFM,
    "ddl": DDL,
    "zsr": ZSR,
    # the related systems that it names
    "lsh": LSH,
    "sign-lsh": SignLSH,
    "itq": ITQ,
    "bccf": BCCF,
    "ch": CH,
    "pph": PPH,
    "dcf": DCF,
    "dcmf": DCMF,
    "mf": MF,
    "biased-mf": BiasedMF,
    # the controls that every table must show
    "popularity": Popularity,
    "ridge": Ridge,
}
