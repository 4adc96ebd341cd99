"""Blocks, and loops of blocks, as one differentiable function on hand-written kernels: `Stack` and `Loop`, faster.

The rows of all loops that carry gradient lie one after another, and the gradient of a weight is one long product over
them. The residual stream and its gradient are float32; what products read, and what is kept for the way back, is in the
precision of the products. The way back writes gradients over what it has read, so it can be gone once.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from algoformer.models import kernels as K
from algoformer.models.tokens import shown


class Shape(NamedTuple):
    """What a pass is: the loops, how many states are kept and carry gradient, and the sizes of a block."""

    loops: int
    keep: int
    gradient: int
    blocks: int
    heads: int
    relu: bool
    step: int  # the last block gives every step-th token
    norm: bool
    eps: float
    dropout: float
    dtype: torch.dtype  # of the products


def run(
    x: Float[Tensor, "b s e"] | None,
    blocks: Sequence[nn.Module],
    *,
    inject: Float[Tensor, "b s e"] | None = None,
    norm: nn.Module | None = None,
    loops: int = 1,
    keep: int = 1,
    gradient: int | None = None,
    rows: slice | Tensor = slice(None),
    prefix: Int[Tensor, " b"] | None = None,
) -> Float[Tensor, "t b o e"]:
    """The last `keep` of z_{t+1} = norm(blocks(z_t + inject)), z_0 = x (None: zero), for t below `loops`.

    The last `gradient` loops (None: all) carry gradient. The last block gives the tokens `rows`; only for one loop.
    Tokens see those before them, and the first `prefix` of them all.
    """
    whole = isinstance(rows, slice) and not rows.start and rows.stop is None
    step = rows.step or 1 if isinstance(rows, slice) and whole else 1
    first: Any = blocks[0]
    kind = (x if x is not None else inject).device.type  # type: ignore[union-attr]
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else first.up.weight.dtype
    affine = isinstance(norm, nn.LayerNorm)
    shape = Shape(
        loops=loops,
        keep=keep,
        gradient=loops if gradient is None else min(gradient, loops),
        blocks=len(blocks),
        heads=first.attention.heads,
        relu=first.activation == "relu",
        step=step,
        norm=affine,
        eps=first.norm1.eps,
        dropout=first.dropout if first.training else 0.0,
        dtype=dtype,
    )
    weights = [w for block in blocks for w in _weights(block)] + (_pair(norm) if affine else [])
    with torch.autocast(kind, enabled=False):
        out: Tensor = _Run.apply(shape, prefix, x, inject, *weights)  # type: ignore[no-untyped-call]
    return out if whole else out[:, :, rows]


def _pair(part: Any) -> list[Tensor]:
    return [part.weight, part.bias]


def _weights(block: Any) -> list[Tensor]:
    parts = (block.norm1, block.attention.qkv, block.attention.out, block.norm2, block.up, block.down)
    return [w for part in parts for w in _pair(part)]


class Block(NamedTuple):
    """The weights of a block; those of products in the dtype of the products."""

    norm1: tuple[Tensor, Tensor]
    qkv: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]
    norm2: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]


class Rows(NamedTuple):
    """What a block leaves for its backward pass, one loop after another."""

    a: Tensor  # LN(h), h the stream
    a_kept: K.Kept
    qkv: Tensor
    o: Tensor
    lse: Tensor  # of the softmax
    m: Tensor  # LN(h + attention)
    m_kept: K.Kept
    u: Tensor
    g: Tensor  # the activation of u


class _Coins:
    """Dropout of every place of a pass: by a seed that is torch's, so that its generator makes a run repeatable."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        self.seed = torch.randint(2**62, (1,), device=device) if shape.dropout else None

    def __call__(self, t: int, i: int, place: int) -> K.Coins | None:
        """Those of loop t and block i: of what attention sees, of attention, of the feed-forward part."""
        if self.seed is None:
            return None
        return self.seed, 3 * (t * self.shape.blocks + i) + place, 1 - self.shape.dropout


