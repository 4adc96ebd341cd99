"""Several models on one task under the protocol, against steps, training FLOPs and parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from algoformer.experiments import estimate
from algoformer.experiments.drawing import COLOURS, axes, counted, key, whole_numbers
from algoformer.experiments.experiment import Claim, Site, excess, stated
from algoformer.experiments.protocol import FLAT, LEAST, VALIDATION, WATCHED, at, fall, measured, oracles, zeros
from algoformer.experiments.softmax import Rate, Softmax
from algoformer.task import Task
from algoformer.training import Recipe
from algoformer.training.evaluation import final, links

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Curves = list[list[float]]  # by state of a chain of thought (one of other tasks), and examples seen
ENDS = {"stuck": "stuck at half time", "diverged": "diverged"}  # what the key of a figure says of runs


class Entrant(NamedTuple):
    """A model of a comparison: its config, the window of its loss, and what of its training is not that of all.

    `like` names the one whose learning rate it takes, without pilots of its own; a rate among `how` needs none either.
    """

    model: Any
    window: int | None = None
    how: Mapping[str, Any] = MappingProxyType({})
    like: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison(Softmax):
    """AlgoFormer, looped and standard transformer on one task."""

    problem: str = stated("representation")
    loops: int = stated(20)
    window: int = stated(15)
    layers: int = stated(12)

    @property
    def subject(self) -> Task[Any]:
        """The task."""
        return self.task(self.problem)

    @property
    def entrants(self) -> dict[str, Entrant]:
        """The models by name; the first is held against the others."""
        task = self.subject
        return {
            "AlgoFormer": Entrant(self.algoformer(task, self.loops), self.window),
            "looped": Entrant(self.looped(task, self.loops), self.window),
            "standard": Entrant(self.standard(task, self.layers)),
        }

    def choice(self, name: str, site: Site) -> Rate:
        """The learning rate of an entrant: its own, or by its pilots or those of the one it is like."""
        e = self.entrants[name]
        if "lr" in e.how:
            return Rate(e.how["lr"], {})
        piloted = self.entrants[e.like or name]
        return self.rate(piloted.model, self.subject, site, window=piloted.window)

    def chosen(self, name: str, site: Site, steps: int | None = None) -> Recipe:
        """The training of an entrant at the rate that pilots chose, for its own number of steps if not for others."""
        return self._training(self.entrants[name], lr=self.choice(name, site).lr, steps=steps)

    def recipes(self) -> Iterator[Recipe]:
        """All trainings, pilots first; the learning rate of the others is open until then."""
        for e in self.entrants.values():
            if e.like is None and "lr" not in e.how:
                yield from self.pilots(e.model, self.subject, window=e.window)
        for e in self.entrants.values():
            yield self._training(e)

    def _training(self, e: Entrant, **given: Any) -> Recipe:
        return replace(self, **e.how).recipe(e.model, self.subject, window=e.window, **given)


@dataclass(frozen=True, kw_only=True)
class Race:
    """By model: errors before noise on the test prompts, the learning curve, and what it cost.

    A curve is {"step", "last", "mean"}: the excess over the oracle's error, as a share of the way to the zero
    predictor's, at the last position and in the mean over positions, on the prompts of validation. `pilots` are the
    errors of the learning rates that were tried, `flops` those of a step.
    """

    errors: dict[str, Curves]
    oracle: Curves
    zero: Curves
    outcomes: dict[str, str]
    curves: dict[str, dict[str, list[float]]]
    rates: dict[str, float]
    pilots: dict[str, dict[str, float]]
    flops: dict[str, float]
    parameters: dict[str, int]


def race(config: Comparison, site: Site) -> Race:
    """Choose learning rates, train or load, and test all on the same prompts."""
    task = config.subject
    floor, zero = oracles(task, site, WATCHED, VALIDATION), zeros(task, WATCHED, VALIDATION)
    parts: dict[str, dict[str, Any]] = {
        name: {} for name in Race.__dataclass_fields__ if name not in ("oracle", "zero")
    }
    for name in config.entrants:
        rate, recipe = config.choice(name, site), config.chosen(name, site)
        found = measured(recipe, site, fresh=config.train, prompts=config.prompts, purpose=name)
        parts["errors"][name] = _curves(task, found.errors[-1])
        parts["outcomes"][name] = found.outcome
        parts["curves"][name] = {
            "step": [float(s) for s in found.steps],
            "last": [excess(v, final(task, floor), final(task, zero)) for v in found.last],
            "mean": [excess(v, _mean(floor), _mean(zero)) for v in found.mean],
        }
        parts["rates"][name] = rate.lr
        own = config.entrants[name].like is None
        parts["pilots"][name] = {f"{lr:g}": error for lr, error in rate.tried.items() if own}
        parts["flops"][name] = float(estimate.flops(recipe))
        parts["parameters"][name] = estimate.parameters(recipe)
    prompts = config.prompts
    return Race(
        oracle=_curves(task, oracles(task, site, prompts)), zero=_curves(task, zeros(task, prompts)), **parts
    )  # fmt: skip


def below(result: Race, first: str, other: str, source: str) -> list[Claim]:
    """The claims that one model is below another: against steps, twice, and, which are ours, FLOPs and parameters."""
    names = {first: first, other: f"'{other}'"} | {name: f"the {name} transformer" for name in ("looped", "standard")}
    mine, rival = names[first], names[other]
    errors = above(result, first), above(result, other)
    means = above(result, first, mean=True), above(result, other, mean=True)
    spent = [result.flops[name] * result.curves[name]["step"][-1] for name in (first, other)]
    cheap = [at(line(result, name), min(spent) / result.flops[name]) for name in (first, other)]
    smaller = result.parameters[first] <= result.parameters[other]
    ratio = "log10 of the ratio of their errors above the oracle's, below 0"

    def claim(whose: str, text: str, pair: tuple[float, ...], **more: Any) -> Claim:
        a, b = (math.log10(max(v, LEAST)) for v in pair)
        return Claim(text=text, source=whose, measured=a - b, sense="<", bound=0.0, errors=pair, paired=True, **more)

    return [
        claim(source, f"{mine} is below {rival} after as many steps ({ratio})", errors),
        claim(source, f"the same in the mean over positions: {mine}, {rival}", means),
        claim("ours", f"against training FLOPs: {mine} is below {rival} when both have spent as many", tuple(cheap)),
        claim(
            "ours",
            f"against parameters: {mine} is below {rival} with no more of them "
            f"({_millions(result, first)} and {_millions(result, other)})",
            errors,
            comparable=smaller,
        ),
    ]


def first_of_all(result: Race, source: str) -> list[Claim]:
    """The claims that the first model is below every other, against each axis, and that training had flattened."""
    first, *others = result.errors
    return [*(claim for other in others for claim in below(result, first, other, source)), flattened(result)]


def flattened(result: Race) -> Claim:
    """The claim that no error still falls; where noise is most of it, what is above the oracle's may all the same."""
    floor = last(result.oracle) / last(result.zero)
    falls = []
    for name in result.curves:
        steps, excesses = line(result, name)
        falls.append(fall((steps, [floor + (1 - floor) * v for v in excesses])))
    return Claim(
        text=f"every error has flattened: over the last third of the steps none falls by more than {FLAT:.0%}",
        source="ours",
        measured=max(falls),
        sense="<",
        bound=FLAT,
    )


