"""Pre-LayerNorm transformer blocks in the manner of GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algoformer.checks import one_of, real, whole
from algoformer.models.attention import KINDS, Attention, Kind
from algoformer.models.tokens import Mask

ALL = slice(None)


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The sizes of prompts and of blocks; `causal` models read interleaved tokens, encoders paired ones.

    With a `vocabulary` a model reads and scores its tokens, by one matrix for both, instead of features and labels.
    """

    features: int = 20
    labels: int = 1
    positions: int = 256  # 0: no position embedding
    width: int = 256
    heads: int = 8
    expansion: int = 4
    attention: Kind = "softmax"
    activation: Literal["gelu", "relu"] = "gelu"
    causal: bool = True
    dropout: float = 0.0
    vocabulary: int = 0  # 0: real numbers

    def __post_init__(self) -> None:
        for name in ("features", "labels", "width", "heads", "expansion"):
            whole(name, getattr(self, name), 1)
        whole("positions", self.positions)
        whole("vocabulary", self.vocabulary)
        if self.vocabulary and not self.causal:
            raise ValueError("causal must be true for a model of text; got false")
        one_of("attention", self.attention, KINDS)
        one_of("activation", self.activation, ("gelu", "relu"))
        real("dropout", self.dropout, least=0)
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1; got {self.dropout}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads = {self.heads}; got {self.width}")


class Block(nn.Module):
    """x += attention(LN(x)), then x += W_2 gelu(W_1 LN(x)); gives the tokens `rows`."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        width = config.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, config.heads, config.attention, config.dropout)
        self.up = nn.Linear(width, config.expansion * width)
        self.down = nn.Linear(config.expansion * width, width)
        self.dropout, self.activation = config.dropout, config.activation

    def forward(self, x: Float[Tensor, "b s e"], mask: Mask, rows: slice | Tensor = ALL) -> Float[Tensor, "b o e"]:
        x = x[:, rows] + self._dropped(self.attention(self.norm1(x), mask, rows))
        u = self.up(self.norm2(x))
        u = F.gelu(u, approximate="tanh") if self.activation == "gelu" else F.relu(u)
        return x + self._dropped(self.down(u))

    def _dropped(self, v: Tensor) -> Tensor:
        return F.dropout(v, self.dropout) if self.training and self.dropout else v


class Stack(nn.Module):
    """Blocks one after another, and a norm behind them; the last block gives only the tokens `rows`.

    `fused`, where it is set, is a faster way to do the same where no mask is written out.
    """

    fused: Any = None

    def __init__(self, config: BlockConfig, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(depth))

    def forward(
        self,
        x: Float[Tensor, "b s e"],
        mask: Mask,
        rows: slice | Tensor = ALL,
        norm: nn.Module | None = None,
    ) -> Float[Tensor, "b o e"]:
        if self.fused is not None and (mask is None or mask.dim() == 1) and len(self.blocks):
            fast: Tensor = self.fused(x, self.blocks, rows=rows, norm=norm, prefix=mask).squeeze(0)
            return fast
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            x = block(x, mask, rows if i == last else ALL)
        x = x if self.blocks else x[:, rows]
        return x if norm is None else norm(x)


class Body(nn.Module):
    """One pass of a loop: LN(blocks(z + e)), or LN(blocks(z)) without injection; one LayerNorm for all loops."""

    def __init__(self, config: BlockConfig, depth: int, *, injection: bool, norm: bool) -> None:
        super().__init__()
        self.stack = Stack(config, depth)
        self.norm = nn.LayerNorm(config.width) if norm else nn.Identity()
        self.injection = injection

    def forward(self, z: Float[Tensor, "b s e"], e: Float[Tensor, "b s e"], mask: Mask) -> Float[Tensor, "b s e"]:
        out: Tensor = self.stack(z + e if self.injection else z, mask, norm=self.norm)
        return out


class Answer(nn.Module):
    """What is read from a stream: head(LN(blocks(z))) at the tokens `rows`; the blocks attend to all tokens.

    A model of text scores its vocabulary outside, only where it must: here the head is the identity.
    """

    def __init__(self, config: BlockConfig, depth: int, *, norm: bool = True) -> None:
        super().__init__()
        self.stack = Stack(config, depth)
        self.norm = nn.LayerNorm(config.width) if norm else nn.Identity()
        self.head = nn.Identity() if config.vocabulary else nn.Linear(config.width, config.labels)

    def forward(self, z: Float[Tensor, "b s e"], mask: Mask, rows: slice | Tensor) -> Float[Tensor, "b o k"]:
        out: Tensor = self.head(self.stack(z, mask, rows, self.norm))
        return out


@torch.no_grad()
def initialise(module: nn.Module, depth: int, generator: torch.Generator | None) -> None:
    """Weights N(0, 0.02^2), those that end a residual branch / sqrt(2 depth); biases 0 (Radford et al. 2019)."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            ends = name.endswith(("attention.out", ".down"))
            part.weight.normal_(0, 0.02 / math.sqrt(2 * depth) if ends else 0.02, generator=generator)
        if isinstance(part, nn.Linear):
            part.bias.zero_()
