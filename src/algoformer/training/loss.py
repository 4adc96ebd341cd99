"""The training loss: which loops enter it, and which carry gradient (Yang et al. 2024; Gao et al. 2024)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.models import Model
from algoformer.prompt import Prompt


def window_loss(
    model: Model,
    prompt: Any,
    target: Float[Tensor, "b o k"],
    weight: Float[Tensor, " o"],
    *,
    loops: int,
    window: int,
    gradient: int,
    robust: float | None = None,
    eq6: bool = False,
) -> Float[Tensor, " b"]:
    """The loss of every prompt: the mean over loops, asked positions (by weight) and labels.

    Loops `loops - window + 1` to `loops` enter; with `eq6` also loop `loops - window`, and the sum is still divided
    by `window`. The last `gradient` loops carry gradient, as do init and every reading.
    """
    q = model.prepare(prompt)
    first = max(loops - window, 0) + (0 if eq6 else 1)
    answers = model.answers(q, first=first, loops=loops, gradient=gradient)
    error = (answers.reshape(-1, *target.shape) - target).square()
    if robust is not None:
        error = torch.log1p(error / robust)
    share = weight / (weight.sum() * target.shape[2] * min(window, loops))
    return (error * share[:, None]).sum((0, 2, 3))


def rao_blackwell(
    model: Model,
    x: Float[Tensor, "b n d"],
    sigma: Float[Tensor, "b d d"],
    omega: Float[Tensor, "b d d"],
    robust: float | None = None,
) -> Float[Tensor, " b"]:
    """E (prediction - truth)^2 over w ~ N(0, omega) and a query ~ N(0, sigma), given the inputs of each prompt.

    The prediction must be q'R w: R is read off with the basis vectors as queries and as weights.
    """
    basis = torch.eye(x.shape[2], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
    error = model(Prompt(x, x, basis, check=False)) - basis
    loss = torch.einsum("bij,bjk,blk,bli->b", error, omega, error, sigma)
    return loss if robust is None else torch.log1p(loss / robust)
