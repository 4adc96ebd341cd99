"""Maps of likeness, layer by step (Fu et al. 2024): which step of which algorithm is each layer most like?

Matches are chosen on half of the prompts and reported on the other; a family is named only where its lead over the next
excludes 0; and a null stands beside all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algoformer import analysis
from algoformer.experiments.drawing import COLOURS, heat, key, panels
from algoformer.experiments.experiment import Claim, Site
from algoformer.experiments.layers import Read
from algoformer.prompt import Dense

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Families = Mapping[str, analysis.Candidate]


@dataclass(frozen=True, kw_only=True)
class Maps:
    """By family: the steps tried, the map [layer][step], the match of each layer and its similarity elsewhere.

    Over the middle half of the layers the matched step grows by `slopes` a layer, its log2 by `doublings`; `straight`
    is the R² of the first line. Layers matched with the last step tried are left out, and where fewer than two are
    left there is no number. `null` is what similarity means nothing, by layer.
    """

    error: float
    steps: dict[str, list[int]]
    similarity: dict[str, list[list[float]]]
    best: dict[str, list[int]]
    best_similarity: dict[str, list[float]]
    verdicts: list[str]
    null: list[float]
    slopes: dict[str, float]
    doublings: dict[str, float]
    straight: dict[str, float]


def error_maps(found: Read, families: Families, site: Site) -> Maps:
    """The maps of the similarity of errors, with the zero predictor's as the null."""
    prompt, target, rows = found.prompt, found.prompt.y, found.answers[1:]
    scores = {
        name: analysis.error_similarity(rows, analysis.readings(c.algorithm, prompt, c.steps), target)
        for name, c in families.items()
    }
    zero = analysis.null_similarity(rows, target, site.generator()).zero.mean(-1)
    return maps(scores, families, error=float(found.errors[-1]), null=zero.tolist(), site=site)


def weight_maps(w: Tensor, pairs: Dense, families: Families, *, error: float, site: Site) -> Maps:
    """The maps of the similarity of induced weights [layer b n d k]; the null is another prompt's of the last step."""
    scores: dict[str, Tensor] = {}
    null: list[float] = []
    for name, c in families.items():
        known = [f.w for f in analysis.induced_trace(c.algorithm, pairs, site.generator("queries"), c.steps)]
        rows = [torch.stack([analysis.weight_similarity(layer, other) for other in known]) for layer in w]
        scores[name] = torch.stack(rows)
        null = null or [float(analysis.weight_similarity(layer, known[-1].roll(1, 0)).mean()) for layer in w]
    return maps(scores, families, error=error, null=null, site=site)


def maps(scores: Mapping[str, Tensor], families: Families, *, error: float, null: Sequence[float], site: Site) -> Maps:
    """The maps of similarities [layer step prompt] of any kind."""
    bootstrap = analysis.Bootstrap(seed=site.seed)
    matched = {name: analysis.choose(s, [families[name]], bootstrap=bootstrap) for name, s in scores.items()}
    verdicts = analysis.separate(matched, bootstrap) if len(matched) > 1 else []
    lines = {name: fitted(m.step, families[name].steps[-1]) for name, m in matched.items()}
    return Maps(
        error=error,
        steps={name: list(c.steps) for name, c in families.items()},
        similarity={name: s.mean(-1).tolist() for name, s in scores.items()},
        best={name: m.step for name, m in matched.items()},
        best_similarity={name: m.similarity.value.tolist() for name, m in matched.items()},
        verdicts=[str(v) for v in verdicts],
        null=list(null),
        slopes={name: slope for name, (slope, _, _) in lines.items()},
        doublings={name: doublings for name, (_, doublings, _) in lines.items()},
        straight={name: r for name, (_, _, r) in lines.items()},
    )