def above(result: Race, name: str, *, mean: bool = False) -> float:
    """How far a model is above the oracle on the test prompts, as a share of the way to the zero predictor."""
    reduce = _overall if mean else last
    return excess(reduce(result.errors[name]), reduce(result.oracle), reduce(result.zero))


def last(curves: Curves) -> float:
    """The error with all examples seen."""
    return sum(curve[-1] for curve in curves) / len(curves)


def numbers(results: Sequence[Race]) -> tuple[list[str], list[list[str]]]:
    """A table of every model: its errors by seed, what it cost, what became of it, and its pilots."""
    columns = [
        "model", "error at the last position, by seed", "mean over positions", "above the oracle, last", "mean",
        "parameters", "training FLOPs", "outcome", "lr (errors of the pilots)",
    ]  # fmt: skip
    rows = []
    for name, lr in results[0].rates.items():
        pilots = ", ".join(f"{rate}: {error:.3g}" for rate, error in results[0].pilots[name].items())
        spent = results[0].flops[name] * results[0].curves[name]["step"][-1]
        rows.append(
            [
                name,
                by_seed(last(r.errors[name]) / last(r.zero) for r in results),
                by_seed(_overall(r.errors[name]) / _overall(r.zero) for r in results),
                by_seed(above(r, name) for r in results),
                by_seed(above(r, name, mean=True) for r in results),
                f"{results[0].parameters[name]:,}",
                f"{spent:.3g}",
                ", ".join(r.outcomes[name] for r in results),
                f"{lr:g}" + (f" ({pilots})" if pilots else ""),
            ]
        )
    return columns, rows


