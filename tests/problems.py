"""Regression problems drawn without the package's own tasks."""

import torch
from torch import Tensor

from algoformer import Prompt


def draw(
    seed: int, batch: int, *, d: int = 20, n: int = 40, k: int = 1, noise: float = 0.0, skew: bool = False
) -> tuple[Prompt, Tensor, Tensor]:
    """Prompts with 3 queries, their weights, and the root of the covariance; skew: half of it 100, half 1, trace d."""
    g = torch.Generator().manual_seed(seed)
    x, queries = (torch.randn(batch, m, d, generator=g, dtype=torch.float64) for m in (n, 3))
    root = torch.eye(d, dtype=torch.float64).expand(batch, d, d)
    if skew:
        u = torch.linalg.qr(torch.randn(batch, d, d, generator=g, dtype=torch.float64)).Q
        scale = torch.where(torch.arange(d) < d // 2, 10.0, 1.0).double()
        root = u @ (scale[:, None] * (d / scale.square().sum()).sqrt() * u.mT)
    x, queries = x @ root, queries @ root
    w = torch.randn(batch, d, k, generator=g, dtype=torch.float64)
    y = x @ w + noise * torch.randn(batch, n, k, generator=g, dtype=torch.float64)
    return Prompt(x, y, queries), w, root


def steps_to(solver, problem, targets=(1e-2, 1e-4, 1e-8), cap=10_000) -> list[float]:
    """The median number of steps until |w_t - w|² falls below each target times |w|², in the metric of the inputs."""
    p, w, root = problem
    found = torch.full((len(targets), len(w)), torch.inf)
    size = (root @ w).square().sum((1, 2))
    for t, s in enumerate(solver.states(p, cap)):
        error = (root @ (s.w - w)).square().sum((1, 2)) / size
        found[(error < torch.tensor(targets)[:, None]) & found.isinf()] = t
        if bool((found.median(1).values < t).all()):
            break
    return found.median(1).values.tolist()
