"""A scalar function as one hidden layer of ReLUs: a piecewise-linear interpolant with knots placed by curvature.

Equidistributing sqrt|f''| makes every piece equally wrong, O(1/N^2) for N hinges, also where f'' is unbounded (a
square root), where equal knots and the level sets of Giannou et al. 2024 are O(1/sqrt N) and O(1/N). A kink inside
the interval is in no f'': there it is O(1/N); nor is a jump, where the error stays at least half of it, on a piece of
width O(1/N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_GRID = 1 << 15


class Hinges(NamedTuple):
    """f(x) ~ constant + sum_k out_k relu(slope_k x + offset_k)."""

    slope: Float[Tensor, " f"]
    offset: Float[Tensor, " f"]
    out: Float[Tensor, " f"]
    constant: float


def hinges(function: Callable[[Tensor], Tensor], domain: tuple[float, float], count: int) -> Hinges:
    """At most `count` hinges for a function on an interval, none steeper in effect than where it is used.

    Hinges open away from the flattest piece, to the left on its left and to the right on its right, so that a steep
    piece is off wherever the function is flat: no large numbers cancel.
    """
    t = _knots(function, domain, count)
    v = function(t)
    if not bool(v.isfinite().all()):
        raise ValueError(f"a table must be of a function that is finite on its domain {domain}; got {v.tolist()}")
    middle = (t[1:] + t[:-1]) / 2
    excess = (v[1:] + v[:-1]) / 2 - function(middle)  # of the chord over the function, one sign a piece
    near = torch.cat([excess[:1], excess, excess[-1:]])
    v = v - (near[1:] + near[:-1]) / 4  # half of it, so that the error is as large below as above
    slope = (v[1:] - v[:-1]) / (t[1:] - t[:-1])
    flat = int(slope.abs().argmin())
    base, change = t[flat], slope[1:] - slope[:-1]
    right = torch.cat([base[None], t[flat + 1 : -1]])
    left = torch.cat([base[None], t[1:flat]]) if flat else base[None]
    out_right = torch.cat([slope[flat][None], change[flat:]])
    first = -slope[flat - 1] if flat else -slope[0]
    out_left = torch.cat([first[None], change[: flat - 1]]) if flat else first[None]
    return Hinges(
        torch.cat([torch.ones_like(right), -torch.ones_like(left)]),
        torch.cat([-right, left]),
        torch.cat([out_right, out_left]),
        float(v[flat]),
    )


def _knots(function: Callable[[Tensor], Tensor], domain: tuple[float, float], count: int) -> Tensor:
    """count knots, the quantiles of sqrt|f''|, on a grid refined towards both ends where it may be unbounded."""
    low, high = domain
    s = (torch.arange(_GRID, dtype=torch.float64) + 0.5) / _GRID
    edges = torch.linspace(0, 1, _GRID + 1, dtype=torch.float64)

    def graded(u: Tensor) -> Tensor:  # u^8 near 0, 1 - (1 - u)^8 near 1
        return low + (high - low) * u**8 / (u**8 + (1 - u) ** 8)

    with torch.enable_grad():
        x = graded(s).requires_grad_()
        second = _derivative(_derivative(function(x), x), x)
    cells = graded(edges)
    density = second.detach().abs().sqrt().nan_to_num(0.0, 0.0, 0.0) + 1e-9  # of a grid that rounds onto an end
    mass = torch.cat([density.new_zeros(1), (density * (cells[1:] - cells[:-1])).cumsum(0)])
    wanted = torch.linspace(0, 1, count, dtype=torch.float64) * mass[-1]
    at = torch.searchsorted(mass, wanted).clamp(1, _GRID)
    share = (wanted - mass[at - 1]) / (mass[at] - mass[at - 1])
    knots = cells[at - 1] + share * (cells[at] - cells[at - 1])
    knots[0], knots[-1] = low, high
    distinct: Tensor = torch.unique(knots)
    return distinct


def _derivative(y: Tensor, x: Tensor) -> Tensor:
    """dy/dx, entry by entry; 0 where y does not depend on x but by jumps."""
    if not y.requires_grad:
        return torch.zeros_like(x)
    try:
        return torch.autograd.grad(y.sum(), x, create_graph=True, materialize_grads=True)[0]
    except RuntimeError as error:
        raise ValueError(f"a table must be of a function that torch can differentiate twice; got: {error}") from error
