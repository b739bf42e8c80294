"""MFDCF a second time: slow, dense, float64, straight from the equations.

Nothing is imported from coldhash, so that a mistake cannot stand in both. Letters as in
docs/architecture.md, numbers of equations as in docs/method.md, R = I. The order of blocks of bits
in the item step is drawn like the fast one's: one permutation of the bits a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_sylvester


@dataclass
class Reference:
    S: np.ndarray  # users x items: what ratings are worth, 0 where unknown
    level: bool  # whether items have one
    v: np.ndarray  # weights of items, 1 on average
    m: np.ndarray  # means of the targets of items; 0 without a level
    g: np.ndarray  # gains of items; 1 without a level
    trained: np.ndarray  # the users whom the item step sees, as 0 and 1
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
        self.T = (self.S - self.m) / self.g
        self.average, self.length = np.zeros(self.D.shape[1]), 0.0

    def round(self, rng):
        """Go round the steps once; gives the objective (9)."""
        self.set_maps()
        self.set_vectors()
        self.set_items(rng.permutation(self.D.shape[1]).reshape(-1, self.width))
        return self.objective()

    def set_vectors(self):
        """(19): each user alone, (α D'VD + (β + Σ 1/μ) I) h = α D'V t + β s b + Σ W'x / μ.

        Who has no group is expected to be the average user. Then (12).
        """
        n_bits = self.D.shape[1]
        self.H = np.zeros((len(self.T), n_bits))
        gram = (self.D.T * self.v) @ self.D
        for u, t in enumerate(self.T):
            pulls = self.D.T @ (self.v * t)
            left, right = self.alpha * gram, self.alpha * pulls
            groups = [g for g in self.W if self.has[g][u]]
            for g in groups:
                left = left + np.eye(n_bits) / self.mu[g]
                right = right + self.W[g].T @ self.X[g][u] / self.mu[g]
            if not groups:
                left, right = left + np.eye(n_bits), right + self.average
            if self.B is not None:
                left = left + self.beta * np.eye(n_bits)
                right = right + self.beta * self.length * self.B[u]
            self.H[u] = np.linalg.solve(left, right)
        self.B = np.where(self.H >= 0, 1.0, -1.0)  # (21)
        self.length = np.mean(np.abs(self.H))
        self.average = np.zeros(n_bits) if self.level else self.H.mean(axis=0)
        h = {g: np.sqrt(self.misfit(g)) for g in self.X}
        self.mu = {g: h[g] / sum(h.values()) for g in h}

    def set_maps(self):
        """(14) as a Sylvester equation of what ratings alone say, (23) by singular values."""
        DV = self.D.T * self.v
        free = np.linalg.solve(DV @ self.D, DV @ self.T.T).T
        for g, X in self.X.items():
            V = self.V.get(g, np.zeros((self.D.shape[1], 0)))
            left = (X.T @ X + self.epsilon * np.eye(X.shape[1])) / self.mu[g]
            self.W[g] = solve_sylvester(
                left, self.gamma * V @ V.T, X.T @ (self.has[g][:, None] * free) / self.mu[g]
            )
            if X.shape[1] > self.rank:  # or there is nothing beyond the rank
                self.V[g] = np.linalg.svd(self.W[g])[2][self.rank :].T

    def misfit(self, g):
        error = self.has[g][:, None] * (self.H - self.X[g] @ self.W[g])
        return np.sum(error**2) + self.epsilon * np.sum(self.W[g] ** 2)

    def strangers(self):
        """Give the vectors that users would have had as strangers."""
        weights = {g: self.has[g][:, None] / self.mu[g] for g in self.unseen}
        says = sum(weights[g] * (self.X[g] @ self.W[g]) for g in self.unseen)
        total = sum(weights.values())
        return np.where(total > 0, says / np.maximum(total, 1e-300), self.average)

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
        P = self.strangers() if self.rho else np.zeros_like(self.H)
        C = np.where(P >= 0, 1.0, -1.0)
        H, P, C = (self.trained[:, None] * each for each in (self.H, P, C))
        CD = C @ self.D.T
        length = np.sum(CD * (P @ self.D.T) * self.v) / np.sum(CD**2 * self.v)  # least squares
        code = self.rho * self.share
        own, real = 1 - self.rho, self.rho - code
        G = own * H.T @ H + real * P.T @ P + code * length**2 * C.T @ C
        return G, self.T.T @ (own * H + real * P + code * length * C)

    def objective(self):
        """(9) / α, term by term."""
        total = self.alpha * np.sum(self.v * (self.T - self.H @ self.D.T) ** 2)
        total += self.beta * np.sum((self.length * self.B - self.H) ** 2)
        for g in self.X:
            total += self.misfit(g) / self.mu[g]
            total += self.gamma * np.sum(np.linalg.svd(self.W[g])[1][self.rank :] ** 2)
        return total / self.alpha

    def finish(self):
        """Settle vectors and maps on the last item codes."""
        self.set_maps()
        self.set_vectors()
