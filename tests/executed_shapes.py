"""The checker that the tests run with: shapes are executed, and nothing else.

Plain types are left to mypy, and constructors to themselves: for a wrong value the package's own error must come.
"""

from collections.abc import Callable
from typing import Any

from beartype import beartype


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    if function.__name__ == "__init__":
        return function
    kept = {name: hint for name, hint in function.__annotations__.items() if _is_shape(hint)}
    function.__annotations__ = kept
    return beartype(function) if kept else function


def _is_shape(hint: object) -> bool:
    return any(kind in repr(hint) for kind in ("Float[", "Bool[", "Int["))
