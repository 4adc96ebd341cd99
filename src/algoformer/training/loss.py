"""The training loss: which loops enter it, and which carry gradient (Yang et al. 2024; Gao et al. 2024)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from algoformer.models import Model
from algoformer.models.model import SequenceModel
from algoformer.prompt import Prompt, Text


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


def cross_entropy(
    model: SequenceModel,
    text: Text,
    target: Int[Tensor, " c"],
    at: Int[Tensor, " c"],
    weight: Float[Tensor, " c"],
    *,
    loops: int,
    window: int,
    gradient: int,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The weighted sum of -log p(target) at the positions `at` of the flattened batch, the mean over the last loops.

    With `smoothing` s the target has the probability 1 - s, and s is spread over the whole vocabulary, which is scored
    at these positions alone.
    """
    q = model.prepare(text)
    h = model.unscored(q, first=max(loops - window, 0) + 1, loops=loops, gradient=gradient)
    scores = model.scores(h.flatten(1, 2).index_select(1, at))
    loss = F.cross_entropy(
        scores.flatten(0, 1), target.repeat(len(scores)), reduction="none", label_smoothing=smoothing
    )
    return (loss.view(len(scores), -1) * weight).sum() / len(scores)


def rao_blackwell(
    model: Model,
    x: Float[Tensor, "b n d"],
    sigma: Float[Tensor, "b d d"],
    omega: Float[Tensor, "b d d"],
    *,
    loops: int | None = None,
    window: int = 1,
    gradient: int | None = None,
    robust: float | None = None,
) -> Float[Tensor, " b"]:
    """E (prediction - truth)^2 over w ~ N(0, omega) and a query ~ N(0, sigma), given the inputs of each prompt.

    The mean over the last `window` loops, of which the last `gradient` (None: all) carry gradient. The prediction must
    be q'R w: R is read off with the basis vectors as queries and as weights.
    """
    loops = model.steps if loops is None else loops
    basis = torch.eye(x.shape[2], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
    q = model.prepare(Prompt(x, x, basis, check=False))
    first, carried = max(loops - window, 0) + 1, loops if gradient is None else gradient
    error = model.answers(q, first=first, loops=loops, gradient=carried).reshape(-1, *basis.shape) - basis
    loss = torch.einsum("tbij,bjk,tblk,bli->tb", error, omega, error, sigma)
    return (loss if robust is None else torch.log1p(loss / robust)).mean(0)
