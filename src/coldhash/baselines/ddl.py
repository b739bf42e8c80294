"""DDL: discrete deep learning, with the roles of users and items swapped: users have content.

    min  Σ_Ω (s_ui - b_u·d_i)² + λ Σ_u ‖b_u - f(x_u)‖² - 2α tr(B'P) - 2β tr(D'Q)               (1)
    over B, D of ±1 and the weights of f;  P'1 = 0, P'P = n I;  Q'1 = 0, Q'Q = m I

    here   paper    note
    s      R        2 n_bits (rating / highest) - n_bits: a 1 of 5 is -0.6 n_bits, as in the paper
    B, D   D, B     the paper's items have content; our users have
    f      DBN      a stack of pre-trained restricted Boltzmann machines, a tanh layer on top
    λ      λ        in the units of codes: 4 n_bits² times the paper's
    P, Q   Y, X     delegates: balanced, uncorrelated stand-ins

The network is fitted to the codes by back-propagation (Adam), so (1) may rise in its step. Somebody
without ratings has the code sgn(f(x)).

A restricted Boltzmann machine (RBM) of visible units v and hidden units h, both 0 or 1, has

    E(v, h) = -v'W h - a'v - c'h,   P(h=1|v) = σ(v W + c),   P(v=1|h) = σ(h W' + a)

and is trained by contrastive divergence with one step (CD-1): each weight moves by what a pair of
units does on the data less what it does on the reconstruction. Each machine of a stack is trained
on the hidden units of the one below.

Zhang, Yin, Huang, Du, Yang and Lian, "Discrete deep learning for fast content-aware
recommendation", WSDM 2018.
Hinton, "A practical guide to training restricted Boltzmann machines", 2010.
Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.baselines import dcf
from coldhash.baselines.dcf import DiscreteBaseline
from coldhash.baselines.shared import Training, group_shares, has_nothing, stack_features
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders import Encoded, Encoder
from coldhash.recommender.items import Items
from coldhash.recommender.recommender import Recommender

_RBM_RATE, _MOMENTUM = 0.05, 0.5
_DECAY = 2e-4  # of the weights
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8  # of Adam


@dataclass(frozen=True, kw_only=True)
class DDL(DiscreteBaseline):
    """Settings of the codes and of the network.

    Parameters
    ----------
    n_bits
        Length of codes (r).
    content_weight
        How hard the network pulls on a code (λ).
    n_negatives
        Unrated items for each rating, with the lowest target; 0 as in the paper.
    hidden
        Hidden units of the machines, from the lowest.
    n_pretrain
        Epochs of each machine.
    n_epochs
        Epochs of back-propagation, in each round.
    rate
        Learning rate of Adam.
    masked
        Share of inputs that are masked while the network is trained.
    balance_weight
        How hard codes are pulled to their delegates (α and β).
    n_rounds
        Rounds.
    n_relaxed
        Rounds of the real-valued start.
    ridge
        Ridge of the start, for each rating.

    Examples
    --------
    >>> from coldhash import read
    >>> model = DDL(n_bits=32, hidden=(20,)).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('ddl', 4)
    """

    content_weight: NonNegativeFloat = 1.0
    n_negatives: NonNegativeInt = 0
    hidden: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (200,)
    n_pretrain: NonNegativeInt = 20
    n_epochs: PositiveInt = 3
    rate: PositiveFloat = 0.01
    masked: Annotated[float, Field(ge=0, lt=1)] = 0.2
    balance_weight: NonNegativeFloat = 0.001
    n_rounds: PositiveInt = 15

    def _fit(self, training: Training) -> Recommender:
        """Pre-train the network; then alternate users, items, delegates and the network."""
        rng, weight = training.rng, self.content_weight
        lowest = min(training.ratings.scale[0], 0.0)
        S = dcf.code_targets(training.ratings, self.n_bits, lowest)
        S = dcf.add_negatives(S, self.n_negatives, -self.n_bits, rng)
        scale = UnitScale.of(training.people, training.groups)
        X = scale(training.people).astype(np.float64)
        network = self._network(X, rng)
        _, Q = dcf.relax(S, self, rng, self.balance_weight)
        F = network(X)

        def follow(B: np.ndarray) -> tuple[np.ndarray, float]:
            for _ in range(self.n_epochs):
                network.train(X, B, rng)
            F = network(X)
            return weight * F, weight * float(np.sum((B - F) ** 2))

        B, D = dcf.alternate(self, training, S, F, Q, weight * F, follow, until_settled=False)
        layers = tuple((W.astype(np.float32), c.astype(np.float32)) for W, c in network.layers)
        return training.make_code_recommender("ddl", NetworkEncoder(scale, layers), B, D)

    def _network(self, X: np.ndarray, rng: np.random.Generator) -> Network:
        """Pre-train the machines, each on the hidden units of the one below; add the top layer."""
        layers: list[Layer] = []
        V = X
        for size in self.hidden:
            W, _, c = fit_rbm(V, size, rng, self.n_pretrain)
            layers.append((W, c))
            V = sigmoid(V @ W + c)
        layers.append(draw_layer(self.hidden[-1], self.n_bits, rng))
        return Network(layers, self.rate, self.masked)


def fit_rbm(
    V: np.ndarray, n_hidden: int, rng: np.random.Generator, n_epochs: int = 20, batch: int = 100
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train a machine on rows between 0 and 1; return W (visible x hidden), a and c."""
    mean = np.clip(V.mean(axis=0), 0.01, 0.99)
    W = 0.01 * rng.standard_normal((V.shape[1], n_hidden))
    parts = W, a, c = W, np.log(mean / (1 - mean)), np.zeros(n_hidden)
    speed = [np.zeros_like(part) for part in parts]
    for _ in range(n_epochs):
        for rows in draw_batches(len(V), batch, rng):
            v = V[rows]
            h = sigmoid(v @ W + c)
            sample = (rng.random(h.shape) < h).astype(v.dtype)
            v1 = sigmoid(sample @ W.T + a)
            h1 = sigmoid(v1 @ W + c)
            slopes = (
                (v.T @ h - v1.T @ h1) / len(v) - _DECAY * W,
                (v - v1).mean(axis=0),
                (h - h1).mean(axis=0),
            )
            for part, fast, slope in zip(parts, speed, slopes, strict=True):
                fast *= _MOMENTUM
                fast += _RBM_RATE * slope
                part += fast
    return parts


