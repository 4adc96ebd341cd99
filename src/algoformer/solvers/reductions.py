"""Other kinds of prompt as regressions: features of the inputs, windows of a series, links of chains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Reduction
from algoformer.checks import real, whole
from algoformer.prompt import Chains, Dense, Prompt, Series

Map = Callable[[Tensor], Tensor]
P = TypeVar("P", Prompt, Dense)


@dataclass(frozen=True)
class Features(Reduction[Prompt | Dense]):
    """Regression on φ(x)."""

    phi: Map
    kinds: ClassVar[tuple[type, ...]] = (Prompt, Dense)

    def regression(self, p: Prompt | Dense) -> Prompt | Dense:
        if isinstance(p, Dense):
            return replace(p, x=self.phi(p.x), check=False)
        return replace(p, x=self.phi(p.x), queries=self.phi(p.queries), check=False)

    def answer(self, p: Prompt | Dense, out: Tensor) -> Float[Tensor, "b o k"]:
        return out


@dataclass(frozen=True, kw_only=True)
class Windows(Reduction[Series]):
    """A series as the regression of x_t on φ([x_{t-q}, .., x_{t-1}]), the oldest first.

    The first q values have no window; asked for every value, it answers 0 for those.
    """

    q: int
    phi: Map | None = None
    kinds: ClassVar[tuple[type, ...]] = (Series,)

    def __post_init__(self) -> None:
        whole("q", self.q, least=1)

    def regression(self, p: Series) -> Prompt | Dense:
        if p.x.shape[1] < self.q:
            raise ValueError(f"a series must have at least q = {self.q} values; got {p.x.shape[1]}")
        windows = p.x.unfold(1, self.q, 1).transpose(2, 3).flatten(2)  # [b n-q+1 q*d]
        features = windows if self.phi is None else self.phi(windows)
        pairs, labels = features[:, :-1], p.x[:, self.q :]
        return Dense(pairs, labels, check=False) if p.every else Prompt(pairs, labels, features[:, -1:], check=False)

    def answer(self, p: Series, out: Tensor) -> Float[Tensor, "b o k"]:
        return torch.nn.functional.pad(out, (0, 0, self.q, 0)) if p.every else out


@dataclass(frozen=True, kw_only=True)
class Links(Reduction[Chains]):
    """Chains s^l = σ(W_l s^{l-1}), σ the leaky ReLU, as the regressions of σ⁻¹(s^l) on s^{l-1}, one for each l."""

    slope: float
    kinds: ClassVar[tuple[type, ...]] = (Chains,)

    def __post_init__(self) -> None:
        real("slope", self.slope, above=0)

    def regression(self, p: Chains) -> Prompt | Dense:
        before, after = p.chains[:, :, :-1], p.chains[:, :, 1:]
        after = torch.where(after < 0, after / self.slope, after)
        if p.partial is None:  # every link of a batch row is a problem of its own
            return Dense(before.transpose(1, 2).flatten(0, 1), after.transpose(1, 2).flatten(0, 1), check=False)
        link = p.partial.shape[1] - 1
        return Prompt(before[:, :, link], after[:, :, link], p.partial[:, -1:], check=False)

    def answer(self, p: Chains, out: Tensor) -> Float[Tensor, "b o k"]:
        return self._placed(p, torch.where(out < 0, out * self.slope, out))

    def _placed(self, p: Chains, out: Tensor) -> Float[Tensor, "b o k"]:
        if p.partial is not None:
            return out
        b, n, c, d = p.chains.shape
        return out.reshape(b, c - 1, n, d).transpose(1, 2).reshape(p.asked)


@dataclass(frozen=True, kw_only=True)
class ExpectedLinks(Links):
    """The same for W_l with entries N(0, gain²), answered by the mean of σ(W_l s) over what W_l can be.

    Given the links seen, W_l s is N(m, c² I): m is the least-squares answer of minimum norm and c = gain |s - P s|, P
    the projection onto the states seen. P s is what least squares answers where the states are their own labels, so the
    regression has both. Without examples the mean is not σ(0) = 0: E σ(z) = slope m + (1 - slope)(m Φ(m/c) + c φ(m/c)).
    """

    gain: float

    def __post_init__(self) -> None:
        super().__post_init__()
        real("gain", self.gain, above=0)

    def regression(self, p: Chains) -> Prompt | Dense:
        r = super().regression(p)
        return replace(r, y=torch.cat([r.y, r.x], -1), check=False)

    def answer(self, p: Chains, out: Tensor) -> Float[Tensor, "b o k"]:
        r = super().regression(p)
        mean, known = out.chunk(2, -1)
        asked = r.x if isinstance(r, Dense) else r.queries
        spread = self.gain * (asked - known).norm(dim=-1, keepdim=True)
        t = mean / spread.clamp(min=torch.finfo(out.dtype).tiny)
        density = torch.exp(-t.square() / 2) / math.sqrt(2 * math.pi)
        above = mean * torch.special.ndtr(t) + spread * density
        return self._placed(p, self.slope * mean + (1 - self.slope) * above)
