"""The looped transformer: one body run again and again on its own output (Yang et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from algoformer.checks import whole
from algoformer.models.blocks import Answer, BlockConfig, Body, initialise
from algoformer.models.model import SequenceModel
from algoformer.models.tokens import Layout, masked, repeated


class State(NamedTuple):
    """What is injected into every loop, the looped stream, and the layout of their tokens."""

    e: Tensor
    z: Tensor
    layout: Layout


class Loop(SequenceModel):
    """z_{t+1} = LN(loop(z_t + e)), or LN(loop(z_t)) without injection; `answer` reads z_t."""

    body: Body
    answer: Answer

    @property
    def steps(self) -> int:  # type: ignore[override]
        return int(self.config.loops)  # type: ignore[attr-defined]

    @property
    def truncatable(self) -> bool:  # type: ignore[override]
        return self.body.injection

    def step(self, p: Any, s: State, t: int) -> State:
        return s._replace(z=self.body(s.z, s.e, s.layout.mask))

    def unscored(self, p: Any, *, first: int, loops: int, gradient: int) -> Tensor:
        if self.fused is None or first == 0 or masked(p):
            return super().unscored(p, first=first, loops=loops, gradient=gradient)
        s, body = self.init(p), self.body
        inject, keep = s.e if body.injection else None, loops - first + 1
        z = self.fused(
            s.z, body.stack.blocks, inject=inject, norm=body.norm, loops=loops, keep=keep, gradient=gradient,
            prefix=s.layout.mask,
        )  # fmt: skip
        out: Tensor = self.answer(z.flatten(0, 1), repeated(s.layout.mask, len(z)), s.layout.rows)
        return out.view(len(z), -1, *out.shape[1:])

    def endings(self, states: Sequence[State]) -> Tensor:
        layout = states[0].layout
        z = states[0].z if len(states) == 1 else torch.cat([s.z for s in states])
        out: Tensor = self.answer(z, repeated(layout.mask, len(states)), layout.rows)
        return out.view(len(states), len(states[0].z), *out.shape[1:])


@dataclass(frozen=True, kw_only=True)
class LoopedConfig(BlockConfig):
    """Depth of the loop and how often it runs; positions are added in every loop, or only before the first."""

    layers: int = 1
    loops: int = 20
    injection: bool = True
    positions_in_loop: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("layers", self.layers, 1)
        whole("loops", self.loops)


class Looped(Loop):
    """e = embed(prompt) + positions; z_0 = 0 and z_{t+1} = LN(blocks(z_t + e)); read as head(z_t).

    With the positions only before the first loop, e = embed(prompt) and z_0 = positions. Without injection
    z_0 = embed(prompt) + positions and z_{t+1} = LN(blocks(z_t)).
    """

    config: LoopedConfig

    def __init__(self, config: LoopedConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        self.body = Body(config, config.layers, injection=config.injection, norm=True)
        self.answer = Answer(config, 0, norm=False)
        initialise(self, config.layers, generator)

    @property
    def variant(self) -> str:
        return "Looped + injection" if self.config.injection else "Looped without injection"

    @property
    def truncatable(self) -> bool:  # type: ignore[override]
        return self.config.injection and (self.config.positions_in_loop or self.places is None)

    def regions(self) -> list[nn.Module]:
        return [self.body, self.answer]

    def init(self, p: Any) -> State:
        values, layout = self.tokens(p)
        if self.config.injection and not self.config.positions_in_loop:
            e = self.embed(values)
            return State(e, torch.zeros_like(e) + self.placed(layout), layout)
        e = self.entered(values, layout)
        return State(e, torch.zeros_like(e) if self.config.injection else e, layout)
