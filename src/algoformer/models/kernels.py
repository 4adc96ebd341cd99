"""Attention for short sequences as one Triton kernel a head, forward and backward.

A whole head of at most 128 tokens fits on chip: scores, softmax and products are made in one program, and the backward
pass makes them again instead of reading them; library kernels are built for long sequences.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 4


@triton.jit
def _scores(qkv, s, scale, H: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """The head's queries, keys and values, its causal softmax before normalising, and what normalises it."""
    at = tl.arange(0, BLOCK)
    place = qkv + at[:, None] * (3 * H * C) + tl.arange(0, C)[None, :]
    inside = at[:, None] < s
    q = tl.load(place, mask=inside, other=0.0)
    k = tl.load(place + H * C, mask=inside, other=0.0)
    v = tl.load(place + 2 * H * C, mask=inside, other=0.0)
    shown = (at[:, None] >= at[None, :]) & (at[None, :] < s)
    a = tl.where(shown, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    p = tl.exp(a - tl.max(a, 1)[:, None])
    return q, k, v, p, tl.sum(p, 1)


@triton.jit
def _forward(qkv, out, s, scale, H: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    b, h = tl.program_id(0) // H, tl.program_id(0) % H
    start = b.to(tl.int64) * s
    _q, _k, v, p, total = _scores(qkv + start * (3 * H * C) + h * C, s, scale, H, C, BLOCK)
    o = tl.dot(p.to(v.dtype), v) / total[:, None]
    at = tl.arange(0, BLOCK)
    place = out + (start + at[:, None]) * (H * C) + h * C + tl.arange(0, C)[None, :]
    tl.store(place, o.to(out.dtype.element_ty), mask=at[:, None] < s)


@triton.jit
def _backward(qkv, grad, out, s, scale, H: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    b, h = tl.program_id(0) // H, tl.program_id(0) % H
    start = b.to(tl.int64) * s
    q, k, v, p, total = _scores(qkv + start * (3 * H * C) + h * C, s, scale, H, C, BLOCK)
    p = p / total[:, None]
    at = tl.arange(0, BLOCK)
    inside = at[:, None] < s
    cols = h * C + tl.arange(0, C)[None, :]
    g = tl.load(grad + (start + at[:, None]) * (H * C) + cols, mask=inside, other=0.0)
    dp = tl.dot(g, tl.trans(v))
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
    place = out + (start + at[:, None]) * (3 * H * C) + cols
    kind = out.dtype.element_ty
    tl.store(place + 2 * H * C, tl.dot(tl.trans(p.to(q.dtype)), g).to(kind), mask=inside)
    tl.store(place, tl.dot(ds, k).to(kind), mask=inside)
    tl.store(place + H * C, tl.dot(tl.trans(ds), q).to(kind), mask=inside)


def _sizes(qkv: Tensor, heads: int) -> tuple[int, int, int, int]:
    b, s, triple = qkv.shape
    return b, s, triple // (3 * heads), max(16, triton.next_power_of_2(s))


@torch.library.custom_op("algoformer::short_attention", mutates_args=())
def short_attention(qkv: Tensor, heads: int) -> Tensor:
    """Causal softmax attention of [b s 3e] packed queries, keys and values, as [b s e]."""
    b, s, width, block = _sizes(qkv, heads)
    qkv = qkv.contiguous()
    out = qkv.new_empty(b, s, heads * width)
    _forward[(b * heads,)](qkv, out, s, width**-0.5, heads, width, block, num_warps=WARPS)
    return out


@torch.library.custom_op("algoformer::short_attention_backward", mutates_args=())
def short_attention_backward(qkv: Tensor, grad: Tensor, heads: int) -> Tensor:
    """The gradient by the packed queries, keys and values."""
    b, s, width, block = _sizes(qkv, heads)
    qkv, grad = qkv.contiguous(), grad.contiguous()
    out = torch.empty_like(qkv)
    _backward[(b * heads,)](qkv, grad, out, s, width**-0.5, heads, width, block, num_warps=WARPS)
    return out


@short_attention.register_fake
def _(qkv: Tensor, heads: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)


@short_attention_backward.register_fake
def _(qkv: Tensor, grad: Tensor, heads: int) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.heads = inputs[1]


def _gradient(ctx, grad):
    return short_attention_backward(ctx.saved_tensors[0], grad, ctx.heads), None


short_attention.register_autograd(_gradient, setup_context=_keep)