def fitted(steps: Sequence[int], last: int, rows: range | None = None) -> tuple[float, float, float]:
    """The slope of the matched step over some rows, of its log2, and R² of the first line.

    Rows count from 0; the middle half, if they are not said. Those matched with the last step tried are left out.
    """
    cut = max(len(steps) // 4, 1)
    rows = range(cut, len(steps) - cut) if rows is None else rows
    known = [(t, s) for t, s in enumerate(steps) if t in rows and s < last]
    if len(known) < 2:
        return math.nan, math.nan, math.nan
    t, plain = (torch.tensor(v, dtype=torch.float64) for v in zip(*known, strict=True))
    t, y, logs = (v - v.mean() for v in (t, plain, plain.clamp(min=1).log2()))
    rest = y - (t @ y) / (t @ t) * t
    straight = 1 - float(rest @ rest / (y @ y)) if bool(y.any()) else 0.0
    return float(t @ y / (t @ t)), float(t @ logs / (t @ t)), straight


def able(result: Maps, measured: float) -> tuple[float, ...]:
    """A claim about what could not be measured is not tested."""
    return (result.error, 0.0 if math.isfinite(measured) else math.nan)


def doubling(most: int) -> list[int]:
    """Numbers of gradient steps to try: the first eight, then two to each doubling."""
    return sorted({t for t in (*range(1, 9), *(round(2 ** (e / 2)) for e in range(6, 40))) if t <= most})


def linear(result: Maps, family: str, source: str, *, more: float = 1.0) -> Claim:
    """The claim that a layer is worth so many steps of a method."""
    return Claim(
        text=f"a middle layer is worth more than {more:g} {'step' if more == 1 else 'steps'} of {family}",
        source=source,
        measured=result.slopes[family],
        sense=">",
        bound=more,
        errors=able(result, result.slopes[family]),
    )


def exponential(result: Maps, source: str, family: str = "gradient descent") -> Claim:
    """The claim that layers match exponentially many steps of gradient descent."""
    return Claim(
        text="a middle layer multiplies the matched gradient steps: their log2 grows by more than 0.5 a layer",
        source=source,
        measured=result.doublings[family],
        sense=">",
        bound=0.5,
        errors=able(result, result.doublings[family]),
    )


def leads(result: Maps, source: str) -> Claim:
    """The claim that the last layer is more like Newton."""
    return Claim(
        text="the last layer is more like Newton than like gradient descent, both at their best step",
        source=source,
        measured=result.best_similarity["Newton"][-1] - result.best_similarity["gradient descent"][-1],
        sense=">",
        bound=0.0,
        errors=(result.error,),
    )


def draw(result: Maps, *, null: str = "zero predictor", rows: str = "layer", first: int = 1) -> Figure:
    """A map for each family, with its matches, and how good they are beside the null; rows count from `first`."""
    count = len(result.similarity)
    fig, found = panels(count + 1, each=4.6, height=4.0)
    for ax, (name, grid) in zip(found, result.similarity.items(), strict=False):
        heat(ax, grid, label="similarity")
        steps = result.steps[name]
        shown = range(0, len(steps), max(len(steps) // 6, 1))
        named = range(0, len(grid), max(len(grid) // 12, 1))
        ax.set_xticks(list(shown), [str(steps[i]) for i in shown])
        ax.set_yticks(list(named), [str(i + first) for i in named])
        at = [steps.index(s) for s in result.best[name]]
        ax.plot(at, range(len(grid)), "o", color="white", markeredgecolor="#444444", markersize=5)
        ax.set(title=name, xlabel="steps (circles: the best match)", ylabel=rows)
    last = found[-1]
    for (name, line), colour in zip(result.best_similarity.items(), COLOURS, strict=False):
        last.plot(range(first, len(line) + first), line, color=colour, label=name)
    last.plot(range(first, len(result.null) + first), result.null, color="#888888", linestyle=":", label=null)
    last.set(title="best match, other prompts", xlabel=rows)
    key(last)
    return fig
