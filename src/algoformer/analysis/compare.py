"""How alike two algorithms are: similarity of errors and of induced weights (Fu et al. 2024, Section 4).

The metric has traps, which the functions here do not hide. The zero predictor scores 0.50 against least squares on
noiseless problems, since most of a residual is what no method can know; so a null stands beside every similarity, the
L2 distance beside the cosine, and a curve per prefix beside the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from algoformer.algorithm import Algorithm
from algoformer.checks import whole
from algoformer.prompt import Dense, Prompt


def readings(algorithm: Algorithm[Any, Any], prompt: Any, at: Iterable[int]) -> Float[Tensor, "t b o k"]:
    """The predictions after the given numbers of steps, in one run."""
    wanted = list(at)
    for step in wanted:
        whole("a step", step)
    q = algorithm.prepare(prompt)
    found: dict[int, Tensor] = {}
    needed = set(wanted)
    for t, s in enumerate(algorithm.states(q, max(wanted, default=0))):
        if t in needed:
            found[t] = algorithm.read(q, s).reshape(prompt.asked)
    return torch.stack([found[t] for t in wanted]) if wanted else algorithm.predict(q, 0).new_empty(0, *prompt.asked)


def error_similarity(
    a: Float[Tensor, "t b o k"], b: Float[Tensor, "s b o k"], target: Float[Tensor, "b o k"], first: int = 0
) -> Float[Tensor, "t s b"]:
    """The cosine of the residual sequences of each prompt, from position `first` on (Fu et al.: 1; their code: 0)."""
    _held(a, b, target, first)
    left, right = ((v - target)[:, :, first:].flatten(2) for v in (a, b))
    return torch.einsum("tbi,sbi->tsb", _unit(left), _unit(right))


def error_distance(
    a: Float[Tensor, "t b o k"], b: Float[Tensor, "s b o k"], target: Float[Tensor, "b o k"], first: int = 0
) -> Float[Tensor, "t s b"]:
    """The L2 distance of two predictions over the norm of the targets: no angle, so scale counts."""
    _held(a, b, target, first)
    left, right = (v[:, :, first:].flatten(2) for v in (a, b))
    apart: Tensor = (left[:, None] - right[None]).norm(dim=-1)
    size: Tensor = target[:, first:].flatten(1).norm(dim=-1)
    return apart / size


def prefix_similarity(
    a: Float[Tensor, "t b o k"], b: Float[Tensor, "t b o k"], target: Float[Tensor, "b o k"]
) -> Float[Tensor, "t o"]:
    """The cosine of two residuals across prompts, one value for each position: where the likeness comes from.

    Where one of the two is exact its residual is rounding, and the value at that position says nothing.
    """
    _held(a, b, target)
    left, right = ((v - target).permute(0, 2, 1, 3).flatten(2) for v in (a, b))
    return (_unit(left) * _unit(right)).sum(-1)


@dataclass(frozen=True, eq=False)
class Null:
    """What similarity means nothing: the zero predictor's, and that of noise as large as the residual itself."""

    zero: Float[Tensor, "s b"]
    noise: Float[Tensor, "s b"]


def null_similarity(
    b: Float[Tensor, "s b o k"], target: Float[Tensor, "b o k"], generator: torch.Generator, first: int = 0
) -> Null:
    """The similarities that a method must beat to say anything."""
    residual = b - target
    noise = torch.randn(residual.shape, generator=generator, dtype=b.dtype, device=b.device)
    noise = _unit(noise.flatten(2)).reshape(b.shape) * residual.flatten(2).norm(dim=-1)[..., None, None]
    zero = error_similarity(torch.zeros_like(b[:1]), b, target, first)[0]
    matched = [error_similarity(target + noise[i : i + 1], b[i : i + 1], target, first)[0, 0] for i in range(len(b))]
    return Null(zero, torch.stack(matched) if matched else zero)


@dataclass(frozen=True, eq=False)
class Induced:
    """The weights that a predictor behaves by, and how linear in the query it is: R² of that fit, 1 if exactly."""

    w: Float[Tensor, "b n d k"]
    linearity: Float[Tensor, "b n"]


