"""What a state knows: closed-form linear probes from features of a state to any target.

A probe is fitted on some prompts and judged on others, and says little alone: the same probe on the embedding (state 0)
and on an untrained model is what it must beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm

STRENGTHS = (1e-6, 1e-4, 1e-2, 1.0, 100.0)


@dataclass(frozen=True, eq=False)
class Probe:
    """An affine map from features to targets, fitted by ridge on standardised features."""

    centre: Float[Tensor, " f"]
    scale: Float[Tensor, " f"]
    w: Float[Tensor, "f g"]
    offset: Float[Tensor, " g"]

    def __call__(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b g"]:
        """The targets that the features tell of."""
        return (features - self.centre) / self.scale @ self.w + self.offset


def fit(features: Float[Tensor, "b f"], target: Float[Tensor, "b g"], strengths: Sequence[float] = STRENGTHS) -> Probe:
    """Ridge, its strength chosen on the last quarter of the prompts and then fitted on all of them."""
    if len(features) < 8:
        raise ValueError(f"a probe needs at least 8 prompts; got {len(features)}")
    cut = 3 * len(features) // 4
    tried = _ridges(features[:cut], target[:cut], strengths)
    held = [r_squared(one(features[cut:]), target[cut:]) for one in tried]
    return _ridges(features, target, [strengths[max(range(len(held)), key=held.__getitem__)]])[0]


def r_squared(guess: Float[Tensor, "b g"], target: Float[Tensor, "b g"]) -> float:
    """The share of the target's variance that a guess explains; 0 for its mean, negative for worse.

    A target that is constant has none: 1 for a guess that is right everywhere, else 0, as scikit-learn has it.
    """
    if (target == target[:1]).all():
        return float((guess == target).all())
    return float(1 - (guess - target).square().sum() / (target - target.mean(0)).square().sum())


@dataclass(frozen=True)
class Probed:
    """R² on unseen prompts at every state, of the model, of its embedding, and of an untrained model."""

    model: list[float]
    embedding: float
    untrained: list[float] | None

    @property
    def above(self) -> list[float]:
        """R² above the better of the two controls."""
        others = self.untrained or [self.embedding] * len(self.model)
        return [r - max(self.embedding, other) for r, other in zip(self.model, others, strict=True)]


def probe(
    algorithm: Algorithm[Any, Any],
    train: tuple[Any, Float[Tensor, "b g"]],
    test: tuple[Any, Float[Tensor, "c g"]],
    features: Callable[[Any], Float[Tensor, "_ f"]],
    *,
    steps: int | None = None,
    untrained: Algorithm[Any, Any] | None = None,
) -> Probed:
    """Probe every state of an algorithm: `train` and `test` are a prompt and what its states may know, row by row."""
    scores = _scores(algorithm, train, test, features, steps)
    other = None if untrained is None else _scores(untrained, train, test, features, steps)
    return Probed(scores, scores[0], other)


def _scores(
    algorithm: Algorithm[Any, Any],
    train: tuple[Any, Tensor],
    test: tuple[Any, Tensor],
    features: Callable[[Any], Tensor],
    steps: int | None,
) -> list[float]:
    with torch.no_grad():
        prompts = (algorithm.prepare(p) for p, _ in (train, test))
        known, asked = ([features(s).double() for s in algorithm.states(p, steps)] for p in prompts)
    return [r_squared(fit(a, train[1].double())(b), test[1].double()) for a, b in zip(known, asked, strict=True)]


def _ridges(features: Tensor, target: Tensor, strengths: Sequence[float]) -> list[Probe]:
    """Ridge of each strength, from one factorisation: the triangle of [x y] has the same normal equations."""
    centre, offset = features.mean(0), target.mean(0)
    scale = features.std(0)
    scale = scale.where(scale > 1e-12 * scale.amax().clamp(min=1e-300), 1.0)
    both = torch.cat([(features - centre) / scale, target - offset], 1)
    x, y = torch.linalg.qr(both, mode="r").R.split([features.shape[1], target.shape[1]], 1)
    eye, none = torch.eye(x.shape[1], dtype=x.dtype, device=x.device), y.new_zeros(x.shape[1], y.shape[1])
    made = []
    for strength in strengths:
        rows = torch.cat([x, (strength * len(features)) ** 0.5 * eye])
        w = torch.linalg.lstsq(rows, torch.cat([y, none])).solution
        made.append(Probe(centre, scale, w, offset))
    return made
