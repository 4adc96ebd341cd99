"""Stacked LSTMs on hand-written kernels, along diagonals: layer l at token t needs only (l, t - 1) and (l - 1, t).

So all (l, t) with l + t = k are one product and one kernel: a pass takes tokens + layers - 1 of them, and one layer
after another tokens x layers. The gradient of the weights is one long product over them all. As in `fused`, the way
back writes gradients over what it has read, so it can be gone once.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from algoformer.models import kernels as K


def stacked(x: Float[Tensor, "b s w"], layers: Iterable[nn.LSTM], residual: bool) -> Float[Tensor, "b s w"]:
    """The outputs of the last of these layers, each as wide as its inputs; under autocast in its precision.

    If `residual`, a layer adds to its inputs, in float32.
    """
    kind = x.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    with torch.autocast(kind, enabled=False):
        parts = [list(layer.parameters()) for layer in layers]  # of inputs and of h: weights, then biases
        weight = torch.stack([torch.cat((one, other), 1) for one, other, _, _ in parts])
        bias = torch.stack([one + other for _, _, one, other in parts])
        x = x.to(torch.float32 if residual else low)
        out: Tensor = _Wavefront.apply(x, weight, bias, low, residual)  # type: ignore[no-untyped-call]
    return out


class _Wavefront(torch.autograd.Function):
    """Inputs u = (below, own h before), gates W u and cells c by layer, diagonal and row; all start at 0."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, low: torch.dtype, residual: bool) -> Tensor:
        (b, tokens, w), layers = x.shape, len(weight)
        count = tokens + layers - 1
        weight = weight.to(low)
        u = weight.new_empty(layers, count + 1, b, 2 * w)
        u[:, 0] = 0
        u[0, :tokens, :, :w] = x.transpose(0, 1)
        u[0, tokens:, :, :w] = 0
        gates = weight.new_empty(layers, count, b, 4 * w)
        c = bias.new_empty(layers, count + 1, b, w)
        c[:, 0] = 0
        stream = torch.zeros_like(c) if residual else None
        if stream is not None:
            stream[0, :tokens] = x.transpose(0, 1)
        for k in range(count):
            torch.bmm(u[:, k], weight.mT, out=gates[:, k])
            K.cell(gates, bias, c, u, stream, k, tokens)
        ctx.tape, ctx.residual = (u, gates, c, weight, bias), residual
        out = u[-1, layers:, :, w:]
        if stream is not None:
            out = out + stream[-1, layers - 1 : -1]
        return out.transpose(0, 1).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        if ctx.tape is None:
            raise RuntimeError("a pass on kernels must be gone back through once; got a second time")
        (u, gates, c, weight, bias), ctx.tape = ctx.tape, None
        layers, count, b, width = gates.shape
        grad, w = grad.contiguous(), width // 4
        du, dc, past = torch.empty_like(u), c.new_zeros(layers, b, w), torch.empty_like(c) if ctx.residual else None
        du[:, -1] = 0
        for k in reversed(range(count)):
            K.cell_back(gates, bias, c, du, dc, past, grad, k)
            torch.bmm(gates[:, k], weight, out=du[:, k])
        rows, inputs = gates.flatten(1, 2), u[:, :-1].flatten(1, 2)
        dx = du[0, : grad.shape[1], :, :w]
        if past is not None:
            dx = dx + past[0, : grad.shape[1]]
        return dx.transpose(0, 1), K.product(rows.mT, inputs), rows.sum(1, dtype=torch.float32), None, None
