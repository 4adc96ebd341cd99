"""Layers of linear attention as one differentiable function on hand-written kernels: `Heads` and its sum, faster.

A program makes all that a layer does to one prompt; what the way back needs is kept on the way. The gradients of
weights are added up by programs of their own, and then over these, so they do not depend on the order in which programs
run. A product of float32 numbers is three of TF32.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from algoformer.models.kernels import column_sums

PROGRAMS, ROWS = 264, 64  # at most so many add up the gradients of each weight, so many rows at a time
WARPS = 4


@triton.jit
def _matrix(start, S: tl.constexpr, C: tl.constexpr):
    """S x S numbers, and 0 beyond."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return tl.load(start + i * S + j, mask=(i < S) & (j < S), other=0.0)


@triton.jit
def _affine(u, weight, bias, part, S: tl.constexpr, C: tl.constexpr, P: tl.constexpr):
    """W u + b of every row of u, W the square of this part of the weight."""
    c = tl.arange(0, C)
    made = tl.dot(u, tl.trans(_matrix(weight + part * S * S, S, C)), input_precision=P)
    return made + tl.load(bias + part * S + c, mask=c < S, other=0.0)[None, :]


@triton.jit
def _rows(start, b, s, S: tl.constexpr, STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr):
    """The s rows of prompt b, of S numbers; 0 beyond."""
    i, j = tl.arange(0, T)[:, None], tl.arange(0, C)[None, :]
    return tl.load(start + (b * s + i) * STRIDE + j, mask=(i < s) & (j < S), other=0.0)


@triton.jit
def _keep(start, v, b, s, S: tl.constexpr, STRIDE: tl.constexpr):
    i, j = tl.arange(0, v.shape[0])[:, None], tl.arange(0, v.shape[1])[None, :]
    tl.store(start + (b * s + i) * STRIDE + j, v, mask=(i < s) & (j < S))


@triton.jit
def _within(rate, b, scale, W: tl.constexpr, C: tl.constexpr):
    """The factor of the product of two entries: 0 but within a head."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return tl.where(i // W == j // W, tl.load(rate + b) * scale, 0.0)


@triton.jit
def _layer(
    h, u, weight, bias, out_weight, out_bias, keys, rate, qkv, product, mixed, new, s, scale, clip,
    S: tl.constexpr, W: tl.constexpr, T: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    b, t = tl.program_id(0).to(tl.int64), tl.arange(0, T)
    heard = _rows(h if u is None else u, b, s, S, S, T, C)
    k = _affine(heard, weight, bias, 1, S, C, P) * tl.load(keys + b * s + t, mask=t < s, other=0.0)[:, None]
    v = _affine(heard, weight, bias, 2, S, C, P)
    _keep(qkv + S, k, b, s, S, 3 * S)
    _keep(qkv + 2 * S, v, b, s, S, 3 * S)
    pairs = tl.dot(tl.trans(k), v, input_precision=P) * _within(rate, b, scale, W, C)
    q = _affine(heard, weight, bias, 0, S, C, P)
    _keep(qkv, q, b, s, S, 3 * S)
    _keep(product, pairs, b, S, S, S)
    y = tl.dot(q, pairs, input_precision=P)
    _keep(mixed, y, b, s, S, S)
    z = _rows(h, b, s, S, S, T, C) + _affine(y, out_weight, out_bias, 0, S, C, P)
    if clip is not None:
        z = tl.where(z > clip, clip, tl.where(z < -clip, -clip, z))  # what is no number stays none
    _keep(new, z, b, s, S, S)


@triton.jit
def _layer_back(
    weight, out_weight, keys, rate, qkv, product, new, grad, parts, d, s, scale, clip,
    SKIP: tl.constexpr, S: tl.constexpr, W: tl.constexpr, T: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    b, t = tl.program_id(0).to(tl.int64), tl.arange(0, T)
    dz = _rows(grad, b, s, S, S, T, C)
    if clip is not None:
        z = _rows(new, b, s, S, S, T, C)
        dz = tl.where((z > -clip) & (z < clip), dz, 0.0)
    _keep(parts + 3 * S, dz, b, s, S, 4 * S)
    dy = tl.dot(dz, _matrix(out_weight, S, C), input_precision=P)
    dq = tl.dot(dy, tl.trans(_rows(product, b, S, S, S, C, C)), input_precision=P)
    _keep(parts, dq, b, s, S, 4 * S)
    back = tl.dot(dq, _matrix(weight, S, C), input_precision=P)
    q = _rows(qkv, b, s, S, 3 * S, T, C)
    d_pairs = tl.dot(tl.trans(q), dy, input_precision=P) * _within(rate, b, scale, W, C)
    dk = tl.dot(_rows(qkv + 2 * S, b, s, S, 3 * S, T, C), tl.trans(d_pairs), input_precision=P)
    dk *= tl.load(keys + b * s + t, mask=t < s, other=0.0)[:, None]
    _keep(parts + S, dk, b, s, S, 4 * S)
    back = tl.dot(dk, _matrix(weight + S * S, S, C), back, input_precision=P)
    dv = tl.dot(_rows(qkv + S, b, s, S, 3 * S, T, C), d_pairs, input_precision=P)
    _keep(parts + 2 * S, dv, b, s, S, 4 * S)
    back = tl.dot(dv, _matrix(weight + 2 * S * S, S, C), back, input_precision=P)
    _keep(d, back + dz if SKIP else back, b, s, S, S)


@triton.jit
def _outer(
    parts, heard, mixed, sums, rows,
    S: tl.constexpr, R: tl.constexpr, C: tl.constexpr, P: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The gradients by weight and bias of one of q, k, v and out, from some of the rows."""
    part, c = tl.program_id(1), tl.arange(0, C)
    right = mixed if part == 3 else heard
    total, row = tl.zeros((C, C), tl.float32), tl.zeros((C,), tl.float32)
    for turn in range(TURNS):
        i = ((tl.program_id(0) + turn * tl.num_programs(0)).to(tl.int64) * R + tl.arange(0, R))[:, None]
        inside = (i < rows) & (c < S)[None, :]
        d = tl.load(parts + i * 4 * S + part * S + c[None, :], mask=inside, other=0.0)
        met = tl.load(right + i * S + c[None, :], mask=inside, other=0.0)
        total = tl.dot(tl.trans(d), met, total, input_precision=P)
        row += tl.sum(d, 0)
    sums += tl.program_id(0).to(tl.int64) * 4 * (S * S + S)
    i = c[:, None]
    tl.store(sums + part * S * S + i * S + c[None, :], total, mask=(i < S) & (c < S)[None, :])
    tl.store(sums + 4 * S * S + part * S + c, row, mask=c < S)


