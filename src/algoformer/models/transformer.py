"""The standard transformer: a decoder in the manner of GPT-2 (Garg et al. 2022), or an encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from algoformer.checks import whole
from algoformer.models.blocks import Answer, Block, BlockConfig, initialise
from algoformer.models.model import Layered, SequenceModel
from algoformer.models.tokens import Layout, masked


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(BlockConfig):
    """The defaults are the standard baseline, 12 layers of 8 heads and width 256."""

    layers: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("layers", self.layers, 1)


class Stream(NamedTuple):
    """The residual stream, and the layout of its tokens."""

    h: Tensor
    layout: Layout


class Transformer(Layered, SequenceModel):  # type: ignore[misc, override]
    """h_0 = embed(prompt) + positions, h_{t+1} = block_t(h_t); read as head(LN(h_t))."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.answer = Answer(config, 0)
        initialise(self, config.layers, generator)

    @property
    def variant(self) -> str:
        return f"Transformer ({self.config.layers} layers)"

    def regions(self) -> list[nn.Module]:
        return [*self.blocks, self.answer]

    def init(self, p: Any) -> Stream:
        values, layout = self.tokens(p)
        return Stream(self.entered(values, layout), layout)

    def step(self, p: Any, s: Stream, t: int) -> Stream:
        return s._replace(h=self.blocks[t](s.h, s.layout.mask))

    def unscored(self, p: Any, *, first: int, loops: int, gradient: int) -> Tensor:
        if self.fused is None or first != loops or masked(p):
            return super().unscored(p, first=first, loops=loops, gradient=gradient)
        s = self.init(p)
        h = self.fused(s.h, self.blocks[:loops], norm=self.answer.norm, rows=s.layout.rows, prefix=s.layout.mask)
        out: Tensor = self.answer.head(h)
        return out

    def endings(self, states: Sequence[Stream]) -> Tensor:
        return torch.stack([self.answer(s.h, None, s.layout.rows) for s in states])
