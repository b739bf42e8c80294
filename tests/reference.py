"""MFDCF a second time: slow, dense, float64, straight from the equations.

Nothing is imported from coldhash, so that a mistake cannot stand in both. Letters as in
docs/notation.md, numbers of equations as in docs/paper.md, R = I. The order of blocks of bits in
the item step is drawn like the fast one's: one permutation of the bits a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_sylvester


@dataclass
class Reference:
    S: np.ndarray  # users x items: what ratings are worth times n_bits, 0 where unknown
    v: np.ndarray  # weights of items, 1 on average
    X: dict[str, np.ndarray]  # content by group; rows of zeros for users without it
    has: dict[str, np.ndarray]  # who has the group, as 0 and 1
    unseen: tuple[str, ...]  # the groups that a stranger brings
    D: np.ndarray  # item codes to start from
    alpha: float
    beta: float
    gamma: float
    epsilon: float
    rank: int
    rho: float  # weight of strangers in the item step
    share: float  # of it by code
    width: int  # bits that are set jointly
    sweeps: int

    def __post_init__(self):
        self.W, self.V, self.B, self.mu = {}, {}, None, dict.fromkeys(self.X, 1 / len(self.X))

    def round(self, rng):
        """Go round the steps once; gives the objective (9)."""
        self.set_vectors()
        self.B = np.where(self.H >= 0, 1.0, -1.0)  # (21)
        self.set_maps()
        self.set_items(rng.permutation(self.D.shape[1]).reshape(-1, self.width))
        return self.objective()

    def set_vectors(self):
        """(19): each user alone, (α D'VD + (β + Σ 1/μ) I) h = α D'V s + β b + Σ W'x / μ."""
        n_bits = self.D.shape[1]
        self.H = np.zeros((len(self.S), n_bits))
        gram = self.alpha * (self.D.T * self.v) @ self.D
        for u, s in enumerate(self.S):
            left = gram
            right = self.alpha * self.D.T @ (self.v * s)
            if self.B is not None:
                left, right = left + self.beta * np.eye(n_bits), right + self.beta * self.B[u]
            for g, W in self.W.items():
                left = left + self.has[g][u] / self.mu[g] * np.eye(n_bits)
                right = right + W.T @ self.X[g][u] / self.mu[g]
            self.H[u] = np.linalg.solve(left, right)

    def set_maps(self):
        """(14) as a Sylvester equation, (23) by singular values, (12)."""
        for g, X in self.X.items():
            V = self.V.get(g, np.zeros((self.D.shape[1], 0)))
            left = (X.T @ X + self.epsilon * np.eye(X.shape[1])) / self.mu[g]
            self.W[g] = solve_sylvester(left, self.gamma * V @ V.T, X.T @ self.H / self.mu[g])
            if X.shape[1] > self.rank:  # or there is nothing beyond the rank
                self.V[g] = np.linalg.svd(self.W[g])[2][self.rank :].T
        h = {g: np.sqrt(self.misfit(g)) for g in self.X}
        self.mu = {g: h[g] / sum(h.values()) for g in h}

    def misfit(self, g):
        error = self.has[g][:, None] * (self.H - self.X[g] @ self.W[g])
        return np.sum(error**2) + self.epsilon * np.sum(self.W[g] ** 2)

    def strangers(self):
        """Give the vectors that users would have had as strangers."""
        weights = {g: self.has[g][:, None] / self.mu[g] for g in self.unseen}
        says = sum(weights[g] * (self.X[g] @ self.W[g]) for g in self.unseen)
        total = sum(weights.values())
        return np.where(total > 0, says / np.maximum(total, 1e-300), self.H.mean(axis=0))

    def set_items(self, blocks):
        """Σ d G d' - 2 d l' for every item: each block to its best pattern, all of them tried."""
        self.G, self.L = self.item_energy()
        patterns = np.array(np.meshgrid(*[[-1.0, 1.0]] * self.width)).reshape(self.width, -1).T
        for d, pulls in zip(self.D, self.L, strict=True):
            for bits in [*blocks] * self.sweeps:
                tried = np.tile(d, (len(patterns) + 1, 1))  # the first one stays as it is
                tried[1:, bits] = patterns
                energy = np.sum(tried @ self.G * tried, axis=1) - 2 * tried @ pulls
                d[:] = tried[np.argmin(energy)]

    def item_energy(self):
        """G and L, with every user a second and a third time: as a stranger, and as its code."""
        P = self.strangers()
        C = np.where(P >= 0, 1.0, -1.0)
        SVD = self.S @ (self.v[:, None] * self.D)
        length = np.sum(C * SVD) / np.sum((C @ self.D.T) ** 2 * self.v)  # least squares
        code = self.rho * self.share
        own, real = 1 - self.rho, self.rho - code
        G = own * self.H.T @ self.H + real * P.T @ P + code * length**2 * C.T @ C
        return G, self.S.T @ (own * self.H + real * P + code * length * C)

    def objective(self):
        """(9), term by term."""
        total = self.alpha * np.sum(self.v * (self.S - self.H @ self.D.T) ** 2)
        total += self.beta * np.sum((self.B - self.H) ** 2)
        for g in self.X:
            total += self.misfit(g) / self.mu[g]
            total += self.gamma * np.sum(np.linalg.svd(self.W[g])[1][self.rank :] ** 2)
        return total

    def finish(self):
        """Settle vectors and maps on the last item codes."""
        self.set_vectors()
        self.set_maps()
