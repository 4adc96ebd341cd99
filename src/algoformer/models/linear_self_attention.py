"""Linear self-attention networks with several heads (Giannou et al. 2024)."""

import contextlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algoformer.checks import real, whole
from algoformer.models.linear_transformer import Tokens, joined
from algoformer.models.model import Layered, Model
from algoformer.prompt import Prompt

WIDEST, LONGEST = 64, 64  # the stream and the tokens that a program of the kernels holds


@dataclass(frozen=True, kw_only=True)
class LinearSelfAttentionConfig:
    """Without a `width` the stream is the token (x, y) itself, and a head is two full matrices.

    With one, the token (0, x, y) with `scratch` zeros is read in, heads have keys, queries and values with biases, and
    the query's token is read out. `hidden` keeps the query from being a key, `mean` divides by the number of keys,
    `norm` is a LayerNorm before each layer and before the reading, `clip` bounds the stream after each layer. `init` is
    the standard deviation of the first weights, None for 0.3 / sqrt(size).
    """

    features: int = 5
    labels: int = 1
    layers: int = 2
    heads: int = 2
    width: int | None = None
    scratch: int = 0
    hidden: bool = True
    mean: bool = True
    norm: bool = False
    clip: float | None = None
    init: float | None = None

    def __post_init__(self) -> None:
        for name in ("features", "labels", "layers", "heads"):
            whole(name, getattr(self, name), 1)
        whole("scratch", self.scratch)
        if self.width is not None:
            whole("width", self.width, 1)
            if self.width % self.heads:
                raise ValueError(f"width must be a multiple of heads = {self.heads}; got {self.width}")
        elif self.scratch:
            raise ValueError(f"scratch must be 0 without a width; got {self.scratch}")
        for name in ("clip", "init"):
            if getattr(self, name) is not None:
                real(name, getattr(self, name), above=0)

    @property
    def size(self) -> int:
        """The width of the stream."""
        return self.width or self.features + self.labels


class Heads(nn.Module):
    """sum_h (q_j . k_i) v_i over the keys i, with biases, scores / sqrt(size of a head)."""

    same: Tensor  # 1 where two entries are of one head

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.width = size // heads
        head = torch.arange(heads).repeat_interleave(self.width)
        self.register_buffer("same", (head == head[:, None]).float(), persistent=False)

    def forward(self, h: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        product = (k * keys).mT @ v * (self.same * (rate * self.width**-0.5)[:, None, None])  # of one head; no copies
        out: Tensor = self.out(q @ product)
        return out


class FullHeads(nn.Module):
    """sum_h P_h z_i (z_i' Q_h z_j) over the keys i."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.P, self.Q = (nn.Parameter(torch.empty(heads, size, size)) for _ in range(2))

    def forward(self, h: Tensor, keys: Tensor, rate: Tensor) -> Tensor:
        gram = (h * keys).mT @ h * rate[:, None, None]
        return h @ (self.Q.mT @ gram[:, None] @ self.P.mT).sum(1)


class LinearSelfAttention(Layered, Model):  # type: ignore[misc, override]
    """h <- clip(h + heads(LN(h))), with the LayerNorm and the clipping optional.

    The prediction is the read-out of the query's token; without a `width`, minus its label entry.
    """

    config: LinearSelfAttentionConfig
    kinds: ClassVar[tuple[type, ...]] = (Prompt,)
    fused: Any = None

    def __init__(self, config: LinearSelfAttentionConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        size = config.size
        kind = FullHeads if config.width is None else Heads
        self.layers = nn.ModuleList(kind(size, config.heads) for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(config.layers)) if config.norm else None
        self.last = nn.LayerNorm(size) if config.norm else nn.Identity()
        if config.width is not None:
            self.embed = nn.Linear(config.scratch + config.features + config.labels, size)
            self.head = nn.Linear(size, config.labels)
        std = 0.3 / math.sqrt(size) if config.init is None else config.init
        with torch.no_grad():
            for name, v in self.named_parameters():
                if v.ndim > 1:
                    v.normal_(0, std, generator=generator)
                elif not name.startswith(("norms", "last")):
                    v.zero_()

    @property
    def variant(self) -> str:
        return f"LinearSelfAttention ({self.config.layers} layers{', LayerNorm' if self.config.norm else ''})"

    def init(self, p: Prompt) -> Tokens:
        m = p.queries.shape[1]
        if not self.config.hidden and m > 1:  # a query that is a key changes the examples, so each runs alone
            x, y, seen = (v.repeat_interleave(m, 0) for v in (p.x, p.y, p.seen))
            p = Prompt(x, y, p.queries.flatten(0, 1)[:, None], seen, check=False)
        h, keys = joined(p, self.config.features)
        if not self.config.hidden:
            keys = torch.cat([keys[:, : p.x.shape[1]], keys.new_ones(len(keys), h.shape[1] - p.x.shape[1], 1)], 1)
        rate = keys.sum((1, 2)).clamp(min=1).reciprocal() if self.config.mean else keys.new_ones(len(keys))
        if self.config.width is not None:
            h = self.embed(F.pad(h, (self.config.scratch, 0)))
        return Tokens(h, keys, rate)

    def fuse(self, on: bool) -> bool:
        """Heads of a `width` in float32 on a GPU, with Triton."""
        width, weight, self.fused = self.config.width, next(self.parameters()), None
        if on and width is not None and width <= WIDEST and weight.is_cuda and weight.dtype == torch.float32:
            with contextlib.suppress(ImportError):
                from algoformer.models.fused_linear import layer

                self.fused = layer
        return self.fused is not None

    def fusible(self, p: Prompt) -> bool:
        return p.x.shape[1] + p.queries.shape[1] <= LONGEST

    def step(self, p: Prompt, s: Tokens, t: int) -> Tokens:
        inner = None if self.norms is None else self.norms[t](s.h)
        if self.fused is not None:
            return s._replace(h=self.fused(s.h, inner, self.layers[t], s.keys, s.rate, self.config.clip))
        h = s.h + self.layers[t](s.h if inner is None else inner, s.keys, s.rate)
        return s._replace(h=h if self.config.clip is None else h.clamp(-self.config.clip, self.config.clip))

    def read(self, p: Prompt, s: Tokens) -> Tensor:
        h = self.last(s.h[:, p.x.shape[1] :])
        out: Tensor = self.head(h) if self.config.width is not None else -h[:, :, self.config.features :]
        return out.reshape(p.asked)
