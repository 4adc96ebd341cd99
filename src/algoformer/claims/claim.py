"""What a claim is: a statement, a measurement, and a judge that sees only the measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from inspect import getdoc

Numbers = Mapping[str, float]


class Kind(StrEnum):
    """How the numbers were come by."""

    DERIVED = "derived"  # a proof, and numbers that would contradict it
    EXACT = "exact at sizes"  # exact arithmetic, or float64 to rounding, at the sizes named
    SAMPLED = "sampled"  # random instances or prompts


class Verdict(StrEnum):
    """What the numbers say about the statement as printed."""

    HOLDS = "holds"
    CORRECTED = "holds corrected"
    VACUOUS = "vacuous"
    FAILS = "fails"
    OPEN = "open"


@dataclass(frozen=True)
class Evidence:
    """Measured numbers and their kind."""

    kind: Kind
    numbers: Numbers


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement and its source; `measure` computes evidence, `judge` is a pure function of it.

    `derivation` says in a few lines why the verdict is what it is, and how to check it by hand. A cheap claim takes
    less than about two seconds.
    """

    id: str
    source: str
    statement: str
    derivation: str
    cheap: bool
    measure: Callable[[], Evidence]
    judge: Callable[[Evidence], Verdict]


Condition = Callable[[Numbers], bool]


def claim(
    id: str,
    source: str,
    statement: str,
    *,
    kind: Kind,
    holds: Condition,
    corrected: Condition | None = None,
    vacuous: Condition | None = None,
    undecided: Condition | None = None,
    cheap: bool = True,
) -> Callable[[Callable[[], Numbers]], Claim]:
    """Make a claim of a function that measures its numbers and whose docstring is the derivation.

    The conditions are asked in the order undecided, vacuous, holds, corrected; where none is true the claim fails. What
    is vacuous must be true too.
    """

    def judge(evidence: Evidence) -> Verdict:
        for condition, verdict in (
            (undecided, Verdict.OPEN),
            (vacuous and (lambda m: vacuous(m) and holds(m)), Verdict.VACUOUS),
            (holds, Verdict.HOLDS),
            (corrected, Verdict.CORRECTED),
        ):
            if condition is not None and condition(evidence.numbers):
                return verdict
        return Verdict.FAILS

    def make(measured: Callable[[], Numbers]) -> Claim:
        def measure() -> Evidence:
            return Evidence(kind, {name: float(value) for name, value in measured().items()})

        return Claim(
            id=id,
            source=source,
            statement=statement,
            derivation=getdoc(measured) or "",
            cheap=cheap,
            measure=measure,
            judge=judge,
        )

    return make
