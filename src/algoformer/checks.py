"""Checks at the door: what a value must be, and what came."""

from __future__ import annotations

import math
from collections.abc import Sequence


def whole(name: str, value: object, least: int = 0) -> None:
    """Hold a value to the whole numbers from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")


def real(name: str, value: object, above: float = -math.inf, *, least: float = -math.inf) -> None:
    """Hold a value to the finite numbers above `above` and from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number; got {value!r}")
    if not (math.isfinite(value) and value > above and value >= least):
        bound = f"above {above:g}" if above > -math.inf else f"at least {least:g}" if least > -math.inf else "finite"
        raise ValueError(f"{name} must be {bound}; got {value}")


def one_of(name: str, value: object, options: Sequence[object]) -> None:
    """Hold a value to a few options."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")
