"""Online gradient descent: one example a step, in the order of the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from algoformer.checks import one_of, real, whole
from algoformer.prompt import Prompt
from algoformer.solvers.linear import Linear, origin, ratio


class Stepping(NamedTuple):
    """The iterate, the examples with the seen ones first, and how many these are [b]."""

    w: Tensor
    x: Tensor
    y: Tensor
    seen: Tensor


@dataclass(frozen=True, kw_only=True)
class OnlineGradientDescent(Linear[Stepping]):
    """w ← w + η x_i (y_i - <w, x_i>) with i = t mod n of n seen examples; `eta="kaczmarz"` is η = 1/|x_i|².

    By default one pass over the examples; after it w stays where it is.
    """

    eta: float | Literal["kaczmarz"] = "kaczmarz"
    steps: int | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if isinstance(self.eta, str):
            one_of("eta", self.eta, ("kaczmarz",))
        else:
            real("eta", self.eta, above=0)
        if self.steps is not None:
            whole("steps", self.steps)

    def horizon(self, p: Prompt) -> int:
        return p.x.shape[1] if self.steps is None else self.steps

    def init(self, p: Prompt) -> Stepping:
        x, y, seen = p.seen_first
        return Stepping(origin(p), x, y, seen.sum(1))

    def step(self, p: Prompt, s: Stepping, t: int) -> Stepping:
        if s.x.shape[1] == 0:
            return s
        i = t % s.seen.clamp(min=1)
        rows = torch.arange(len(i), device=i.device)
        x, y = s.x[rows, i, :, None], s.y[rows, i, None, :]
        change = x * (y - x.mT @ s.w)
        if self.steps is None:
            change = change.where((t < s.seen)[:, None, None], 0.0)
        if self.eta == "kaczmarz":
            return s._replace(w=s.w + ratio(change, x.square().sum(1, keepdim=True).expand_as(change)))
        return s._replace(w=s.w + float(self.eta) * change)