def draw(result: Race) -> Figure:
    """Errors by examples seen, and learning curves against steps and FLOPs."""
    return draw_all([result])


def draw_all(results: Sequence[Race]) -> Figure:
    """The same of several seeds, a line for each; the key says how many are stuck or diverged."""
    fig, (left, middle, right) = axes(14.5, 4.0, columns=3)
    first = results[0]
    thin: dict[str, Any] = {"linewidth": 1.8 if len(results) == 1 else 1.0}
    known = [i for i, v in enumerate(first.zero[0]) if v > 0]  # the first values of a series are noise alone
    for name, curves in {"zero predictor": first.zero, "oracle": first.oracle}.items():
        _examples(left, known, curves, label=name, color="#888888", linestyle=":" if name == "oracle" else "--")
    for name, colour in zip(first.errors, COLOURS, strict=False):
        outcomes = Counter(r.outcomes[name] for r in results)
        ends = [f"{outcomes[what]} of {len(results)} {told}" for what, told in ENDS.items() if outcomes[what]]
        keys = name, ", ".join([name, f"lr {first.rates[name]:g}", *ends]), _millions(first, name)
        for result in results:
            by_example, by_step, by_flop = keys if result is first else (None, None, None)
            steps, errors = line(result, name)
            shown = [max(v, LEAST) for v in errors]
            _examples(left, known, result.errors[name], label=by_example, color=colour, **thin)
            middle.loglog(steps, shown, color=colour, label=by_step, **thin)
            right.loglog([s * result.flops[name] for s in steps], shown, color=colour, label=by_flop, **thin)
    least = min(curve[i] for r in results for curves in r.errors.values() for curve in curves for i in known)
    left.set(xlabel="examples seen", ylabel="squared error before noise", yscale="log")
    if len(first.zero) > 1:
        left.set_title("a line for each state, paler the later", fontsize=9)
    left.set_ylim(max(least, LEAST) / 2, 2 * max(map(max, first.zero)))
    whole_numbers(left)
    middle.set(xlabel="steps", ylabel="excess over the oracle / zero predictor's")
    counted(middle)
    right.set(xlabel="training FLOPs")
    for ax in (left, middle, right):
        key(ax)
    return fig


def _examples(ax: Any, where: list[int], curves: Curves, label: str | None, **style: Any) -> None:
    """A line for each state of a chain of thought, paler by its place."""
    for i, curve in enumerate(curves):
        shown = [curve[n] for n in where]
        ax.plot(where, shown, alpha=1 - 0.75 * i / len(curves), label=label if i == 0 else None, **style)


def by_seed(values: Iterable[float]) -> str:
    """Numbers of several seeds as a table shows them."""
    return ", ".join(f"{v:.3g}" for v in values)


def line(result: Race, name: str) -> tuple[list[int], list[float]]:
    """The learning curve of a model: steps, and how far it was above the oracle at the last position."""
    curve = result.curves[name]
    return [round(s) for s in curve["step"]], curve["last"]


def _curves(task: Any, asked: list[float]) -> Curves:
    return [asked[i :: links(task)] for i in range(links(task))]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _overall(curves: Curves) -> float:
    return _mean([v for curve in curves for v in curve])


def _millions(result: Race, name: str) -> str:
    return f"{result.parameters[name] / 1e6:.2g} M parameters"