SEEN, ATTENDED, FED = range(3)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, shape: Shape, prefix: Tensor | None, x: Tensor | None, inject: Tensor | None, *weights: Tensor
    ) -> Tensor:
        some: Any = x if x is not None else inject
        (b, s, e), n, eps = some.shape, shape.blocks, shape.eps
        x, inject = (None if v is None else v.contiguous() for v in (x, inject))
        blocks, norm = _cast(shape, weights)
        coins = _Coins(shape, some.device)
        carried = shape.gradient if any(ctx.needs_input_grad) else 0
        count, f = max(carried, 1), blocks[0].up[0].shape[0]
        o = -(-s // shape.step)

        def empty(rows: int, width: int, times: int = count, dtype: torch.dtype = shape.dtype) -> Tensor:
            made: Tensor = some.new_empty(times, rows, width, dtype=dtype)
            return made

        def kept(rows: int) -> K.Kept:
            return empty(rows, e), some.new_empty(count, rows, dtype=torch.float32)

        def at(pair: K.Kept, k: int) -> K.Kept | None:
            return (pair[0][k], pair[1][k]) if k >= 0 and carried else None

        tape = []
        for i in range(n):
            r = b * (o if i == n - 1 else s)
            wide = empty(b * s, e), kept(b * s), empty(b * s, 3 * e)
            lse = empty(r, shape.heads, dtype=torch.float32)
            tape.append(Rows(*wide, empty(r, e), lse, empty(r, e), kept(r), empty(r, f), empty(r, f)))
        z_kept, z = kept(b * o), empty(b * o, e, shape.keep, shape.dtype if shape.norm else torch.float32)
        streams = [empty(b * s, e, 1, torch.float32)[0] for _ in range(3)]  # between blocks, and inside one
        first = shape.loops - carried
        both = None if x is None or inject is None else streams[1]
        a = blocks[0].norm1, at(tape[0].a_kept, -first), tape[0].a[0]
        K.add_norm(tape[0].a[0], eps, base=x, inject=inject, stream=both, a=a)
        stream = inject if x is None else x if inject is None else both  # what the next block is given
        for t in range(shape.loops):
            k = max(t - first, 0)
            for i, (w, rows) in enumerate(zip(blocks, tape, strict=True)):
                last = i == n - 1
                size, step = (o, shape.step) if last else (s, 1)
                inside, outside = streams[2][: b * size], streams[i % 2][: b * size]
                torch.addmm(w.qkv[1], rows.a[k], w.qkv[0].t(), out=rows.qkv[k])
                qkv, answer = rows.qkv[k].view(b, s, 3 * e), rows.o[k].view(b, size, e)
                _attend(qkv, answer, rows.lse[k], shape.heads, step, prefix, coins(t, i, SEEN))
                branch = torch.addmm(w.out[1], rows.o[k], w.out[0].t())
                K.add_norm(
                    inside, eps, base=stream, branch=branch, coins=coins(t, i, ATTENDED), stream=inside,
                    a=(w.norm2, at(rows.m_kept, t - first), rows.m[k]), tokens=_tokens(s, size, step),
                )  # fmt: skip
                if t < first and not shape.relu and some.is_cuda:  # u is not kept: the product's own epilogue does
                    torch._addmm_activation(w.up[1], rows.m[k], w.up[0].t(), use_gelu=True, out=rows.g[k])
                else:
                    torch.addmm(w.up[1], rows.m[k], w.up[0].t(), out=rows.u[k])
                    K.act(rows.u[k], rows.g[k], shape.relu)
                torch.addmm(w.down[1], rows.g[k], w.down[0].t(), out=branch)
                ahead: dict[str, Any] = {}
                if not last:
                    ahead["a"] = blocks[i + 1].norm1, at(tape[i + 1].a_kept, t - first), tape[i + 1].a[k]
                else:
                    shown = t - (shape.loops - shape.keep)
                    ahead["state"] = z[shown] if shown >= 0 else None
                    ahead["z"] = (norm, at(z_kept, t - first)) if norm is not None else None
                    if t + 1 < shape.loops:
                        later = t + 1 - first
                        ahead["a"] = blocks[0].norm1, at(tape[0].a_kept, later), tape[0].a[max(later, 0)]
                        ahead["inject"] = inject
                stream = outside if "a" in ahead else None
                K.add_norm(inside, eps, base=inside, branch=branch, coins=coins(t, i, FED), stream=stream, **ahead)
        if carried:
            ctx.shape, ctx.tape, ctx.blocks, ctx.norm, ctx.size = shape, tape, blocks, norm, (b, s, o, e, carried)
            ctx.z_kept, ctx.x_dtype, ctx.injected = z_kept, None if x is None else x.dtype, inject is not None
            ctx.prefix, ctx.coins = prefix, coins
        return z.view(shape.keep, b, o, e)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        shape, tape, blocks, norm = ctx.shape, ctx.tape, ctx.blocks, ctx.norm
        if tape is None:
            raise RuntimeError("a pass on kernels must be gone back through once; got a second time")
        ctx.tape = None
        b, s, o, e, carried = ctx.size
        n, f, first = shape.blocks, blocks[0].up[0].shape[0], shape.loops - carried
        grad = grad.contiguous().view(shape.keep, b * o, e)
        full: Any = {"device": grad.device, "dtype": torch.float32}
        inject_grad = torch.zeros(b * s, e, **full) if ctx.injected else None
        add = carried > 1  # else every sum is written once
        norms, acts = (2 * n + 1) * 5 * e, n * f
        new: Any = torch.zeros if add else torch.empty
        sums, heads = new(K.programs(b * s, e), norms + acts, **full), new(b, n * 3 * e, **full)

        def norm_sums(i: int) -> K.Sums:
            return sums[:, i * 5 * e :], add

        rows = [b * (o if i == n - 1 else s) for i in range(n)]
        dy, dx = ([grad.new_empty(carried, r, e, dtype=shape.dtype) for r in rows] for _ in range(2))
        y, x = (torch.empty(b * s, e, **full) for _ in range(2))  # residual gradients
        x0 = None

        def at(pair: K.Kept, k: int) -> K.Kept:
            return pair[0][k], pair[1][k]

        def closed(k: int) -> dict[str, Any]:
            coins = ctx.coins(first + k, n - 1, FED)
            return {"low": dy[-1][k], "coins": coins, "z": None if norm is None else (norm[0], at(ctx.z_kept, k))}

        K.add_norm_back(dy[-1][-1], norm_sums(2 * n), z_grad=grad[-1], out=y, **closed(carried - 1))
        for k in reversed(range(carried)):
            for i in reversed(range(n)):
                w, kept, step = blocks[i], tape[i], shape.step if i == n - 1 else 1
                dg = torch.mm(dy[i][k], w.down[0])
                K.act_back(kept.u[k], dg, (sums[:, norms + i * f :], add), shape.relu)
                dm = torch.mm(kept.u[k], w.up[0])
                K.add_norm_back(
                    dm, norm_sums(i), skip=y, a=(dm, w.norm2[0], at(kept.m_kept, k)), out=x, low=dx[i][k],
                    coins=ctx.coins(first + k, i, ATTENDED),
                )  # fmt: skip
                qkv, answer = kept.qkv[k].view(b, s, 3 * e), kept.o[k].view(b, -1, e)
                da = torch.mm(dx[i][k], w.out[0]).view_as(answer)
                added, seen = (heads[:, i * 3 * e :], add), ctx.coins(first + k, i, SEEN)
                _attend_back(qkv, answer, da, kept.lse[k], added, shape.heads, step, ctx.prefix, seen)
                da = torch.mm(kept.qkv[k], w.qkv[0])
                more: dict[str, Any] = {}
                if i:
                    more = {"out": y, "low": dy[i - 1][k], "coins": ctx.coins(first + k, i - 1, FED)}
                elif k:
                    shown = k + shape.keep - carried - 1  # is the state before this loop read?
                    more = {"z_grad": grad[shown] if shown >= 0 else None, "out": y, **closed(k - 1)}
                elif carried == shape.loops and ctx.x_dtype is not None:
                    x0 = more["out"] = grad.new_empty(b * s, e, dtype=ctx.x_dtype)
                if i == 0:
                    more["inject_grad"] = inject_grad
                opened = da, w.norm1[0], at(kept.a_kept, k)
                K.add_norm_back(da, norm_sums(n + i), skip=x, a=opened, tokens=_tokens(s, o, step), **more)
        out: list[Tensor] = []
        total, head = K.column_sums(sums), K.column_sums(heads).view(n, 3 * e)
        act, total = total[norms:].view(n, f), total[:norms].view(2 * n + 1, 5, e)
        for i, kept in enumerate(tape):
            norm2, norm1 = total[i], total[n + i]
            down = total[n + i + 1][4] if i + 1 < n else total[-1][4] + (total[n][4] if add else 0)
            out += [
                norm1[0], norm1[1],
                _product(kept.qkv, kept.a), head[i],
                _product(dx[i], kept.o), norm2[4],
                norm2[0], norm2[1],
                _product(kept.u, kept.m), act[i],
                _product(dy[i], kept.g), down,
            ]  # fmt: skip
        if norm is not None:
            out += [total[-1][j] + (total[n][j] if add else 0) for j in (2, 3)]
        shaped = (None if v is None else v.view(b, s, e) for v in (x0, inject_grad))
        return None, None, *shaped, *out


def _cast(shape: Shape, weights: tuple[Tensor, ...]) -> tuple[list[Block], tuple[Tensor, Tensor] | None]:
    """The weights by block, those of products cast; in one piece where they are parts of one vector."""
    mine = [w.detach() for w in weights]
    if shape.dtype != mine[0].dtype:
        begin = min(w.storage_offset() for w in mine)
        size = max(w.storage_offset() + w.numel() for w in mine) - begin
        one = len({w.untyped_storage().data_ptr() for w in mine}) == 1 and all(w.is_contiguous() for w in mine)
        if one and size < 2 * sum(w.numel() for w in mine):
            vector = torch.as_strided(mine[0], (size,), (1,), begin).to(shape.dtype)
            low = [vector[w.storage_offset() - begin :][: w.numel()].view_as(w) for w in mine]
        else:
            low = [w.to(shape.dtype) for w in mine]
        norms = (0, 1, 6, 7)
        mine = [
            w if i >= 12 * shape.blocks or i % 12 in norms else v
            for i, (w, v) in enumerate(zip(mine, low, strict=True))
        ]
    pairs = list(zip(mine[::2], mine[1::2], strict=True))
    blocks = [Block(*pairs[6 * i : 6 * i + 6]) for i in range(shape.blocks)]
    return blocks, pairs[-1] if shape.norm else None


def _tokens(s: int, o: int, step: int) -> tuple[int, int, int]:
    """Which rows of s are the o of an answer; where it is all of them, no kernel need divide."""
    return (s, o, step) if step > 1 else (1, 1, 1)


def _product(grad: Tensor, x: Tensor) -> Tensor:
    """sum over all loops and rows of grad_r x_r', in full precision."""
    return K.product(grad.flatten(0, 1).t(), x.flatten(0, 1))


def _library(qkv: Tensor, heads: int, step: int, prefix: Tensor | None, coins: K.Coins | None) -> Tensor:
    b, s, triple = qkv.shape
    q, k, v = qkv.view(b, s, 3, heads, triple // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)
    mask = shown(prefix, s)
    if coins is None:
        o = F.scaled_dot_product_attention(q, k, v, None if mask is None else mask[:, None], is_causal=mask is None)
    else:
        mask = torch.ones(1, s, s, dtype=torch.bool, device=q.device).tril() if mask is None else mask
        p = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask[:, None], -torch.inf).softmax(-1)
        o = (p * K.coins((b, heads, s, s), coins).to(p.dtype)) @ v
    return o.transpose(1, 2).flatten(2)[:, ::step]


def _attend(
    qkv: Tensor, out: Tensor, lse: Tensor, heads: int, step: int, prefix: Tensor | None, coins: K.Coins | None
) -> None:
    if K.attends(qkv, heads, step, prefix):
        K.attend(qkv, out, lse, heads, step, prefix, coins)
    else:
        out.copy_(_library(qkv, heads, step, prefix, coins))


def _attend_back(
    qkv: Tensor,
    o: Tensor,
    grad: Tensor,
    lse: Tensor,
    sums: K.Sums,
    heads: int,
    step: int,
    prefix: Tensor | None,
    coins: K.Coins | None,
) -> None:
    if K.attends(qkv, heads, step, prefix):
        K.attend_back(qkv, o, grad, lse, sums, heads, step, prefix, coins)
        return
    with torch.enable_grad():
        mine = qkv.detach().requires_grad_()
        (back,) = torch.autograd.grad(_library(mine, heads, step, prefix, coins), mine, grad)
    qkv.copy_(back)
    place, add = sums
    total = back.float().sum(1)
    place[:, : total.shape[1]] = place[:, : total.shape[1]] + total if add else total
