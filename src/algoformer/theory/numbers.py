"""Two arithmetics behind one syntax: float64 tensors, and object arrays of Fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algoformer.checks import whole

Array = Tensor | np.ndarray | Sequence[Any]
Number = Tensor | Fraction


def integer(name: str, value: int, least: int = 0) -> int:
    """A whole number, checked, as Python's own: NumPy's would overflow without a word."""
    whole(name, value, least)
    return int(value)


def rational(value: Any) -> Fraction:
    """A number as a Fraction of Python's own integers."""
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(value)


def trace(M: Any) -> Any:
    """The sum of the diagonal."""
    return M.diagonal().sum()


def eye(C: Any) -> Any:
    """The identity of the size and in the arithmetic of C."""
    if isinstance(C, Tensor):
        return torch.eye(len(C), dtype=C.dtype, device=C.device)
    return fractions(np.eye(len(C), dtype=int))


def unit(C: Any, n: int) -> Any:
    """1/n in the arithmetic of C."""
    n = integer("n", n, 1)
    return 1 / n if isinstance(C, Tensor) else Fraction(1, n)


def array(name: str, value: Any, axes: int) -> Any:
    """A float64 tensor as it is, anything else as an array of Fractions."""
    if isinstance(value, Tensor):
        if value.dtype != torch.float64:
            raise TypeError(f"{name} must be float64 or rational; got {value.dtype}")
        out: Any = value
    else:
        out = fractions(value)
    if out.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes; got shape {tuple(out.shape)}")
    return out


def matrices(name: str, value: Any, axes: int) -> Any:
    """A square matrix (2 axes) or a stack of them (3)."""
    out = array(name, value, axes)
    if out.shape[-2] != out.shape[-1]:
        raise ValueError(f"{name} must be square; got shape {tuple(out.shape)}")
    return out


def fractions(value: Any) -> np.ndarray:
    """The same numbers as Fractions."""
    raw: Any = np.array(value, dtype=object)
    return np.array([rational(v) for v in raw.flat], dtype=object).reshape(raw.shape)


def is_symmetric(M: Any) -> bool:
    """Whether M, or every matrix of a stack, is its transpose, up to rounding where there is any."""
    if isinstance(M, Tensor):
        M = M.detach()
        return bool(((M - M.mT).abs() <= 1e-12 * M.abs().amax()).all()) if M.numel() else True
    return bool((M.swapaxes(-1, -2) == M).all())


def covariance_matrix(value: Any, like: Any = None) -> Any:
    """A covariance matrix, checked; the identity where none is given."""
    if value is None:
        return eye(like.sum(0) if like.ndim == 3 else like)  # a stack may be empty
    C = array("covariance", value, 2)
    if like is not None and (isinstance(C, Tensor) != isinstance(like, Tensor) or C.shape != tuple(like.shape[-2:])):
        raise ValueError(f"covariance must be {tuple(like.shape[-2:])} in the arithmetic of A; got {tuple(C.shape)}")
    if C.shape[0] != C.shape[1] or not is_symmetric(C):
        raise ValueError("covariance must be symmetric")
    if not positive(C):
        raise ValueError("covariance must be positive definite")
    return C


def positive(C: Any) -> bool:
    """Whether every pivot of the symmetric matrix C is positive."""
    if isinstance(C, Tensor):
        return bool(torch.linalg.cholesky_ex(C.detach()).info == 0)
    M = C.copy()
    for i in range(len(M)):
        if M[i, i] <= 0:
            return False
        M[i + 1 :, i + 1 :] -= M[i + 1 :, i, None] * M[None, i, i + 1 :] / M[i, i]
    return True
