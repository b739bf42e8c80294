"""Features side by side, scaled to 0..1, sent through the layers of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders.base import (
    Encoded,
    Encoder,
    group_shares,
    has_nothing,
)
from coldhash.recommender.encoders.linear import stack_features
from coldhash.recommender.items import Items

Layer = tuple[np.ndarray, np.ndarray]  # weights (inputs x outputs) and biases
LN_2 = 0.6931471805599453
N_TERMS = 13  # of the series of e^x: all that double precision shows for |x| <= ln 2 / 2


def tanh(values: np.ndarray) -> np.ndarray:
    """Compute tanh from sums, products and quotients alone, which all processors round alike.

    `np.tanh` has code of its own for several of them, and differs in the last bit.
    """
    size = np.minimum(2.0 * np.abs(values, dtype=np.float64), 40)  # beyond, tanh is 1
    halvings = np.rint(size / LN_2)
    rest = halvings * LN_2 - size
    power = np.ones_like(rest)  # of e, by its series; |rest| is at most ln 2 / 2
    for n in range(N_TERMS, 0, -1):
        power = 1 + power * rest / n
    power = np.ldexp(power, -halvings.astype(np.int32))  # e to the power of -size
    return np.asarray(np.copysign((1 - power) / (1 + power), values), dtype=values.dtype)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Give 1 / (1 + e⁻ˣ), without overflow."""
    return np.asarray(0.5 * (1 + tanh(0.5 * values)))


OUTPUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": tanh,
    "linear": np.asarray,
}


@dataclass(frozen=True, eq=False)
class UnitScale:
    """Some groups side by side, each column between 0 and 1; a missing group is all zeros."""

    groups: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, features: Features, groups: tuple[str, ...]) -> UnitScale:
        """Learn the ranges of columns; what is between 0 and 1 anyway stays as it is."""
        matrix = stack_features(features, groups)
        return cls(groups, np.minimum(matrix.min(axis=0), 0), np.maximum(matrix.max(axis=0), 1))

    def __call__(self, features: Features) -> np.ndarray:
        """Scale people's features; what is outside of the range seen is cut off."""
        matrix = stack_features(features, self.groups)
        scaled = np.clip((matrix - self.low) / (self.high - self.low), 0, 1).astype(np.float32)
        widths = [features.matrices[name].shape[1] for name in self.groups]
        has = np.column_stack([features.has[name] for name in self.groups])
        return np.asarray(scaled * np.repeat(has, widths, axis=1))


@dataclass(frozen=True, eq=False)
class NetworkEncoder(Encoder):
    """Layers of sigmoid units over scaled features, then an output layer."""

    scale: UnitScale
    layers: tuple[Layer, ...]
    output: str = "tanh"  # or "linear"

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        groups = self.scale.groups
        vectors = forward(self.scale(features), self.layers, self.output)[-1].astype(np.float32)
        return Encoded(vectors, group_shares(features, groups), has_nothing(features, groups))

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
        json = {"groups": list(self.scale.groups), "output": self.output, "n": len(self.layers)}
        arrays = {"low": self.scale.low, "high": self.scale.high}
        for n, (weights, biases) in enumerate(self.layers):
            arrays |= {f"weights/{n}": weights, f"biases/{n}": biases}
        return json, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        json, arrays = state
        width = sum(features.widths[name] for name in json["groups"])
        ranges = take(arrays, {"low": ("f", width), "high": ("f", width)})
        sizes: list[str | int] = [width, *(f"layer {n}" for n in range(1, json["n"])), items.width]
        forms: Forms = {}
        for n in range(json["n"]):
            forms |= {f"weights/{n}": ("f", *sizes[n : n + 2]), f"biases/{n}": ("f", sizes[n + 1])}
        own = list(take(arrays, forms).values())
        scale = UnitScale(tuple(json["groups"]), **ranges)
        layers = tuple(zip(own[::2], own[1::2], strict=True))
        return cls(scale, layers, json["output"])


def forward(
    inputs: np.ndarray, layers: tuple[Layer, ...], output: str, product: Any = times
) -> list[np.ndarray]:
    """Give what each layer makes of the one before, the input first.

    With `times` nobody depends on the others in there; BLAS, faster, rounds by the company.
    """
    made = [inputs]
    for n, (weights, biases) in enumerate(layers):
        squash = sigmoid if n < len(layers) - 1 else OUTPUTS[output]
        made.append(squash(product(made[-1], weights) + biases))
    return made
