"""Newton's iteration on every prefix of a batch of prompts, against a numpy loop over prompts and prefixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algoformer.bench.timing import Table, median_seconds
from algoformer.prompt import Dense
from algoformer.solvers import Newton

PROMPTS, PREFIXES, STEPS = 64, 40, 20
GATES = {(5, "float32"): 10.0, (5, "float64"): 10.0, (20, "float32"): 3.0, (20, "float64"): 1.0}


def run() -> Iterator[Table]:
    """The ratio to numpy with its gate, then how the cost of a trace grows."""
    rows: list[list[Any]] = []
    for (d, dtype), gate in GATES.items():
        dense = _dense(d, getattr(torch, dtype))
        solver = Newton(steps=STEPS)
        ours, theirs = median_seconds(lambda: solver.predict(dense), lambda: _loop(dense))  # noqa: B023
        apart = float(np.abs(solver.predict(dense).numpy()[:, 1:] - _loop(dense)).max())
        rows.append([d, dtype, theirs / ours, gate, "yes" if theirs / ours >= gate else "no", f"{apart:.0e}"])
    yield Table(
        f"{PROMPTS} prompts, prefixes 1 to {PREFIXES}, {STEPS} Newton steps: times faster than numpy",
        ["d", "dtype", "times faster", "at least", "reached", "largest difference"],
        rows,
        ["numpy: a loop over prompts and prefixes, M = 2M - MSM. Both on one thread, in turns, median of 5."],
    )
    rows = []
    for name, sizes in (("steps", (25, 50, 100, 200)), ("batch", (16, 32, 64, 128))):
        first, *_ = taken = median_seconds(*(_trace(**{name: size}) for size in sizes))
        rows += [[name, size, t / first] for size, t in zip(sizes, taken, strict=True)]
    yield Table(
        "The cost of a dense trace, relative to the first row of its kind (d = 20, float64)",
        ["of", "size", "times"],
        rows,
        ["Steps cost a scalar recursion and a reading each; the decomposition before them is paid once."],
    )


def _trace(steps: int = STEPS, batch: int = PROMPTS) -> Callable[[], Any]:
    dense, solver = _dense(20, torch.float64, batch), Newton(steps=steps)
    return lambda: solver.trace(dense)


def _dense(d: int, dtype: torch.dtype, batch: int = PROMPTS) -> Dense:
    g = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*shape, generator=g, dtype=dtype) for shape in ((batch, PREFIXES + 1, d), (batch, d, 1)))
    return Dense(x, x @ w)


def _loop(dense: Dense) -> NDArray[Any]:
    x, y = dense.x.numpy(), dense.y.numpy()
    out = np.empty((len(x), PREFIXES, 1), x.dtype)
    for i in range(len(x)):
        for n in range(1, PREFIXES + 1):
            S = x[i, :n].T @ x[i, :n]
            M = S / np.linalg.norm(S, 2) ** 2
            for _ in range(STEPS):
                M = 2 * M - M @ S @ M
            out[i, n - 1] = x[i, n] @ (M @ (x[i, :n].T @ y[i, :n]))
    return out
