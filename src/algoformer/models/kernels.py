"""The kernels of the fast path in Triton: a sum and its norms, the activation, short attention, LSTM cells, Adam.

Each has a backward pass that makes again what it needs instead of storing it. Sums over rows, the gradients of biases
and norms, are kept apart by program and added up by the caller: they do not depend on the order in which programs run.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

PROGRAMS = 1584  # at most so many add up rows
NORM_WARPS = 1  # a row belongs to one warp, which adds it up without waiting for another
ADAM_SIZE = 1024
CELL_SIZE = 512
ACT_SIZE, ACT_ROWS, ACT_COLS, ACT_WARPS = 2048, 4, 256, 1
LONGEST, WIDTHS = 256, (16, 32, 64, 128)  # tokens, and widths of a head, of the attention kernel


@triton.jit
def _normal(v, eps, E: tl.constexpr):
    """(v - mean) / deviation of every row, and 1 / deviation; columns past E are 0 in v."""
    v = tl.where((tl.arange(0, v.shape[1]) < E)[None, :], v - tl.sum(v, 1)[:, None] / E, 0.0)
    r = tl.rsqrt(tl.sum(v * v, 1) / E + eps)
    return v * r[:, None], r


@triton.jit
def _normal_back(g, n, r, E: tl.constexpr):
    """The gradient by v, from that by n = normal(v) and from r = 1 / deviation; columns past E are 0 in g and n."""
    mean, slope = tl.sum(g, 1)[:, None] / E, tl.sum(g * n, 1)[:, None] / E
    return tl.where((tl.arange(0, g.shape[1]) < E)[None, :], r[:, None] * (g - mean - n * slope), 0.0)


@triton.jit
def _normed(v, weight, bias, normal, r, rows, i, at, inside, eps, E: tl.constexpr):
    """LN(v); what its backward pass needs goes to `normal` and `r`."""
    c = tl.arange(0, v.shape[1])
    n, deviation = _normal(v, eps, E)
    if normal is not None:
        tl.store(normal + at, n.to(normal.dtype.element_ty), mask=inside)
        tl.store(r + i, deviation, mask=i < rows)
    return n * tl.load(weight + c, mask=c < E, other=0.0)[None, :] + tl.load(bias + c, mask=c < E, other=0.0)[None, :]


@triton.jit
def _mixed(x):
    """A permutation of the numbers of 32 bits after which near ones are far apart (lowbias32, Wellons 2018)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _coin(seed, site, at, keep):
    """1 / keep with probability keep, else 0: one for every place of a site."""
    key = tl.load(seed)
    x = _mixed(at.to(tl.uint32) + key.to(tl.uint32) + site.to(tl.uint32) * 0x9E3779B9)
    x = _mixed(x + (key >> 32).to(tl.uint32))
    return tl.where((x >> 8).to(tl.float32) * 2.0**-24 < keep, 1.0 / keep, 0.0)


