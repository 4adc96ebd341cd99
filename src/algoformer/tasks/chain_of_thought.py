"""Chain of thought: the states of a leaky-ReLU network, layer by layer (Li et al. 2023; Gao et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm, On
from algoformer.checks import flags, whole
from algoformer.prompt import Chains
from algoformer.solvers.closed import LeastSquares
from algoformer.solvers.reductions import ExpectedLinks
from algoformer.task import Sample, Task, Truth
from algoformer.tasks.network import SLOPE, LeakyNetwork, leaky
from algoformer.tasks.pairs import drawable
from algoformer.tasks.representation import network_fields


class Layers(NamedTuple):
    """The weights W_1 .. W_L of the network behind each prompt."""

    weights: Float[Tensor, "b l d d"]


@dataclass(frozen=True, kw_only=True)
class ChainOfThought(Task[Chains]):
    """s^l = leaky(W_l s^{l-1}), s^0 ~ N(0, I): n whole chains, and one more that shows its first `known` states.

    W_l ~ N(0, 2 / ((1 + slope^2) d)) for each prompt, which keeps the mean square of a state at 1; without `per_prompt`
    one network for all, drawn from `seed`. With `dense` every state of n + 1 chains is asked.
    """

    d: int = 20
    n: int = 40
    layers: int = 6
    known: int = 1
    dense: bool = False
    per_prompt: bool = True
    slope: float = SLOPE
    seed: int = 0

    def __post_init__(self) -> None:
        flags(self)
        whole("d", self.d, 1)
        whole("n", self.n)
        network_fields(self.layers, None, self.slope, self.seed)
        whole("known", self.known, 1)
        if self.known > self.layers:
            raise ValueError(f"known must be at most layers = {self.layers}; got {self.known}")

    @property
    def gain(self) -> float:
        """The standard deviation of the weights that are drawn for each prompt."""
        return float((2 / (1 + self.slope**2) / self.d) ** 0.5)

    @cached_property
    def network(self) -> LeakyNetwork:
        """The network of all prompts, where they share one."""
        if self.per_prompt:
            raise ValueError("ChainOfThought has no network of its own: its weights are drawn for each prompt")
        return LeakyNetwork.drawn((self.d,) * (self.layers + 1), seed=self.seed, slope=self.slope)

    def sample(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Sample[Chains]:
        drawable(batch, generator, dtype)
        d, device = self.d, generator.device
        if self.per_prompt:
            weights = self.gain * torch.randn(batch, self.layers, d, d, generator=generator, device=device, dtype=dtype)
        else:
            weights = torch.stack(self.network.placed(dtype, device)).expand(batch, self.layers, d, d)
        states = [torch.randn(batch, self.n + 1, d, generator=generator, device=device, dtype=dtype)]
        for layer in range(self.layers):
            states.append(leaky(states[-1] @ weights[:, layer].mT, self.slope))
        chains = torch.stack(states, 2)
        if self.dense:
            target = chains[:, :, 1:].flatten(1, 2)
            return Sample(Chains(chains, check=False), target, Truth(target, Layers(weights)))
        last, target = chains[:, -1, : self.known], chains[:, -1, self.known : self.known + 1]
        return Sample(Chains(chains[:, :-1], last, check=False), target, Truth(target, Layers(weights)))

    @property
    def oracle(self) -> Algorithm[Any, Any]:
        if self.per_prompt:
            return On(LeastSquares(), ExpectedLinks(slope=self.slope, gain=self.gain))
        return NextState(network=self.network)


@dataclass(frozen=True, kw_only=True)
class NextState(Algorithm[Chains, Float[Tensor, "b o d"]]):
    """The next state by the network itself, whatever the chains before it."""

    network: LeakyNetwork
    kinds: ClassVar[tuple[type, ...]] = (Chains,)
    steps: ClassVar[int] = 0  # type: ignore[misc]
    limit: ClassVar[int] = 0  # type: ignore[misc]

    def init(self, p: Chains) -> Float[Tensor, "b o d"]:
        weights = self.network.placed(p.chains.dtype, p.chains.device)
        if p.chains.shape[2] != len(weights) + 1:
            raise ValueError(f"a chain must have {len(weights) + 1} states; got {p.chains.shape[2]}")
        if p.partial is not None:
            return leaky(p.partial[:, -1:] @ weights[p.partial.shape[1] - 1].mT, self.network.slope)
        z = torch.einsum("bnld,led->bnle", p.chains[:, :, :-1], torch.stack(weights))
        return leaky(z, self.network.slope).flatten(1, 2)

    def step(self, p: Chains, s: Tensor, t: int) -> Tensor:
        raise ValueError("NextState is a closed form and has no step")

    def read(self, p: Chains, s: Tensor) -> Float[Tensor, "b o d"]:
        return s
