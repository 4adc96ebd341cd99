"""AlgoFormer: a pre-transformer, a loop and a post-transformer (Gao et al. 2024)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from algoformer.checks import whole
from algoformer.models.blocks import Answer, BlockConfig, Body, Stack, initialise
from algoformer.models.looped import Loop, State


@dataclass(frozen=True, kw_only=True)
class AlgoFormerConfig(BlockConfig):
    """Depths of pre, loop and post, and how often the loop runs.

    With `injection` a loop adds what pre gave; without, it is equation 2 as printed.
    """

    pre: int = 1
    loop: int = 1
    post: int = 1
    loops: int = 20
    injection: bool = True
    loop_norm: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("pre", 0), ("loop", 1), ("post", 0), ("loops", 0)):
            whole(name, getattr(self, name), least)


class AlgoFormer(Loop):
    """e = pre(embed(prompt) + positions); z_0 = 0 and z_{t+1} = LN(loop(z_t + e)); read as head(LN(post(z_t))).

    Without injection z_0 = e and z_{t+1} = LN(loop(z_t)). `loop_norm` is the LayerNorm of the loop.
    """

    config: AlgoFormerConfig

    def __init__(self, config: AlgoFormerConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        self.pre = Stack(config, config.pre)
        self.body = Body(config, config.loop, injection=config.injection, norm=config.loop_norm)
        self.answer = Answer(config, config.post)
        initialise(self, config.pre + config.loop + config.post, generator)

    @property
    def variant(self) -> str:
        return "AlgoFormer + injection" if self.config.injection else "AlgoFormer (equation 2)"

    def regions(self) -> list[nn.Module]:
        return [self.pre, self.body, self.answer]

    def init(self, p: Any) -> State:
        values, layout = self.tokens(p)
        e = self.pre(self.entered(values, layout), layout.mask)
        return State(e, torch.zeros_like(e) if self.config.injection else e, layout)
