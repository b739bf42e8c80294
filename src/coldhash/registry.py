"""The table of all methods, each of which is imported when it is first asked for.

Another package adds a method by an entry point of the group `coldhash.models`, its name and the
place of its settings class, in its `pyproject.toml`:

    [project.entry-points."coldhash.models"]
    nearest = "my_package.nearest:Nearest"

A model file names an encoder of this package: a model with another one cannot be saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, get_type_hints

from coldhash.errors import SettingError

if TYPE_CHECKING:
    from coldhash.data.dataset import Dataset
    from coldhash.mfdcf.model import Callback
    from coldhash.recommender.recommender import Recommender

Settings = TypeVar("Settings")

_GROUP = "coldhash.models"
_CLASSES = {
    "mfdcf": "coldhash.mfdcf.model:MFDCF",
    # the baselines of its paper
    "cbfknn": "coldhash.baselines.cbfknn:CBFKNN",
    "dfm": "coldhash.baselines.dfm:DFM",
    "ddl": "coldhash.baselines.ddl:DDL",
    "zsr": "coldhash.baselines.zsr:ZSR",
    # the related systems that it names
    "lsh": "coldhash.baselines.lsh:LSH",
    "itq": "coldhash.baselines.itq:ITQ",
    "bccf": "coldhash.baselines.bccf:BCCF",
    "ch": "coldhash.baselines.itq:CH",
    "pph": "coldhash.baselines.pph:PPH",
    "dcf": "coldhash.baselines.dcf:DCF",
    "dcmf": "coldhash.baselines.dcf:DCMF",
    "mf": "coldhash.baselines.mf:MF",
    # the controls that every table must show
    "popularity": "coldhash.baselines.controls:Popularity",
    "ridge": "coldhash.baselines.controls:Ridge",
}


def _other_entries() -> dict[str, EntryPoint]:
    """Find the methods of other packages."""
    return {entry.name: entry for entry in entry_points(group=_GROUP)}


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
        own = name in _CLASSES
        entry = EntryPoint(name, _CLASSES[name], _GROUP) if own else _other_entries()[name]
        try:
            return cast("type[Model]", entry.load())
        except (ImportError, AttributeError) as error:
            hint = "install or remove the package that adds it"
            raise SettingError(f"method {name!r}, {entry.value}: {error}", hint=hint) from error

    def __iter__(self) -> Iterator[str]:
        return iter({**_CLASSES, **_other_entries()})

    def __len__(self) -> int:
        return len(list(iter(self)))


MODELS: Mapping[str, type[Model]] = _Models()


def settings_from(method: type[Settings], values: Mapping[str, object]) -> Settings:
    """Make the settings of a method from JSON or TOML, where lists stand for tuples.

    Raises SettingError for a name that the method does not have.
    """
    names = get_type_hints(method)
    for name in values:
        if name not in names:
            raise SettingError(f"no setting is called {name!r}", hint=", ".join(sorted(names)))
    return method(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