def layer(
    h: Float[Tensor, "b s e"],
    heard: Float[Tensor, "b s e"] | None,
    heads: Any,
    keys: Float[Tensor, "b s 1"],
    rate: Float[Tensor, " b"],
    clip: float | None,
) -> Float[Tensor, "b s e"]:
    """clip(h + heads(heard)), heard None for h itself; in float32, or under autocast or so allowed in TF32."""
    weights = heads.qkv.weight, heads.qkv.bias, heads.out.weight, heads.out.bias
    with torch.autocast(h.device.type, enabled=False):
        streams = [None if v is None else v.float().contiguous() for v in (h, heard)]
        made: Tensor = _Layer.apply(*streams, keys.contiguous(), rate, heads.width, clip, *weights)  # type: ignore[no-untyped-call]
    return made


def _sizes(h: Tensor, width: int) -> tuple[int, int, int, int, str]:
    """The sizes of a stream and of a head, tokens and stream as powers of two, and how products are made."""
    _, s, e = h.shape
    tokens, columns = (max(16, triton.next_power_of_2(n)) for n in (s, e))
    return e, width, tokens, columns, "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, heard, keys, rate, width, clip, weight, bias, out_weight, out_bias):
        (b, s, e), sizes = h.shape, _sizes(h, width)
        qkv, product = h.new_empty(b, s, 3 * e), h.new_empty(b, e, e)
        mixed, new = torch.empty_like(h), torch.empty_like(h)
        _layer[(b,)](
            h, heard, weight, bias, out_weight, out_bias, keys, rate, qkv, product, mixed, new, s, width**-0.5, clip,
            *sizes, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(h if heard is None else heard, weight, out_weight, keys, rate, qkv, product, mixed, new)
        ctx.more = heard is None, width**-0.5, clip, sizes
        return new

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        heard, weight, out_weight, keys, rate, qkv, product, mixed, new = ctx.saved_tensors
        (b, s, e), (skip, scale, clip, sizes) = heard.shape, ctx.more
        parts, d = heard.new_empty(b, s, 4 * e), torch.empty_like(heard)
        _layer_back[(b,)](
            weight, out_weight, keys, rate, qkv, product, new, grad.contiguous(), parts, d, s, scale, clip, skip,
            *sizes, num_warps=WARPS,
        )  # fmt: skip
        turns = triton.cdiv(b * s, ROWS * PROGRAMS)
        sums = heard.new_empty(triton.cdiv(b * s, ROWS * turns), 4 * (e * e + e))
        columns, precision = sizes[-2:]
        _outer[(len(sums), 4)](parts, heard, mixed, sums, b * s, e, ROWS, columns, precision, turns, num_warps=WARPS)
        total = column_sums(sums)
        squares, rows = total[: 4 * e * e].view(4 * e, e), total[4 * e * e :]
        ways = (d, None) if skip else (parts[:, :, 3 * e :], d)
        return *ways, None, None, None, None, squares[: 3 * e], rows[: 3 * e], squares[3 * e :], rows[3 * e :]