@triton.jit(do_not_specialize=["site"])
def _add_norm(
    base, branch, seed, site, keep, z_weight, z_bias, z_n, z_r, state, inject, stream, a_weight, a_bias, a_n, a_r, a,
    rows, s, o, step, eps, E: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    inside = (i < rows)[:, None] & (c < E)[None, :]
    at = i[:, None].to(tl.int64) * E + c[None, :]
    there = ((i // o) * s + (i % o) * step)[:, None].to(tl.int64) * E + c[None, :]
    v = tl.zeros((ROWS, COLS), tl.float32)
    if base is not None:
        v += tl.load(base + there, mask=inside, other=0.0).to(tl.float32)
    if branch is not None:
        added = tl.load(branch + at, mask=inside, other=0.0).to(tl.float32)
        if seed is not None:
            added *= _coin(seed, site, at, keep)
        v += added
    if z_weight is not None:
        v = _normed(v, z_weight, z_bias, z_n, z_r, rows, i, at, inside, eps, E)
    if state is not None:
        tl.store(state + at, v.to(state.dtype.element_ty), mask=inside)
    if inject is not None:
        v += tl.load(inject + at, mask=inside, other=0.0)
    if stream is not None:
        tl.store(stream + at, v, mask=inside)
    if a is not None:
        v = _normed(v, a_weight, a_bias, a_n, a_r, rows, i, at, inside, eps, E)
        tl.store(a + at, v.to(a.dtype.element_ty), mask=inside)


@triton.jit
def _added(place, v, full, ADD: tl.constexpr):
    if ADD:
        v += tl.load(place, mask=full, other=0.0)
    tl.store(place, v, mask=full)


@triton.jit(do_not_specialize=["site"])
def _add_norm_back(
    skip, a_grad, a_weight, a_n, a_r, inject_grad, z_grad, z_weight, z_n, z_r, out, low, seed, site, keep, sums, stride,
    rows, s, o, step, ADD: tl.constexpr, E: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, COLS)
    full = c < E
    none = tl.zeros((COLS,), tl.float32)
    a_weights, a_biases, z_weights, z_biases, biases = none, none, none, none, none
    for turn in range(TURNS):
        i = (tl.program_id(0) + turn * tl.num_programs(0)) * ROWS + tl.arange(0, ROWS)
        inside = (i < rows)[:, None] & full[None, :]
        at = i[:, None].to(tl.int64) * E + c[None, :]
        g = tl.zeros((ROWS, COLS), tl.float32)
        if skip is not None:
            token = i % s
            there = ((i // s) * o + token // step)[:, None].to(tl.int64) * E + c[None, :]
            g += tl.load(skip + there, mask=inside & (token % step == 0)[:, None], other=0.0)
        if a_grad is not None:
            d = tl.load(a_grad + at, mask=inside, other=0.0).to(tl.float32)
            n = tl.load(a_n + at, mask=inside, other=0.0).to(tl.float32)
            a_weights += tl.sum(d * n, 0)
            a_biases += tl.sum(d, 0)
            weight = tl.load(a_weight + c, mask=full, other=0.0)[None, :]
            g += _normal_back(d * weight, n, tl.load(a_r + i, mask=i < rows, other=0.0), E)
        if inject_grad is not None:
            tl.store(inject_grad + at, tl.load(inject_grad + at, mask=inside, other=0.0) + g, mask=inside)
        if z_grad is not None:
            g += tl.load(z_grad + at, mask=inside, other=0.0).to(tl.float32)
        if z_n is not None:
            n = tl.load(z_n + at, mask=inside, other=0.0).to(tl.float32)
            z_weights += tl.sum(g * n, 0)
            z_biases += tl.sum(g, 0)
            weight = tl.load(z_weight + c, mask=full, other=0.0)[None, :]
            g = _normal_back(g * weight, n, tl.load(z_r + i, mask=i < rows, other=0.0), E)
        if out is not None:
            tl.store(out + at, g.to(out.dtype.element_ty), mask=inside)
        if low is not None:
            if seed is not None:
                g *= _coin(seed, site, at, keep)
            tl.store(low + at, g.to(low.dtype.element_ty), mask=inside)
            biases += tl.sum(g, 0)
    place = sums + tl.program_id(0) * stride + c
    if a_grad is not None:
        _added(place, a_weights, full, ADD)
        _added(place + E, a_biases, full, ADD)
    if z_n is not None:
        _added(place + 2 * E, z_weights, full, ADD)
        _added(place + 3 * E, z_biases, full, ADD)
    if low is not None:
        _added(place + 4 * E, biases, full, ADD)


@triton.jit
def _tanh(v):
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * v))


@triton.jit
def _fine_tanh(v):
    """The same with all digits near 0 too, where a difference from 1 has lost them."""
    s = v * v
    near = v * (1.0 - s * (0.3333333333333333 - s * (0.13333333333333333 - s * 0.05396825396825397)))
    return tl.where(s < 0.04, near, _tanh(v))


@triton.jit
def _gelu_parts(u):
    """tanh(sqrt(2/pi) (u + 0.044715 u^3)), and the derivative of its argument."""
    t = _tanh(0.7978845608028654 * u * (1.0 + 0.044715 * u * u))
    return t, 0.7978845608028654 * (1.0 + 3 * 0.044715 * u * u)


@triton.jit
def _act(u, out, count, RELU: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    v = tl.load(u + at, mask=at < count, other=0.0).to(tl.float32)
    v = tl.maximum(v, 0.0) if RELU else 0.5 * v * (1.0 + _gelu_parts(v)[0])
    tl.store(out + at, v.to(out.dtype.element_ty), mask=at < count)


@triton.jit
def _act_back(
    u, grad, sums, stride, rows,
    ADD: tl.constexpr, F: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    full = c < F
    biases = tl.zeros((COLS,), tl.float32)
    for turn in range(TURNS):
        r = (tl.program_id(0) + turn * tl.num_programs(0)).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = (r < rows)[:, None] & full[None, :]
        mine = r[:, None] * F + c[None, :]
        v = tl.load(u + mine, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + mine, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            g = tl.where(v > 0, g, 0.0)
        else:
            t, inner = _gelu_parts(v)
            g = g * (0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * inner)
        tl.store(u + mine, g.to(u.dtype.element_ty), mask=inside)
        biases += tl.sum(g, 0)
    _added(sums + tl.program_id(0) * stride + c, biases, full, ADD)


@triton.jit
def _rows(start, first, s, step, STRIDE: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Rows first, first + step, ... of a head, N of them; 0 from row s on."""
    at = first + step * tl.arange(0, N)[:, None]
    return tl.load(start + at * STRIDE + tl.arange(0, C)[None, :], mask=at < s, other=0.0)


@triton.jit
def _keep(start, first, s, step, v, STRIDE: tl.constexpr):
    at = first + step * tl.arange(0, v.shape[0])[:, None]
    tl.store(start + at * STRIDE + tl.arange(0, v.shape[1])[None, :], v.to(start.dtype.element_ty), mask=at < s)


@triton.jit
def _scores(q, k, first_q, step, first_k, s, begin, scale, P: tl.constexpr):
    """<q_i, k_j> scale where row i comes not before row j or j is before `begin`, else -inf."""
    i = first_q + step * tl.arange(0, q.shape[0])[:, None]
    j = first_k + tl.arange(0, k.shape[0])[None, :]
    seen = (i >= j) & (j < s)
    if begin is not None:
        seen |= j < begin
    return tl.where(seen, tl.dot(q, tl.trans(k), input_precision=P) * scale, float("-inf"))


@triton.jit
def _dropped(p, seed, site, keep, first_q, step, first_k, s, KEYS: tl.constexpr):
    """Attention of which some is dropped, with a row for every query, or with KEYS for every key."""
    if seed is not None:
        i, j = first_q + step * tl.arange(0, p.shape[KEYS]), first_k + tl.arange(0, p.shape[1 - KEYS])
        at = i[None, :] * s + j[:, None] if KEYS else i[:, None] * s + j[None, :]
        p *= _coin(seed, site, tl.program_id(0) * s * s + at, keep)
    return p


@triton.jit(do_not_specialize=["site"])
def _attend(
    qkv, out, lse, prefix, seed, site, keep, s, o, scale,
    H: tl.constexpr, C: tl.constexpr, A: tl.constexpr, B: tl.constexpr, QA: tl.constexpr, QB: tl.constexpr,
    STEP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    b, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    qkv += b * s * (3 * H * C) + h * C
    out += b * o * (H * C) + h * C
    lse += tl.program_id(0).to(tl.int64) * o
    W: tl.constexpr = 3 * H * C
    begin = None if prefix is None else tl.load(prefix + b)
    k, v = _rows(qkv + H * C, 0, s, 1, W, A, C), _rows(qkv + 2 * H * C, 0, s, 1, W, A, C)
    x = _scores(_rows(qkv, 0, s, STEP, W, QA, C), k, 0, STEP, 0, s, begin, scale, P)
    top = tl.max(x, 1)
    p = tl.exp(x - top[:, None])
    total = tl.sum(p, 1)
    p = _dropped(p, seed, site, keep, 0, STEP, 0, s, 0)
    _keep(out, 0, o, 1, tl.dot(p.to(v.dtype), v, input_precision=P) / total[:, None], H * C)
    i = tl.arange(0, QA)
    tl.store(lse + i, top + tl.log(total), mask=i < o)
    if B > 0:
        k2, v2 = _rows(qkv + H * C, A, s, 1, W, B, C), _rows(qkv + 2 * H * C, A, s, 1, W, B, C)
        q = _rows(qkv, A, s, STEP, W, QB, C)
        x = tl.dot(q, tl.trans(k), input_precision=P) * scale
        x2 = _scores(q, k2, A, STEP, A, s, None, scale, P)
        top = tl.maximum(tl.max(x, 1), tl.max(x2, 1))
        p, p2 = tl.exp(x - top[:, None]), tl.exp(x2 - top[:, None])
        total = tl.sum(p, 1) + tl.sum(p2, 1)
        p = _dropped(p, seed, site, keep, A, STEP, 0, s, 0)
        p2 = _dropped(p2, seed, site, keep, A, STEP, A, s, 0)
        y = tl.dot(p.to(v.dtype), v, input_precision=P) + tl.dot(p2.to(v.dtype), v2, input_precision=P)
        _keep(out, QA, o, 1, y / total[:, None], H * C)
        i = QA + tl.arange(0, QB)
        tl.store(lse + i, top + tl.log(total), mask=i < o)


@triton.jit
def _queries(qkv, out, grad, lse, first, at, s, o, STEP: tl.constexpr, W: tl.constexpr, HC: tl.constexpr,
             N: tl.constexpr, C: tl.constexpr):  # fmt: skip
    """N queries from row `first` of the answer and token `at` on: themselves, their gradient, its mean, their lse."""
    i = first + tl.arange(0, N)
    g = _rows(grad, first, o, 1, HC, N, C)
    mean = tl.sum(g.to(tl.float32) * _rows(out, first, o, 1, HC, N, C).to(tl.float32), 1)
    return _rows(qkv, at, s, STEP, W, N, C), g, mean, tl.load(lse + i, mask=i < o, other=0.0)


@triton.jit
def _met(q, g, mean, lse, k, v, begin, seed, site, keep, s, scale, at_q, at_k, STEP: tl.constexpr, MASK: tl.constexpr,
         P: tl.constexpr):  # fmt: skip
    """The attention of queries to keys, and the gradient by their scores, both with a row for every key."""
    p = tl.exp(tl.dot(k, tl.trans(q), input_precision=P) * scale - lse[None, :])
    if MASK:
        i, j = at_q + STEP * tl.arange(0, q.shape[0])[None, :], at_k + tl.arange(0, k.shape[0])[:, None]
        p = tl.where(i >= j if begin is None else (i >= j) | (j < begin), p, 0.0)
    d = _dropped(tl.dot(v, tl.trans(g), input_precision=P), seed, site, keep, at_q, STEP, at_k, s, 1)
    d = p * (d - mean[None, :]) * scale
    return _dropped(p, seed, site, keep, at_q, STEP, at_k, s, 1).to(k.dtype), d.to(k.dtype)


@triton.jit(do_not_specialize=["site"])
def _attend_back(
    qkv, out, grad, lse, prefix, seed, site, keep, sums, stride, s, o, scale,
    H: tl.constexpr, C: tl.constexpr, A: tl.constexpr, B: tl.constexpr, QA: tl.constexpr, QB: tl.constexpr,
    STEP: tl.constexpr, P: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    b, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    W: tl.constexpr = 3 * H * C
    qkv += b * s * W + h * C
    out += b * o * (H * C) + h * C
    grad += b * o * (H * C) + h * C
    lse += tl.program_id(0).to(tl.int64) * o
    begin = None if prefix is None else tl.load(prefix + b)
    k, v = _rows(qkv + H * C, 0, s, 1, W, A, C), _rows(qkv + 2 * H * C, 0, s, 1, W, A, C)
    q, g, mean, top = _queries(qkv, out, grad, lse, 0, 0, s, o, STEP, W, H * C, QA, C)
    p, d = _met(q, g, mean, top, k, v, begin, seed, site, keep, s, scale, 0, 0, STEP, True, P)
    dv, dk = tl.dot(p, g, input_precision=P), tl.dot(d, q, input_precision=P)
    dq = tl.dot(tl.trans(d), k, input_precision=P)
    q_sum, v_sum = tl.sum(dq, 0), tl.sum(g.to(tl.float32), 0)  # the rows of a softmax add up to 1
    tl.debug_barrier()  # the queries are read, and now written over
    _keep(qkv, 0, s, STEP, dq, W)
    if STEP == 2:
        _keep(qkv, 1, s, STEP, tl.zeros_like(dq), W)
    if B > 0:
        k2, v2 = _rows(qkv + H * C, A, s, 1, W, B, C), _rows(qkv + 2 * H * C, A, s, 1, W, B, C)
        q, g, mean, top = _queries(qkv, out, grad, lse, QA, A, s, o, STEP, W, H * C, QB, C)
        p, d = _met(q, g, mean, top, k, v, None, seed, site, keep, s, scale, A, 0, STEP, False, P)
        dv, dk = tl.dot(p, g, dv, input_precision=P), tl.dot(d, q, dk, input_precision=P)
        p2, d2 = _met(q, g, mean, top, k2, v2, None, seed, site, keep, s, scale, A, A, STEP, True, P)
        dq = tl.dot(tl.trans(d), k, input_precision=P) + tl.dot(tl.trans(d2), k2, input_precision=P)
        q_sum += tl.sum(dq, 0)
        v_sum += tl.sum(g.to(tl.float32), 0)
        dv2, dk2 = tl.dot(p2, g, input_precision=P), tl.dot(d2, q, input_precision=P)
        tl.debug_barrier()
        _keep(qkv, A, s, STEP, dq, W)
        if STEP == 2:
            _keep(qkv, A + 1, s, STEP, tl.zeros_like(dq), W)
        _keep(qkv + H * C, A, s, 1, dk2, W)
        _keep(qkv + 2 * H * C, A, s, 1, dv2, W)
    if seed is not None:  # after dropout they do not
        v_sum = tl.sum(dv, 0)
        if B > 0:
            v_sum += tl.sum(dv2, 0)
    tl.debug_barrier()
    _keep(qkv + H * C, 0, s, 1, dk, W)
    _keep(qkv + 2 * H * C, 0, s, 1, dv, W)
    place = sums + b * stride + h * C + tl.arange(0, C)
    if ADD:
        q_sum += tl.load(place)
        v_sum += tl.load(place + 2 * H * C)
    tl.store(place, q_sum)
    tl.store(place + H * C, tl.zeros_like(q_sum))  # a bias of the keys changes no softmax
    tl.store(place + 2 * H * C, v_sum)


@triton.jit(do_not_specialize=["site"])
def _coins(out, seed, site, keep, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, _coin(seed, site, at, keep), mask=at < count)


@triton.jit
def _cell_place(k, count, tokens, rows, W: tl.constexpr, SIZE: tl.constexpr):
    """The layer, rows and columns of a program, which of them there are, its place in u and c, and whether it runs."""
    layer = tl.program_id(1)
    entry = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    runs = (layer <= k) & (k - layer < tokens)  # before its first token a layer is at 0, and after its last again
    return layer, entry // W, entry % W, entry < rows * W, layer.to(tl.int64) * (count + 1) + k, runs


@triton.jit
def _cell_gates(gates, bias, layer, k, count, rows, row, col, inside, W: tl.constexpr):
    """The places of the gates of one layer on a diagonal, and their values i, f, g, o."""
    at = gates + ((layer.to(tl.int64) * count + k) * rows + row) * 4 * W + col
    bias += layer * 4 * W + col
    i, f = tl.sigmoid(_biased(at, bias, inside)), tl.sigmoid(_biased(at + W, bias + W, inside))
    g, o = _fine_tanh(_biased(at + 2 * W, bias + 2 * W, inside)), tl.sigmoid(_biased(at + 3 * W, bias + 3 * W, inside))
    return at, i, f, g, o


@triton.jit
def _biased(at, bias, inside):
    return tl.load(at, mask=inside, other=0.0).to(tl.float32) + tl.load(bias, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["k"])
def _cell(
    gates, bias, c, u, stream, k, count, tokens, rows,
    LAYERS: tl.constexpr, W: tl.constexpr, RESIDUAL: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    layer, row, col, inside, now, runs = _cell_place(k, count, tokens, rows, W, SIZE)
    _, i, f, g, o = _cell_gates(gates, bias, layer, k, count, rows, row, col, inside, W)
    own = (now * rows + row) * W + col
    after = tl.where(runs, f * tl.load(c + own, mask=inside, other=0.0) + i * g, 0.0)
    kind: tl.constexpr = u.dtype.element_ty
    h = tl.where(runs, o * _fine_tanh(after), 0.0)
    tl.store(c + own + rows * W, after, mask=inside)
    tl.store(u + ((now + 1) * rows + row) * 2 * W + W + col, h.to(kind), mask=inside)
    if layer + 1 < LAYERS:
        if RESIDUAL:
            h += tl.load(stream + own, mask=inside, other=0.0)
            tl.store(stream + own + (count + 2) * rows * W, h, mask=inside)
        tl.store(u + ((now + count + 2) * rows + row) * 2 * W + col, h.to(kind), mask=inside)


@triton.jit(do_not_specialize=["k"])
def _cell_back(
    gates, bias, c, du, dc, past, grad, k, count, tokens, rows,
    LAYERS: tl.constexpr, W: tl.constexpr, RESIDUAL: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    layer, row, col, inside, now, runs = _cell_place(k, count, tokens, rows, W, SIZE)
    at, i, f, g, o = _cell_gates(gates, bias, layer, k, count, rows, row, col, inside, W)
    own = (now * rows + row) * W + col
    asked = inside & runs
    if layer + 1 < LAYERS:
        above = tl.load(du + ((now + count + 2) * rows + row) * 2 * W + col, mask=asked, other=0.0).to(tl.float32)
        if RESIDUAL:
            above += tl.load(past + own + (count + 2) * rows * W, mask=asked, other=0.0)
    else:
        above = tl.load(grad + (row * tokens + k - layer) * W + col, mask=asked, other=0.0).to(tl.float32)
    dh = above + tl.load(du + ((now + 1) * rows + row) * 2 * W + W + col, mask=asked, other=0.0).to(tl.float32)
    if RESIDUAL:
        tl.store(past + own, above, mask=inside)
    t = _fine_tanh(tl.load(c + own + rows * W, mask=inside, other=0.0))
    dc += (layer * rows + row) * W + col
    cell = tl.where(runs, tl.load(dc, mask=inside, other=0.0) + dh * o * (1.0 - t * t), 0.0)
    before = tl.load(c + own, mask=inside, other=0.0)
    kind: tl.constexpr = gates.dtype.element_ty
    tl.store(at, (cell * g * i * (1.0 - i)).to(kind), mask=inside)
    tl.store(at + W, (cell * before * f * (1.0 - f)).to(kind), mask=inside)
    tl.store(at + 2 * W, (cell * i * (1.0 - g * g)).to(kind), mask=inside)
    tl.store(at + 3 * W, (dh * t * o * (1.0 - o)).to(kind), mask=inside)
    tl.store(dc, cell * f, mask=inside)


@triton.jit
def _column_sums(x, out, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    total = tl.sum(tl.load(x + r[:, None].to(tl.int64) * cols + c[None, :], mask=inside, other=0.0), 0)
    tl.store(out + tl.program_id(1).to(tl.int64) * cols + c, total, mask=c < cols)


@triton.jit
def _adam(
    weight, grad, norm, mean, square, count, lr, size, clip, b1, b2, log_b1, log_b2, eps, decay,
    DECOUPLED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < size
    t, rate = tl.load(count), tl.load(lr)
    w, g = tl.load(weight + at, mask=inside), tl.load(grad + at, mask=inside)
    g *= tl.minimum(clip / (tl.load(norm) + 1e-6), 1.0)
    if DECOUPLED:
        w *= 1.0 - rate * decay
    else:
        g += decay * w
    m, v = tl.load(mean + at, mask=inside), tl.load(square + at, mask=inside)
    m += (1.0 - b1) * (g - m)
    v = b2 * v + (1.0 - b2) * g * g
    scale = tl.sqrt(v) / tl.sqrt(1.0 - tl.exp(t * log_b2)) + eps
    tl.store(weight + at, w - rate / (1.0 - tl.exp(t * log_b1)) * (m / scale), mask=inside)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, v, mask=inside)


Norm = tuple[Tensor, Tensor]  # its weight and bias
Kept = tuple[Tensor, Tensor]  # what a norm leaves for its backward pass: rows of mean 0 and deviation 1, 1 / deviation
Sums = tuple[Tensor, bool]  # [programs ...]; is it added to what is there?
Coins = tuple[Tensor, int, float]  # dropout: a seed, a number that is no other site's, and the share that is kept
NOTHING, NEVER = (None, None), (None, 0, 1.0)


def add_norm(
    like: Tensor,
    eps: float,
    *,
    base: Tensor | None = None,
    branch: Tensor | None = None,
    coins: Coins | None = None,
    z: tuple[Norm, Kept | None] | None = None,
    state: Tensor | None = None,
    inject: Tensor | None = None,
    stream: Tensor | None = None,
    a: tuple[Norm, Kept | None, Tensor] | None = None,
    tokens: tuple[int, int, int] = (1, 1, 1),
) -> None:
    """v = base + branch, with a norm `z` then LN(v), goes to `state`; v + inject goes to `stream`, and LN of it to `a`.

    Whatever is None is left out; the rows are those of `like`. `tokens` = (s, o, step): they are the tokens 0, step,
    2 step, ..., o of them, of every s rows of base. `coins` drop entries of the branch.
    """
    rows, width = like.shape
    z_norm, z_kept = z or (NOTHING, None)
    a_norm, a_kept, out = a or (NOTHING, None, None)
    each = _rows_each(width)
    _add_norm[(triton.cdiv(rows, each),)](
        base, branch, *(coins or NEVER), *z_norm, *(z_kept or NOTHING), state, inject, stream,
        *a_norm, *(a_kept or NOTHING), out, rows, *tokens, eps, width, triton.next_power_of_2(width), each,
        num_warps=NORM_WARPS,
    )  # fmt: skip


def add_norm_back(
    like: Tensor,
    sums: Sums,
    *,
    skip: Tensor | None = None,
    a: tuple[Tensor, Tensor, Kept] | None = None,
    inject_grad: Tensor | None = None,
    z_grad: Tensor | None = None,
    z: tuple[Tensor, Kept] | None = None,
    out: Tensor | None = None,
    low: Tensor | None = None,
    coins: Coins | None = None,
    tokens: tuple[int, int, int] = (1, 1, 1),
) -> None:
    """Back through `add_norm`: the gradient by v + inject is added to `inject_grad`, that by the sum goes to `out`.

    `a` is the gradient of its last norm, that norm's weight, and what it left; `skip` adds to what comes back from it.
    `z_grad` is the gradient of z, `z` the weight of its norm and what it left. `low` takes the gradient by the branch,
    of which `coins` dropped entries, in the precision of products. `sums` takes, 5 times the width, the gradients by
    weight and bias of `a` and of `z`, and the sum of `low`.
    """
    (rows, width), (place, add) = like.shape, sums
    a_grad, a_weight, a_kept = a or (None, None, NOTHING)
    z_weight, z_kept = z or (None, NOTHING)
    each = _rows_each(width)
    turns = triton.cdiv(rows, each * len(place))
    _add_norm_back[(len(place),)](
        skip, a_grad, a_weight, *a_kept, inject_grad, z_grad, z_weight, *z_kept, out, low, *(coins or NEVER), place,
        place.stride(0), rows, *tokens, add, width, triton.next_power_of_2(width), each, turns, num_warps=NORM_WARPS
    )  # fmt: skip


def act(u: Tensor, out: Tensor, relu: bool) -> None:
    """The activation."""
    _act[(triton.cdiv(u.numel(), ACT_SIZE),)](u, out, u.numel(), relu, ACT_SIZE, num_warps=4)


def act_back(u: Tensor, grad: Tensor, sums: Sums, relu: bool) -> None:
    """The gradient before the activation, in the place of u; `sums` takes its sum."""
    (rows, f), (place, add) = u.shape, sums
    turns, grid = triton.cdiv(rows, ACT_ROWS * len(place)), (len(place), triton.cdiv(f, ACT_COLS))
    _act_back[grid](u, grad, place, place.stride(0), rows, add, f, relu, ACT_ROWS, ACT_COLS, turns, num_warps=ACT_WARPS)


def cell(gates: Tensor, bias: Tensor, c: Tensor, u: Tensor, stream: Tensor | None, k: int, tokens: int) -> None:
    """The cells of diagonal k of stacked LSTMs, from their gates [l k b 4w]: the next c [l k b w], and h into u.

    With a residual stream [l k b w], the inputs of every layer, h is added to it and the sum put into u.
    """
    (layers, count, rows, _), w = gates.shape, c.shape[3]
    grid = triton.cdiv(rows * w, CELL_SIZE), layers
    residual, stream = stream is not None, c if stream is None else stream
    _cell[grid](gates, bias, c, u, stream, k, count, tokens, rows, layers, w, residual, CELL_SIZE, num_warps=4)


def cell_back(
    gates: Tensor, bias: Tensor, c: Tensor, du: Tensor, dc: Tensor, past: Tensor | None, grad: Tensor, k: int
) -> None:
    """The gradient of the gates of diagonal k, in their place, and that of its cells in dc, where the next one's is.

    With a residual stream also what its inputs get past the gates, into `past` [l k b w].
    """
    (layers, count, rows, _), w = gates.shape, c.shape[3]
    grid = triton.cdiv(rows * w, CELL_SIZE), layers
    residual, past = past is not None, c if past is None else past
    _cell_back[grid](
        gates, bias, c, du, dc, past, grad, k, count, grad.shape[1], rows, layers, w, residual, CELL_SIZE, num_warps=4
    )  # fmt: skip


def product(a: Float[Tensor, "*l m k"], b: Float[Tensor, "*l k n"]) -> Float[Tensor, "*l m n"]:
    """a @ b in float32, whatever they are in."""
    if a.dtype != torch.float32 and a.is_cuda:
        multiply = torch.mm if a.ndim == 2 else torch.bmm
        return multiply(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def coins(shape: tuple[int, ...], which: Coins) -> Tensor:
    """What the kernels multiply the places of a site by: 0, or 1 / keep."""
    out = torch.empty(shape, device=which[0].device)
    _coins[(triton.cdiv(out.numel(), ACT_SIZE),)](out, *which, out.numel(), ACT_SIZE)
    return out


def programs(rows: int, width: int) -> int:
    """How many programs add up so many rows: each takes its share equally often."""
    tiles = triton.cdiv(rows, _rows_each(width))
    return int(triton.cdiv(tiles, triton.cdiv(tiles, PROGRAMS)))


def _rows_each(width: int) -> int:
    """The rows that a program holds at once, in its registers."""
    return 2 if width <= 256 else 1


def column_sums(x: Tensor) -> Tensor:
    """The sum of the rows of [r c], 64 of them at a time."""
    while len(x) > 1:
        rows, cols = x.shape
        grid = triton.cdiv(cols, 64), triton.cdiv(rows, 64)
        out = x.new_empty(grid[1], cols)
        _column_sums[grid](x, out, rows, cols, 64, 64)
        x = out
    return x[0]


def adam(
    weight: Tensor, grad: Tensor, norm: Tensor, clip: float | None, state: dict[str, Tensor], group: dict[str, Any]
) -> None:
    """One step of torch's Adam or AdamW on a vector in float32, from the optimiser's own state and settings.

    A gradient whose norm is more than `clip` is shortened to it.
    """
    state["step"].add_(1)
    b1, b2 = group["betas"]
    logs = (math.log(b) if b else -math.inf for b in (b1, b2))
    _adam[(triton.cdiv(len(weight), ADAM_SIZE),)](
        weight, grad, norm, state["exp_avg"], state["exp_avg_sq"], state["step"], group["lr"], len(weight),
        math.inf if clip is None else clip, b1, b2, *logs, group["eps"], group["weight_decay"],
        group["decoupled_weight_decay"], ADAM_SIZE,
    )  # fmt: skip


def attends(qkv: Tensor, heads: int, step: int, prefix: Tensor | None = None) -> bool:
    """Is there an attention kernel for these sequences and heads, read at every step-th token? Not in full float32."""
    _, s, triple = qkv.shape
    exact = qkv.is_cuda and qkv.dtype == torch.float32 and _precision() == "ieee"
    fits = 0 < s <= (LONGEST if prefix is None else LONGEST // 2) and triple // (3 * heads) in WIDTHS and not exact
    return fits and (step == 1 or (step == 2 and s > 32 and prefix is None))


def _parts(s: int, step: int, prefix: Tensor | None) -> tuple[int, int, int, int]:
    """The tokens in two parts, each a power of two: later tokens alone meet both. With a prefix all are one part."""
    a = max(16, triton.next_power_of_2(s) // (2 if prefix is None else 1))
    b = max(16, triton.next_power_of_2(s - a)) if s > a else 0
    return a, b, max(16, a // step), max(16, b // step) if b else 0


def attend(
    qkv: Tensor,
    out: Tensor,
    lse: Tensor,
    heads: int,
    step: int = 1,
    prefix: Tensor | None = None,
    coins: Coins | None = None,
) -> None:
    """Causal softmax attention of [b s 3e] packed queries, keys and values, at tokens 0, step, 2 step, ...: [b o e].

    All see the first `prefix` tokens of their sequence; `coins` drop some of what is seen. `lse` takes the logarithm of
    what the softmax is divided by, for its backward pass.
    """
    (b, s, triple), o = qkv.shape, out.shape[1]
    width, parts = triple // (3 * heads), _parts(s, step, prefix)
    _attend[(b * heads,)](
        qkv, out, lse, prefix, *(coins or NEVER), s, o, width**-0.5, heads, width, *parts, step, _precision(),
        num_warps=_warps(qkv, parts[2]),
    )  # fmt: skip


def attend_back(
    qkv: Tensor,
    out: Tensor,
    grad: Tensor,
    lse: Tensor,
    sums: Sums,
    heads: int,
    step: int = 1,
    prefix: Tensor | None = None,
    coins: Coins | None = None,
) -> None:
    """The gradient by queries, keys and values, in their place; `sums` takes its sum over the tokens."""
    (b, s, triple), o, (place, add) = qkv.shape, grad.shape[1], sums
    width, parts = triple // (3 * heads), _parts(s, step, prefix)
    _attend_back[(b * heads,)](
        qkv, out, grad, lse, prefix, *(coins or NEVER), place, place.stride(0), s, o, width**-0.5, heads, width, *parts,
        step, _precision(), add,
        num_warps=_warps(qkv, parts[0] * (2 if parts[0] > 64 or coins else 1)),
    )  # fmt: skip


def _warps(qkv: Tensor, size: int) -> int:
    """So many that a tile of scores stays in registers."""
    return max(1, min(8, size // 32)) * (2 if qkv.dtype == torch.float32 else 1)


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
