"""Training on the exact loss beside training on samples: Ahn et al. 2023, section 5.3 (three layers, d = 5, n = 20).

The same model from the same start: L-BFGS on the exact population loss, Adam on literal prompts (w and x_q drawn) and
Adam on the Rao-Blackwell loss (only the examples drawn), each Adam at the best of three step sizes with cosine decay.
The weights are whitened, Sigma^1/2 A Sigma^1/2, which leaves the problem as it is and helps Adam most. Times count the
optimiser alone, the exact route's set-up included; the gap to the optimum is measured aside with the exact loss.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from algoformer.bench.timing import Table, median_seconds
from algoformer.theory import layered_optimum, looped_optimum, matrix_layers, sampled
from algoformer.theory.words import _pairings, table

D, N, LAYERS, BATCH, STEPS = 5, 20, 3, 1000, 3000
RATES = (0.003, 0.01, 0.03)
GAPS = (1e-3, 1e-5)


def run() -> Iterator[Table]:
    """How long an exact optimum takes, and the three routes side by side."""
    sizes = ((5, 20), (10, 10**6), (100, 999_983))
    finders = [(find, depth, d, n) for find, depth in ((looped_optimum, 10), (layered_optimum, 6)) for d, n in sizes]
    taken = median_seconds(*(lambda f=f, t=t, d=d, n=n: f(d, n, t) for f, t, d, n in finders))
    yield Table(
        "Exact optima",
        ["optimum", "steps", "d", "n", "milliseconds"],
        [[f.__name__, t, d, n, 1000 * s] for (f, t, d, n), s in zip(finders, taken, strict=True)],
        ["At most 100 ms are asked."],
    )
    result = measure()
    rows = [
        [name, r.get("rate", "line search"), *(s if s < math.inf else "never" for s in r["seconds"]), r["least gap"]]
        for name, r in result["routes"].items()
    ]
    yield Table(
        f"Ahn et al., section 5.3: seconds to a gap from the optimum {result['optimum']:.6f}",
        ["route", "step size", *(f"to {g:g}" for g in result["gaps"]), "least gap"],
        rows,
        [
            f"{result['times faster at 1e-3']:.0f} times faster to 1e-3 than literal prompts; at least 10 is asked.",
            f"Set-up of the exact loss included ({result['set-up']:.2f} s). Adam: {STEPS} steps of {BATCH} prompts.",
        ],
    )


def measure(steps: int = STEPS, seed: int = 0) -> dict[str, Any]:
    """Seconds to each gap, and the least gap, of the three routes."""
    generator = torch.Generator().manual_seed(seed)
    start = 0.1 * torch.randn(LAYERS, D, D, dtype=torch.float64, generator=generator)
    best = float(layered_optimum(D, N, LAYERS).loss)

    def gap(A: Tensor) -> float:
        return float(matrix_layers(symmetrise(A.detach()), N, symmetric=True)) - best

    table.cache_clear()
    _pairings.cache_clear()
    begin = time.perf_counter()
    table(LAYERS, symmetric=True)
    setup = time.perf_counter() - begin
    routes = {"exact, L-BFGS": lbfgs(start, lambda A: matrix_layers(A, N, symmetric=True), gap, setup)}
    losses: dict[str, Callable[[Tensor], Any]] = {
        "literal prompts, Adam": lambda A: literal(A, generator),
        "Rao-Blackwell, Adam": lambda A: sampled(A, N, samples=BATCH, generator=generator)[0],
    }
    for name, loss in losses.items():
        tried = {rate: adam(start, loss, gap, rate, steps) for rate in RATES}
        rate = min(tried, key=lambda r: (*reversed(tried[r]["seconds"]), tried[r]["least gap"]))
        routes[name] = tried[rate] | {"rate": rate}
    exact, drawn = (routes[name]["seconds"][0] for name in ("exact, L-BFGS", "literal prompts, Adam"))
    return {"optimum": best, "set-up": setup, "gaps": GAPS, "routes": routes, "times faster at 1e-3": drawn / exact}


def symmetrise(A: Tensor) -> Tensor:
    """The symmetric part."""
    return (A + A.mT) / 2


def literal(A: Tensor, generator: torch.Generator) -> Tensor:
    """The squared error of the layers on a batch of prompts."""
    x = torch.randn(BATCH, N + 1, D, dtype=A.dtype, generator=generator)
    w = torch.randn(BATCH, D, 1, dtype=A.dtype, generator=generator)
    examples, query = x[:, :N], x[:, N:]
    S, residual = examples.mT @ examples / N, w
    for a in A:
        residual = residual - a @ (S @ residual)
    return (query @ residual).square().mean()


def lbfgs(start: Tensor, loss: Callable[[Tensor], Any], gap: Callable[[Tensor], float], setup: float) -> dict[str, Any]:
    """Seconds to each gap with a line search."""
    A = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [A], max_iter=1, max_eval=25, history_size=50, line_search_fn="strong_wolfe", tolerance_change=0
    )

    def closure() -> Any:
        optimiser.zero_grad()
        value = loss(symmetrise(A))
        value.backward()
        return value

    clock, least, seconds = setup, math.inf, [math.inf] * len(GAPS)
    for _ in range(100):
        begin = time.perf_counter()
        optimiser.step(closure)  # type: ignore[no-untyped-call]
        clock += time.perf_counter() - begin
        least = min(least, gap(A))
        seconds = [min(s, clock) if least <= g else s for s, g in zip(seconds, GAPS, strict=True)]
        if least < 1e-12:
            break
    return {"seconds": seconds, "least gap": least, "total": clock}


def adam(
    start: Tensor, loss: Callable[[Tensor], Any], gap: Callable[[Tensor], float], rate: float, steps: int
) -> dict[str, Any]:
    """Seconds to each gap at one step size."""
    A = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([A], lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    clock, least, seconds = 0.0, math.inf, [math.inf] * len(GAPS)
    for step in range(steps):
        begin = time.perf_counter()
        optimiser.zero_grad()
        loss(symmetrise(A)).backward()
        torch.nn.utils.clip_grad_norm_([A], 10.0)
        optimiser.step()
        schedule.step()
        clock += time.perf_counter() - begin
        if step % 10 == 9:
            least = min(least, gap(A))
            seconds = [min(s, clock) if least <= g else s for s, g in zip(seconds, GAPS, strict=True)]
    return {"seconds": seconds, "least gap": least, "total": clock}
