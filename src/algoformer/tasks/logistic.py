"""Logistic regression in context (Giannou et al. 2024, Section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import one_of
from algoformer.tasks.linear import Weights
from algoformer.tasks.pairs import GaussianInputs


@dataclass(frozen=True, kw_only=True)
class LogisticRegression(GaussianInputs):
    """Labels -1 and +1 with w ~ N(0, I): y = sign(w'x) or, by `link`, +1 with probability 1 / (1 + exp(-w'x)).

    With `bounded` each row x is divided by max(1, |x|), so that |x| <= 1. A clean label is sign(w'x) under either link.
    There is no oracle: `DampedNewton` minimises the regularised loss, but its linear answer is no Bayes label.
    """

    d: int = 5
    n: int = 25
    link: Literal["sign", "bernoulli"] = "sign"
    bounded: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("link", self.link, ("sign", "bernoulli"))

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Weights:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        w = torch.randn(batch, self.d, 1, generator=generator, device=generator.device, dtype=dtype)
        return Weights(w, sigma)

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        x = super().inputs(latent, count, generator)
        return x / x.norm(dim=-1, keepdim=True).clamp(min=1) if self.bounded else x

    def labels(self, latent: Weights, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c 1"]:
        margin = x @ latent.w
        return torch.where(margin < 0, -1.0, 1.0).to(margin)

    def observed(
        self, latent: Weights, x: Float[Tensor, "b c d"], clean: Float[Tensor, "b c 1"], generator: torch.Generator
    ) -> Float[Tensor, "b c 1"]:
        if self.link == "sign":
            return clean
        chance = (x @ latent.w).sigmoid()
        lot = torch.rand(chance.shape, generator=generator, device=chance.device, dtype=chance.dtype)
        return torch.where(lot < chance, 1.0, -1.0).to(chance)
