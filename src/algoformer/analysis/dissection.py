"""Which step of which classic algorithm is each step of a model most like? All of it in one call (Fu et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.analysis.bootstrap import Bootstrap
from algoformer.analysis.compare import readings
from algoformer.analysis.match import Candidate, Matched, Verdict, match, separate
from algoformer.solvers import ConjugateGradient, GradientDescent, Newton

# k steps of Newton's iteration from a multiple of I are 2^k of gradient descent: there neither is named. Where descent
# starts, the answer is 0: what is no more like a method than like that says nothing of it.
CLASSICS: Mapping[str, Sequence[Candidate]] = {
    "Newton": [Candidate(Newton(), range(1, 41)), Candidate(Newton(start="I"), range(1, 41), mark="I")],
    "gradient descent": [Candidate(GradientDescent(form="spectral"), sorted({round(2 ** (i / 4)) for i in range(49)}))],
    "conjugate gradients": [Candidate(ConjugateGradient(), range(1, 41))],
    "zero": [Candidate(GradientDescent(), [0])],
}


@dataclass(frozen=True, eq=False)
class Dissection:
    """After each of `steps`: the answers, their match in every family, and the family that is named; in float64."""

    prompt: Any
    target: Float[Tensor, "b o k"]
    steps: list[int]
    answers: Float[Tensor, "t b o k"]
    families: Mapping[str, Sequence[Candidate]]
    matches: dict[str, Matched]
    verdicts: list[Verdict]

    @property
    def error(self) -> Float[Tensor, " t"]:
        """The squared error of each step at the last position, over the zero predictor's."""
        return self.relative(self.answers)

    def relative(self, answers: Float[Tensor, "t b o k"]) -> Float[Tensor, " t"]:
        """The same of other answers to the prompt."""
        missed = (answers - self.target)[:, :, -1].square().mean((1, 2))
        return missed / self.target[:, -1].square().mean()

    def rows(self) -> list[list[str]]:
        """For people, by step: each match as "12 (0.998)", "≥40 (0.998)" if that is the last tried; the verdict.

        Before the bracket stands the mark of a candidate that has one; "-" is no match.
        """
        return [[*(self._cell(name, i) for name in self.matches), str(v)] for i, v in enumerate(self.verdicts)]

    def _cell(self, family: str, i: int) -> str:
        match, candidates = self.matches[family], self.families[family]
        tried = {step for c in candidates for step in c.steps}
        like, step = float(match.similarity.value[i]), match.step[i]
        if isnan(like):
            return "-"
        mark = next(c.mark for c in candidates if c.algorithm is match.algorithm[i])
        shown = [f"{'≥' if step == max(tried) else ''}{step:,}"] if len(tried) > 1 else []
        return " ".join([*shown, *([mark] if mark else []), f"({like:.3f})"])


@torch.no_grad()
def dissect(
    subject: Algorithm[Any, Any],
    prompt: Any,
    target: Float[Tensor, "b o k"],
    *,
    steps: Sequence[int] | None = None,
    families: Mapping[str, Sequence[Candidate]] = CLASSICS,
    first: int = 0,
    bootstrap: Bootstrap | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Dissection:
    """Hold the errors of a model after each of `steps` (None: each it takes) against those of families, in float64.

    With `first` the answers before that position, which have fewer examples, do not count. `progress` hears how many of
    the model and the families are done, and what comes next.
    """
    wanted = list(range(1, subject.horizon(subject.prepare(prompt)) + 1) if steps is None else steps)
    if not wanted:
        raise ValueError(f"steps must hold at least one number of steps; got none of {type(subject).__name__}")
    exactly, exact = prompt.to(dtype=torch.float64), target.double()
    tell, of = progress or (lambda done, total, what: None), len(families) + 1
    tell(0, of, type(subject).__name__)
    answers = readings(subject, prompt, wanted).double()
    options: dict[str, Any] = {"first": first, "bootstrap": bootstrap}
    matches = {}
    for i, (name, family) in enumerate(families.items(), 1):
        tell(i, of, name)
        matches[name] = match(answers, family, exactly, exact, **options)
    tell(of, of, "done")
    return Dissection(exactly, exact, wanted, answers, families, matches, separate(matches, bootstrap))
