"""The checker of shapes and types that the tests run with.

An int may stand where a float is wanted. Constructors are left alone: their own errors are what a user must see.
"""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

_strict = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    return function if function.__name__ == "__init__" else _strict(function)
