"""Linear transformers under training, as the preconditioned gradient descent that they are (Ahn et al. 2023, Lemma 2).

Only the examples are sampled; the mean over weights and query is exact (`theory.sampled`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from algoformer import theory

Loss = Callable[[Tensor], Tensor]
Observe = Callable[[int, float, Tensor], None]


def symmetrised(A: Tensor) -> Tensor:
    """The symmetric part of every matrix."""
    return (A + A.mT) / 2


def adam(loss: Loss, start: Tensor, *, steps: int, lr: float, observe: Observe | None = None) -> Tensor:
    """Adam with betas (0.9, 0.9), a cosine to 0 and gradients clipped at norm 1; the mean of the last tenth."""
    theta = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theta], lr=lr, betas=(0.9, 0.9))
    total, tail = torch.zeros_like(start), max(steps // 10, 1)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * step / steps)) / 2
        optimiser.zero_grad()
        value = loss(theta)
        if observe is not None:
            observe(step, float(value.detach()), theta.detach())
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([theta], 1.0)
        optimiser.step()
        if step >= steps - tail:
            total += theta.detach() / tail
    return total


def lbfgs(loss: Loss, start: Tensor, *, iterations: int, observe: Observe | None = None, block: int = 10) -> Tensor:
    """L-BFGS with a strong Wolfe line search, observed every `block` iterations."""
    theta = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [theta], max_iter=block, max_eval=4 * block, history_size=100, tolerance_grad=1e-10, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip
    latest = [0.0]

    def closure() -> float:
        optimiser.zero_grad()
        value = loss(theta)
        value.backward()  # type: ignore[no-untyped-call]
        latest[0] = float(value.detach())
        return latest[0]

    for done in range(0, iterations, block):
        if observe is not None:
            with torch.no_grad():
                observe(done, float(loss(theta.detach())), theta.detach())
        optimiser.step(closure)  # type: ignore[no-untyped-call]
    if observe is not None:
        with torch.no_grad():
            observe(iterations, float(loss(theta.detach())), theta.detach())
    return theta.detach()


@dataclass(frozen=True, kw_only=True)
class Looped:
    """A looped (or layered) linear transformer on Sigma = I, trained by Adam on fresh prompts."""

    d: int
    n: int
    loops: int
    steps: int
    batch: int
    lr: float
    layered: bool = False
    points: int = 40  # of the trajectories that are kept

    def train(self, generator: torch.Generator) -> Trained:
        """From A = 0 (layers: from small steps of their own, or they would stay equal), symmetric throughout."""
        count = self.loops if self.layered else 1
        start = 0.1 * torch.rand(count, 1, 1, generator=generator, dtype=torch.float64) * torch.eye(self.d).double()
        if not self.layered:
            start = torch.zeros_like(start)
        at, losses, weights = [], [], []
        every = max(self.steps // self.points, 1)

        def loss(A: Tensor) -> Tensor:
            stack = symmetrised(A).expand(self.loops, self.d, self.d)
            return theory.sampled(stack, self.n, samples=self.batch, generator=generator)[0]

        def observe(step: int, value: float, A: Tensor) -> None:
            losses.append(value)
            if step % every == 0:
                at.append(step)
                weights.append(symmetrised(A))

        A = symmetrised(adam(loss, start, steps=self.steps, lr=self.lr, observe=observe))
        means = [sum(losses[t : t + every]) / len(losses[t : t + every]) for t in at]
        return Trained(A, at, means, torch.stack(weights))


@dataclass(frozen=True, eq=False)
class Trained:
    """The final layers [t d d], and at some steps the running loss and the layers."""

    A: Tensor
    steps: list[int]
    losses: list[float]
    weights: Tensor
