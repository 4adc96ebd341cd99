"""What an experiment is made of, and how its claims are judged."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from algoformer.checks import one_of
from algoformer.experiments.clock import Clock
from algoformer.experiments.ledger import Ledger

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

T = TypeVar("T")

PRESETS = ("smoke", "cpu", "gpu", "paper")
ABLE = 0.5  # of the zero predictor's error: a model that is not below it has not learned what is compared
OTHER = "ours, at this scale"  # where a value comes from that is not the paper's
SEEDS = 3  # fewer runs than this show no spread


def stated(value: T) -> T:
    """A field of a Config whose value the paper states."""
    return _marked(value, "stated")


def coded(value: T) -> T:
    """A field whose value is in the authors' code alone."""
    return _marked(value, "authors' code")


def assumed(value: T) -> T:
    """A field on which paper and code are silent, or whose value is ours."""
    return _marked(value, "assumed")


def _marked(value: T, source: str) -> T:
    return dataclasses.field(default=value, metadata={"source": source})


def settings(config: Any) -> list[tuple[str, Any, str]]:
    """Name, value and source of every field; a value that is not the paper's is marked ours."""
    rows = []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        rows.append((f.name, value, str(f.metadata["source"]) if value == f.default else OTHER))
    return rows


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a run happens: its seed and device, where models and answers are kept, and what an unfinished run left.

    `clock` is the time it has, and `ledger` what it tells of every training that it starts.
    """

    seed: int = 0
    device: str = "cpu"
    models: Path | None = None
    answers: Path | None = None
    folder: Path | None = None
    clock: Clock = Clock()  # noqa: RUF009  # frozen
    ledger: Ledger | None = None

    def generator(self, stream: str = "") -> torch.Generator:
        """A generator that is a function of the seed and of what it is for."""
        import torch

        # torch takes 32 bits of a seed on a CPU: both must go into them
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {stream}".encode()))


class Missing(Exception):  # a fact, not an error: what a run cannot do at this scale
    """A run needs what is not there, such as a trained model that its preset does not train."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An inequality about one result: `measured` must be below, or above, `bound`.

    `errors` are the errors of the models that it compares, relative to the zero predictor's (where noise is most of it,
    their `excess`): where one is not below one half, nothing was tested. `exact` numbers have no luck in them, and one
    run is enough. `paired` is a difference of two models that saw the same data: it holds when the 95 % t-interval of
    its mean over seeds does, and a seed that got stuck or diverged counts with the rest as long as each model has
    learned in one. Without `comparable` there is nothing to
    test.
    """

    text: str
    source: str
    measured: float
    sense: Literal["<", ">"]
    bound: float
    errors: tuple[float, ...] = ()
    exact: bool = False
    paired: bool = False
    comparable: bool = True

    def __post_init__(self) -> None:
        one_of("sense", self.sense, ("<", ">"))

    @property
    def margin(self) -> float:
        """How far it is from failing; negative where it fails."""
        return self.bound - self.measured if self.sense == "<" else self.measured - self.bound

    @property
    def holds(self) -> bool:
        """Is the inequality true? Not where the measured value is not a number."""
        return self.margin > 0

    @property
    def tested(self) -> bool:
        """Had every model that is compared learned its task?"""
        return all(e < ABLE for e in self.errors)


def excess(error: float, floor: float, zero: float) -> float:
    """How far an error is from the oracle's, its floor, towards the zero predictor's: 0 at the first, 1 at the other.

    Where noise is most of what is asked no error is below half of the zero predictor's; half of the way is the same
    demand there.
    """
    return (error - floor) / (zero - floor)


class Verdict(StrEnum):
    """What a claim came to."""

    HOLDS = "holds"
    FAILS = "fails"
    UNTESTED = "not tested at this scale"
    ONE = "one run each"


@dataclass(frozen=True)
class Judgement:
    """A claim over all its runs: the measured values, the least margin, in how many runs it holds, and the verdict.

    Of a paired one `interval` is that of the mean, and the margin is its distance from the bound.
    """

    text: str
    source: str
    sense: str
    bound: float
    measured: tuple[float, ...]
    margin: float
    held: int
    verdict: Verdict
    interval: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        """The verdict as printed."""
        if self.verdict == Verdict.ONE:
            return f"{self.verdict}: {'held' if self.held == len(self.measured) else 'did not hold'}"
        if self.verdict == Verdict.FAILS and self.interval and self.interval[0] < self.bound < self.interval[1]:
            return f"{self.verdict}: not separated"
        return str(self.verdict)


def judge(runs: Sequence[Sequence[Claim]], *, smoke: bool = False) -> list[Judgement]:
    """The claims of several runs of one config, one list a seed. A claim holds if it does in every run.

    A smoke run tests the code and no claim, unless its numbers are exact.
    """
    if not runs:
        return []
    texts = [[c.text for c in claims] for claims in runs]
    if any(other != texts[0] for other in texts):
        raise ValueError("the runs of one config must make the same claims")
    return [_judged(list(same), smoke) for same in zip(*runs, strict=True)]


def _judged(same: list[Claim], smoke: bool) -> Judgement:
    first, held = same[0], sum(c.holds for c in same)
    exact, interval = all(c.exact for c in same), None
    margins = [c.margin for c in same]
    least = math.nan if any(math.isnan(m) for m in margins) else min(margins)
    if first.paired:
        tested = all(any(e < ABLE for e in model) for model in zip(*(c.errors for c in same), strict=True))
        if len(same) >= SEEDS:
            interval = t_interval([c.measured for c in same])
            least = first.bound - interval[1] if first.sense == "<" else interval[0] - first.bound
        holds = least > 0
    else:
        tested, holds = all(c.tested for c in same), held == len(same)
    if not tested or not all(c.comparable for c in same) or (smoke and not exact):
        verdict = Verdict.UNTESTED
    elif len(same) < SEEDS and not exact:
        verdict = Verdict.ONE
    else:
        verdict = Verdict.HOLDS if holds else Verdict.FAILS
    measured = tuple(c.measured for c in same)
    return Judgement(first.text, first.source, first.sense, first.bound, measured, least, held, verdict, interval)


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The interval of Student's t for the mean of a few values."""
    from scipy.stats import t

    n = len(values)
    mean = sum(values) / n
    spread = (sum((v - mean) ** 2 for v in values) / (n - 1) / n) ** 0.5
    room = float(t.ppf((1 + level) / 2, n - 1)) * spread
    return mean - room, mean + room


