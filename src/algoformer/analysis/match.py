"""Which algorithm, after how many steps, is a model most like? (Fu et al. 2024, Section 4.2, with statistics)

A best match is a maximum over hyperparameters, and a maximum finds something. So candidates are chosen on one half of
the prompts and their similarity is reported on the other; and one family is named only if its lead over the next one,
prompt by prompt, excludes 0: by the bootstrap, which is too sure of few prompts, and by what the mean lead would be if
its signs were those of coins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.analysis.bootstrap import Band, Bootstrap
from algoformer.analysis.compare import error_similarity, readings


@dataclass(frozen=True, eq=False)
class Candidate:
    """An algorithm with the numbers of steps to try; a family is a list of them, one for each step size or ridge.

    `mark` tells it from others of its family in a table.
    """

    algorithm: Algorithm[Any, Any]
    steps: Sequence[int]
    mark: str = ""


@dataclass(frozen=True, eq=False)
class Matched:
    """For each row of a subject: the best of one family, and its similarity on prompts that did not choose it.

    `ties` counts the candidates whose similarity on the choosing half is within rounding of the best. Where every
    candidate diverges on some prompt, or the row itself does, there is no match, and the similarity is not a number.
    """

    algorithm: list[Algorithm[Any, Any]]
    step: list[int]
    ties: list[int]
    similarity: Band
    per_prompt: Float[Tensor, "t b"]


@dataclass(frozen=True, eq=False)
class Verdict:
    """The family that a row is most like, or None where its lead over the next does not exclude 0: not separated."""

    family: str | None
    lead: Band

    def __str__(self) -> str:
        return self.family or "not separated"


def match(
    subject: Float[Tensor, "t b o k"],
    family: Sequence[Candidate],
    prompt: Any,
    target: Float[Tensor, "b o k"],
    *,
    first: int = 0,
    bootstrap: Bootstrap | None = None,
) -> Matched:
    """The best candidate of a family for each row of predictions: chosen on even prompts, reported on odd ones."""
    if not family or not all(len(c.steps) for c in family):
        raise ValueError("a family must have candidates, and each a number of steps to try")
    if (target.shape[1] - first) * target.shape[2] == 1:
        raise ValueError(
            "a prompt must have 2 or more numbers to answer from `first` on, or a cosine is a sign; got 1: "
            "lower `first` or ask more of a prompt, as a dense one does"
        )
    scores = [error_similarity(subject, readings(c.algorithm, prompt, c.steps), target, first) for c in family]
    return choose(torch.cat(scores, 1), family, bootstrap=bootstrap)


def choose(
    similarity: Float[Tensor, "t c b"], family: Sequence[Candidate], *, bootstrap: Bootstrap | None = None
) -> Matched:
    """The same from similarities of any kind, to each step of each candidate in turn."""
    labels = [(c.algorithm, step) for c in family for step in c.steps]
    if similarity.shape[1] != len(labels):
        raise ValueError(f"similarity must be to the {len(labels)} steps of the family; got {similarity.shape[1]}")
    if similarity.shape[2] < 4:
        raise ValueError(f"a match needs at least 4 prompts, half of them to choose by; got {similarity.shape[2]}")
    choosing, reporting = slice(0, None, 2), slice(1, None, 2)
    mean = similarity[:, :, choosing].mean(-1)
    mean = mean.where(similarity.isfinite().all(-1), -torch.inf)  # a candidate that diverges anywhere is like nothing
    best = mean.argmax(1)  # the first, which has the fewest steps, where several are equal
    reported = similarity[torch.arange(len(similarity)), best][:, reporting]
    reported = reported.where(mean.amax(1, keepdim=True) > -torch.inf, torch.nan)
    ties = (mean >= mean.amax(1, keepdim=True) - 64 * torch.finfo(mean.dtype).eps).sum(1)
    band = (bootstrap or Bootstrap()).band(reported.mT.contiguous())
    chosen = [labels[i] for i in best.tolist()]
    return Matched([a for a, _ in chosen], [int(s) for _, s in chosen], ties.tolist(), band, reported)


def separate(families: Mapping[str, Matched], bootstrap: Bootstrap | None = None) -> list[Verdict]:
    """Name, row by row, the family with the largest similarity where it leads the next by more than chance."""
    if len(families) < 2:
        raise ValueError(f"a verdict compares at least 2 families; got {len(families)}")
    names = list(families)
    scores = torch.stack([families[name].per_prompt for name in names])  # [family t b]
    verdicts = []
    for t in range(scores.shape[1]):
        mean = scores[:, t].mean(-1)
        order = mean.where(mean.isfinite(), -torch.inf).argsort(descending=True).tolist()  # what diverged comes last
        apart, by = scores[order[0], t] - scores[order[1], t], bootstrap or Bootstrap()
        lead = by.band(apart[:, None])
        sure = float(lead.low) > torch.finfo(apart.dtype).eps ** 0.5 and _chance(apart, by) < 1 - by.level
        named = names[order[0]] if sure else None
        verdicts.append(Verdict(named, Band(lead.value[0], lead.low[0], lead.high[0])))
    return verdicts


def _chance(values: Float[Tensor, " b"], bootstrap: Bootstrap) -> float:
    """How often a mean is as far from 0 as theirs when every sign is drawn anew: a p-value, of as many draws."""
    g = torch.Generator().manual_seed(int(bootstrap.seed))
    signs = 2 * torch.randint(2, (bootstrap.draws, len(values)), generator=g).to(values) - 1
    as_far = (signs @ values).abs() >= values.sum().abs() * (1 - 1e-12)
    return (1 + int(as_far.sum())) / (1 + bootstrap.draws)


def growth(rows: Sequence[int], steps: Sequence[int]) -> tuple[float, float]:
    """Slope and standard error of log2(matched step) against the row: 1 where a row doubles the other's steps."""
    pairs = [(r, s) for r, s in zip(rows, steps, strict=True) if s > 0]
    if len(pairs) < 3:
        raise ValueError(f"a growth law needs at least 3 matched rows with a positive step; got {len(pairs)}")
    x = torch.tensor([r for r, _ in pairs], dtype=torch.float64)
    y = torch.tensor([s for _, s in pairs], dtype=torch.float64).log2()
    x = x - x.mean()
    slope = (x @ y) / (x @ x)
    left = y - y.mean() - slope * x
    return float(slope), float((left @ left / (len(pairs) - 2) / (x @ x)).sqrt())
