"""Trained weights beside constructed ones: distances that ignore scale, and the path between them (Ahn et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real


def distance_to(m: Float[Tensor, "*b d e"], target: Float[Tensor, "d e"]) -> Float[Tensor, "*b"]:
    """min over a of |M - a T|_F / |M|_F: 0 where M is a multiple of T (or is 0), 1 where it has nothing of it."""
    along = torch.einsum("...de,de->...", m, target) / target.square().sum()
    size = m.square().sum((-2, -1)).sqrt()
    left = (m - along[..., None, None] * target).square().sum((-2, -1)).sqrt()
    return left / size.where(size > 0, 1.0)


def distance_to_identity(m: Float[Tensor, "*b d d"]) -> Float[Tensor, "*b"]:
    """Ahn et al.'s Dist(M, I) = min over a of |M - a I|_F / |M|_F, with a = tr M / d."""
    return distance_to(m, torch.eye(m.shape[-1], dtype=m.dtype, device=m.device))


def whitened(a: Float[Tensor, "*b d d"], sigma: Float[Tensor, "d d"]) -> Float[Tensor, "*b d d"]:
    """Sigma^1/2 A Sigma^1/2, which is a multiple of I where A is one of Sigma^-1."""
    if not torch.allclose(sigma, sigma.mT, atol=0):
        raise ValueError(
            f"sigma must be symmetric; got one that is up to {float((sigma - sigma.mT).abs().max()):.3g} off"
        )
    values, v = torch.linalg.eigh(sigma)
    if not bool((values > 0).all()):
        raise ValueError(f"sigma must be positive definite; got an eigenvalue {float(values.min()):.3g}")
    root: Tensor = (v * values.sqrt()) @ v.mT
    return root @ a @ root


def interpolated(a: Mapping[str, Tensor], b: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """The weights (1 - share) a + share b of two state dicts of one shape; what is no real number must be the same."""
    real("share", share)
    if a.keys() != b.keys():
        raise ValueError(f"both must have the same weights; got {sorted(a.keys() ^ b.keys())} in one of them")
    for name in a:
        if a[name].shape != b[name].shape:
            raise ValueError(f"{name} must have one shape; got {tuple(a[name].shape)} and {tuple(b[name].shape)}")
        if not (a[name].is_floating_point() and b[name].is_floating_point()) and not _same(a[name], b[name]):
            raise ValueError(f"{name} holds {a[name].dtype} and must be the same in both; it differs")
    return {name: torch.lerp(v, b[name].to(v), share) if v.is_floating_point() else v for name, v in a.items()}


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b.to(a.device))
