"""Gradient descent on a two-layer network, for targets that are one (Garg et al. 2022; Fu et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.checks import one_of, real, whole
from algoformer.prompt import Prompt
from algoformer.solvers.linear import counts


class Network(NamedTuple):
    """The weights W [b d h] and v [b h k], the examples, and how many there are."""

    W: Tensor
    v: Tensor
    x: Tensor
    y: Tensor
    n: Tensor


@dataclass(frozen=True, kw_only=True)
class NetworkGradientDescent(Algorithm[Prompt, Network]):
    """W, v ← W, v - η ∇ of |v'σ(W'x) - y|²/2n; it predicts v'σ(W'query), with σ the ReLU or tanh.

    Every prompt starts from v = 0, where it predicts 0, and the same W ~ N(0, 1/d), a function of `seed`.
    """

    hidden: int = 4
    unit: Literal["relu", "tanh"] = "relu"
    eta: float = 0.01
    steps: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        whole("hidden", self.hidden, 1)
        one_of("unit", self.unit, ("relu", "tanh"))
        real("eta", self.eta, above=0)
        whole("steps", self.steps)
        whole("seed", self.seed)

    def init(self, p: Prompt) -> Network:
        x, y = p.pairs
        (b, _, d), k = x.shape, y.shape[2]
        g = torch.Generator().manual_seed(int(self.seed))
        W = torch.randn(d, self.hidden, generator=g, dtype=torch.float64) / d**0.5
        return Network(W.to(x).expand(b, -1, -1), x.new_zeros(b, self.hidden, k), x, y, counts(p))

    def step(self, p: Prompt, s: Network, t: int) -> Network:
        a = self._units(s.x @ s.W)
        r = (a @ s.v - s.y) / s.n  # of an unseen pair 0: its x and y are, and so its units
        slope = (a > 0).to(a.dtype) if self.unit == "relu" else 1 - a.square()
        return s._replace(
            W=s.W - self.eta * (s.x.mT @ (slope * (r @ s.v.mT))),
            v=s.v - self.eta * (a.mT @ r),
        )

    def read(self, p: Prompt, s: Network) -> Float[Tensor, "b o k"]:
        return self._units(p.queries @ s.W) @ s.v

    def _units(self, z: Tensor) -> Tensor:
        return z.relu() if self.unit == "relu" else z.tanh()