def induced_weights(
    algorithm: Algorithm[Any, Any],
    dense: Dense,
    generator: torch.Generator,
    *,
    queries: int | None = None,
    steps: int | None = None,
    rows: int = 4096,
) -> Induced:
    """Fit the predictions from the first i pairs, i = 1..n, on fresh Gaussian queries (4 d of them by default).

    Read `linearity` before the weights: a model that is not linear in its query has none. `rows` prompts run at once.
    """
    prompt = _prefixes(dense, generator, queries)
    answers = torch.cat([algorithm.predict(part, steps) for part in _parts(prompt, rows)])
    return _induced(prompt, answers, dense)


def induced_trace(
    algorithm: Algorithm[Any, Any],
    dense: Dense,
    generator: torch.Generator,
    at: Iterable[int],
    *,
    queries: int | None = None,
    rows: int = 4096,
) -> list[Induced]:
    """The same after each of the given numbers of steps, in one run and on the same queries."""
    prompt, wanted = _prefixes(dense, generator, queries), list(at)
    parts = [readings(algorithm, part, wanted) for part in _parts(prompt, rows)]
    return [_induced(prompt, answers, dense) for answers in torch.cat(parts, 1)]


def _prefixes(dense: Dense, generator: torch.Generator, queries: int | None) -> Prompt:
    """The first i pairs of every prompt, i = 1..n, each with fresh queries."""
    b, n, d = dense.x.shape
    m = 4 * d if queries is None else queries
    whole("queries", m, least=d + 1)
    fresh = torch.randn(b * n, m, d, generator=generator, dtype=dense.x.dtype, device=dense.x.device)
    seen = torch.ones(n, n, dtype=torch.bool, device=dense.x.device).tril().repeat(b, 1)
    x, y = (v[:, None].expand(b, n, *v.shape[1:]).flatten(0, 1) for v in (dense.x, dense.y))
    return Prompt(x, y, fresh, seen, check=False)


def _parts(prompt: Prompt, rows: int) -> Iterator[Prompt]:
    """So many prompts at a time; one part, without prompts, of none."""
    whole("rows", rows, least=1)
    for i in range(0, max(len(prompt.x), 1), rows):
        yield prompt[i : i + rows]


def _induced(prompt: Prompt, answers: Tensor, dense: Dense) -> Induced:
    b, n, d = dense.x.shape
    w = torch.linalg.lstsq(prompt.queries, answers).solution
    left = (answers - prompt.queries @ w).square().sum((1, 2))
    total = answers.square().sum((1, 2))
    linearity = 1 - left / total.clamp(min=torch.finfo(w.dtype).tiny)
    return Induced(w.reshape(b, n, d, dense.y.shape[2]), linearity.reshape(b, n))


def weight_similarity(a: Float[Tensor, "b n d k"], b: Float[Tensor, "b n d k"]) -> Float[Tensor, " b"]:
    """The cosine of two induced weights, averaged over prefixes, for each prompt."""
    return (_unit(a.flatten(2)) * _unit(b.flatten(2))).sum(-1).mean(1)


def _held(a: Tensor, b: Tensor, target: Tensor, first: int = 0) -> None:
    """Are both answers to what the target answers, and is there one from this position on?"""
    for v in (a, b):
        if v.shape[1:] != target.shape:
            raise ValueError(f"answers must be (t, *{tuple(target.shape)}) as the target; got {tuple(v.shape)}")
    whole("first", first)
    if 0 < target.shape[1] <= first:
        raise ValueError(f"first must be below the {target.shape[1]} answers of a prompt; got {first}")


def _unit(v: Tensor) -> Tensor:
    largest = pad(v.abs(), (0, 1)).amax(-1, keepdim=True)  # squares of far smaller or larger ones have no room
    v = v / largest.where(largest > 0, 1.0)
    size: Tensor = v.norm(dim=-1, keepdim=True)
    return v / size.where(size > 0, 1.0)
