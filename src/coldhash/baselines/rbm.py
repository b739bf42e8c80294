"""Restricted Boltzmann machines, and the network that a stack of them starts.

    E(v, h) = -v'W h - a'v - c'h,   P(h=1|v) = σ(v W + c),   P(v=1|h) = σ(h W' + a)

with v and h of 0 and 1. A machine is trained by contrastive divergence with one step (CD-1): each
weight moves by what a unit pair does on the data less what it does on the reconstruction. Machines
are stacked by training each on what the one below makes of the data; with an output layer on top
the stack is a network, which back-propagation (Adam) then fits to its goals.

Hinton, "A practical guide to training restricted Boltzmann machines", 2010.
Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coldhash.recommender.encoders.network import Layer, forward, sigmoid

MOMENTUM = 0.5
DECAY = 2e-4  # of the weights
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8  # of Adam


@dataclass(frozen=True, eq=False)
class RBM:
    """A Bernoulli machine: weights (visible x hidden) and the biases of both sides."""

    W: np.ndarray
    a: np.ndarray  # visible
    c: np.ndarray  # hidden

    def hidden(self, V: np.ndarray) -> np.ndarray:
        """Give P(h=1|v) for rows of visible units."""
        return sigmoid(V @ self.W + self.c)

    def visible(self, H: np.ndarray) -> np.ndarray:
        """Give P(v=1|h) for rows of hidden units."""
        return sigmoid(H @ self.W.T + self.a)

    def free_energy(self, V: np.ndarray) -> np.ndarray:
        """Give -log Σ_h e^-E(v,h) of each row: low for what the machine expects."""
        return np.asarray(-V @ self.a - np.logaddexp(0, V @ self.W + self.c).sum(axis=1))


def fit_rbm(
    V: np.ndarray,
    n_hidden: int,
    rng: np.random.Generator,
    *,
    n_epochs: int = 20,
    rate: float = 0.05,
    batch: int = 100,
) -> RBM:
    """Train a machine on rows between 0 and 1."""
    mean = np.clip(V.mean(axis=0), 0.01, 0.99)
    W = 0.01 * rng.standard_normal((V.shape[1], n_hidden))
    machine = RBM(W, np.log(mean / (1 - mean)), np.zeros(n_hidden))
    speed = [np.zeros_like(part) for part in (machine.W, machine.a, machine.c)]
    for _ in range(n_epochs):
        for rows in batches(len(V), batch, rng):
            v = V[rows]
            h = machine.hidden(v)
            sample = (rng.random(h.shape) < h).astype(v.dtype)
            v1 = machine.visible(sample)
            h1 = machine.hidden(v1)
            slopes = (
                (v.T @ h - v1.T @ h1) / len(v) - DECAY * machine.W,
                (v - v1).mean(axis=0),
                (h - h1).mean(axis=0),
            )
            for part, fast, slope in zip(
                (machine.W, machine.a, machine.c), speed, slopes, strict=True
            ):
                fast *= MOMENTUM
                fast += rate * slope
                part += fast
    return machine


def fit_stack(
    V: np.ndarray, sizes: tuple[int, ...], rng: np.random.Generator, n_epochs: int
) -> list[Layer]:
    """Train machines one upon the other; gives the layers that lead upwards."""
    layers: list[Layer] = []
    for size in sizes:
        machine = fit_rbm(V, size, rng, n_epochs=n_epochs)
        layers.append((machine.W, machine.c))
        V = machine.hidden(V)
    return layers


def output_layer(n_inputs: int, n_outputs: int, rng: np.random.Generator) -> Layer:
    """Draw the layer on top of a stack."""
    return rng.standard_normal((n_inputs, n_outputs)) / np.sqrt(n_inputs), np.zeros(n_outputs)


class Tuner:
    """Back-propagation with Adam, towards goals that may change from call to call.

    The network is sigmoid layers and a tanh layer on top; the error is the mean square.
    """

    def __init__(self, layers: list[Layer], rate: float, masked: float, batch: int = 100) -> None:
        self.layers = tuple((W.copy(), c.copy()) for W, c in layers)
        self.rate, self.masked, self.batch = rate, masked, batch
        self._parts = [part for layer in self.layers for part in layer]
        self._first = [np.zeros_like(part) for part in self._parts]
        self._second = [np.zeros_like(part) for part in self._parts]
        self._n_steps = 0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Give the outputs."""
        return forward(X, self.layers, "tanh", np.matmul)[-1]

    def epoch(self, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> None:
        """Go once through the rows; a share of the inputs, drawn anew, is masked by zeros."""
        for rows in batches(len(X), self.batch, rng):
            x = X[rows] * (rng.random((len(rows), X.shape[1])) >= self.masked)
            self._adam(slopes(x, Y[rows], self.layers))

    def _adam(self, towards: list[np.ndarray]) -> None:
        self._n_steps += 1
        n = self._n_steps
        size = self.rate * np.sqrt(1 - BETA2**n) / (1 - BETA1**n)
        for part, first, second, slope in zip(
            self._parts, self._first, self._second, towards, strict=True
        ):
            first += (1 - BETA1) * (slope - first)
            second += (1 - BETA2) * (slope**2 - second)
            part -= size * first / (np.sqrt(second) + TINY)


def slopes(X: np.ndarray, Y: np.ndarray, layers: tuple[Layer, ...]) -> list[np.ndarray]:
    """Give the slopes of ½ mean ‖Y - f(X)‖² by all weights and biases, in the layers' order."""
    made = forward(X, layers, "tanh", np.matmul)
    back = (made[-1] - Y) * (1 - made[-1] ** 2) / len(X)  # tanh' = 1 - tanh²
    found: list[np.ndarray] = []
    for n in range(len(layers) - 1, -1, -1):
        found = [made[n].T @ back, back.sum(axis=0), *found]
        back = (back @ layers[n][0].T) * made[n] * (1 - made[n])  # σ' = σ (1 - σ)
    return found


def batches(n_rows: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Deal all rows out in random order."""
    order = rng.permutation(n_rows)
    for start in range(0, n_rows, size):
        yield order[start : start + size]