@dataclass(frozen=True, kw_only=True)
class Knob:
    """Curves that change as a slider moves: `lines[name][i]` are the values over x at position i of the slider."""

    label: str
    values: Sequence[float]
    x: Sequence[float]
    lines: Mapping[str, Sequence[Sequence[float]]]
    xlabel: str
    ylabel: str
    log: bool = False
    logx: bool = False
    caption: str = ""

    def __post_init__(self) -> None:
        for name, rows in self.lines.items():
            if len(rows) != len(self.values) or any(len(row) != len(self.x) for row in rows):
                raise ValueError(f"{name} must be {len(self.values)} rows of {len(self.x)} values")


class Experiment(Protocol):
    """The module of one figure."""

    REVISION: int
    Config: Any
    Result: Any
    SMOKE: Any
    CPU: Any
    GPU: Any
    PAPER: Any

    def run(self, config: Any, site: Site) -> Any:
        """Sample, train, measure."""

    def claims(self, result: Any) -> list[Claim]:
        """The figure as inequalities."""

    def plot(self, result: Any) -> Figure:
        """Draw; compute nothing."""


def preset(experiment: Experiment, name: str) -> Any:
    """The config of a preset."""
    one_of("preset", name, PRESETS)
    return getattr(experiment, name.upper())


def scale(experiment: Experiment, config: Any) -> str:
    """The largest preset that this config is, or "other"."""
    return next((name for name in reversed(PRESETS) if preset(experiment, name) == config), "other")


def title(experiment: Experiment) -> tuple[str, str, str]:
    """Paper, figure and what it shows, from the first line of the module: "Fu et al. 2024, Figure 26: ..."."""
    first = (experiment.__doc__ or "").strip().split("\n")[0]
    source, _, what = first.partition(": ")
    paper, _, figure = source.partition(", ")
    return paper, figure, what.rstrip(".")
