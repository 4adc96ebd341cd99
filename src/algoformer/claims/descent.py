"""Minima of exact losses, found by descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from algoformer.claims.attention import symmetric


def descended(loss: Callable[[Tensor], Any], start: Tensor) -> Tensor:
    """Where L-BFGS ends on a loss of symmetric matrices: on that of the symmetric part of `start`."""
    A = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [A],
        max_iter=600,
        max_eval=2000,
        history_size=50,
        tolerance_grad=1e-10,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Any:
        optimiser.zero_grad()
        value = loss(symmetric(A))
        value.backward()
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return symmetric(A.detach())