def draw_layer(n_inputs: int, n_outputs: int, rng: np.random.Generator) -> Layer:
    """Draw the weights of a layer; biases are 0."""
    return rng.standard_normal((n_inputs, n_outputs)) / np.sqrt(n_inputs), np.zeros(n_outputs)


class Network:
    """A network that is trained by back-propagation with Adam; targets may change between calls.

    Sigmoid layers and a tanh layer on top; the loss is the mean square error.
    """

    def __init__(self, layers: list[Layer], rate: float, masked: float, batch: int = 100) -> None:
        self.layers = tuple((W.copy(), c.copy()) for W, c in layers)
        self.rate, self.masked, self.batch = rate, masked, batch
        parts = [part for layer in self.layers for part in layer]
        # each with the running means of its slopes and of their squares
        self._parts = [(part, np.zeros_like(part), np.zeros_like(part)) for part in parts]
        self._n_steps = 0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Compute the outputs."""
        return forward(X, self.layers, "tanh", np.matmul)[-1]

    def train(self, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> None:
        """Train on all rows once; a share of the inputs, drawn anew, is masked by zeros."""
        for rows in draw_batches(len(X), self.batch, rng):
            x = X[rows] * (rng.random((len(rows), X.shape[1])) >= self.masked)
            self._n_steps += 1
            n = self._n_steps
            size = self.rate * np.sqrt(1 - _BETA2**n) / (1 - _BETA1**n)
            slopes = gradients(x, Y[rows], self.layers)
            for (part, first, second), slope in zip(self._parts, slopes, strict=True):
                first += (1 - _BETA1) * (slope - first)
                second += (1 - _BETA2) * (slope**2 - second)
                part -= size * first / (np.sqrt(second) + _TINY)


def gradients(X: np.ndarray, Y: np.ndarray, layers: tuple[Layer, ...]) -> list[np.ndarray]:
    """Compute the gradients of ½ mean ‖Y - f(X)‖² by weights and biases, in the order of layers."""
    made = forward(X, layers, "tanh", np.matmul)
    back = (made[-1] - Y) * (1 - made[-1] ** 2) / len(X)  # tanh' = 1 - tanh²
    found: list[np.ndarray] = []
    for n in range(len(layers) - 1, -1, -1):
        found = [made[n].T @ back, back.sum(axis=0), *found]
        back = (back @ layers[n][0].T) * made[n] * (1 - made[n])  # σ' = σ (1 - σ)
    return found


def draw_batches(n_rows: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield all rows in random order, `size` at a time."""
    order = rng.permutation(n_rows)
    for start in range(0, n_rows, size):
        yield order[start : start + size]


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
    """Return 1 / (1 + e⁻ˣ), without overflow."""
    return np.asarray(0.5 * (1 + tanh(0.5 * values)))


OUTPUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": tanh, "linear": np.asarray}


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
        groups = self.scale.groups
        vectors = forward(self.scale(features), self.layers, self.output)[-1].astype(np.float32)
        return Encoded(vectors, group_shares(features, groups), has_nothing(features, groups))

    def state(self) -> State:
        """Return everything needed to rebuild the encoder."""
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
    """Return what each layer makes of the one before, the input first.

    With `times` nobody depends on the others in there; BLAS, faster, rounds by the company.
    """
    made = [inputs]
    for n, (weights, biases) in enumerate(layers):
        squash = sigmoid if n < len(layers) - 1 else OUTPUTS[output]
        made.append(squash(product(made[-1], weights) + biases))
    return made
