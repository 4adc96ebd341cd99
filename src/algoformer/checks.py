"""Checks at the door: what a value must be, and what came."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from numbers import Integral, Rational, Real
from typing import Any


def whole(name: str, value: object, least: int = 0) -> None:
    """Hold a value to the whole numbers from `least` on."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")


def real(name: str, value: object, above: float = -math.inf, *, least: float = -math.inf) -> None:
    """Hold a value to the finite numbers above `above` and from `least` on."""
    exact = isinstance(value, Rational) and not isinstance(value, Integral)  # a Fraction: tensors take none
    if isinstance(value, bool) or exact or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number; got {value!r}")
    try:
        size = float(value)
    except OverflowError:
        size = math.inf
    if not (math.isfinite(size) and size > above and size >= least):
        bound = f"above {above:g}" if above > -math.inf else f"at least {least:g}" if least > -math.inf else "finite"
        finite = "" if math.isfinite(size) or bound == "finite" else "finite and "
        raise ValueError(f"{name} must be {finite}{bound}; got {value}")


def flags(config: Any) -> None:
    """Hold the fields of a dataclass that are declared bool, or bool | None, to these: "no" would be true."""
    for field in fields(config):
        value, declared = getattr(config, field.name), getattr(field.type, "__name__", field.type)
        free = declared == "bool | None" and value is None
        if str(declared).startswith("bool") and not free and type(value).__name__ not in ("bool", "bool_"):
            raise TypeError(f"{field.name} must be true or false; got {value!r}")


def number(value: object) -> int | float:
    """A number of another library, such as NumPy's, as Python's own: what JSON does not know by itself."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(
        f"a config must be made of numbers, strings and dataclasses to be saved; got {type(value).__name__}"
    )


def one_of(name: str, value: object, options: Sequence[object]) -> None:
    """Hold a value to a few options."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")


def known(name: str, value: str, options: Iterable[str]) -> str:
    """Hold a name to those there are, and tell the nearest; for lists too long to print."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be given by its name; got {value!r}")
    names = list(options)
    if value in names:
        return value
    near = get_close_matches(value, names, 3, 0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    raise ValueError(f"{name} must be one that there is; got {value!r}: {hint}")


@contextmanager
def refusals(parser: ArgumentParser) -> Iterator[None]:
    """End a command whose user's values are refused: one line on standard error, and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
