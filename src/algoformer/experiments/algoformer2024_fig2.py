"""Gao et al. 2024, Figure 2: AlgoFormer, standard and looped transformer on three tasks.

Regression with a representation, autoregression with one, and chain of thought with a network. AlgoFormer with
(T, dT) = (20, 15) is said to be significantly better than both others on all three. Noise is nine tenths of a series,
so errors are those before noise, judged by how far they are above the oracle's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, excess, stated
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.tasks import ChainOfThought
from algoformer.training import evaluate

REVISION = 2
SOURCE = "Figure 2"
LEAST = 1e-9  # of the zero predictor: two models at the oracle are equally good

Curves = list[list[float]]  # by position in a chain of thought (one of other tasks), and examples seen


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """Three models on each task."""

    tasks: tuple[str, ...] = stated(("representation", "autoregression", "chain"))
    loops: int = stated(20)
    window: int = stated(15)
    layers: int = stated(12)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1, layers=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Squared error before noise, by task: of each model, of the oracle, and of the zero predictor."""

    errors: dict[str, dict[str, Curves]]
    oracle: dict[str, Curves]
    zero: dict[str, Curves]


def run(config: Config, site: Site) -> Result:
    """Train or load the nine models, and judge them on the same prompts."""
    errors: dict[str, dict[str, Curves]] = {}
    oracle: dict[str, Curves] = {}
    zero: dict[str, Curves] = {}
    for name in config.tasks:
        task = config.task(name)
        models = {
            "AlgoFormer": config.model(config.algoformer(task, config.loops), task, site, window=config.window),
            "looped": config.model(config.looped(task, config.loops), task, site, window=config.window),
            "standard": config.model(config.standard(task, config.layers), task, site),
        }
        judged = partial(evaluate, task=task, prompts=config.prompts, seed=site.seed, device=site.device, clean=True)
        found = {kind: judged(model) for kind, model in models.items()}
        # without noise the oracle is exact in the end on any prompts, and slow on a GPU
        few: dict[str, Any] = {"prompts": min(config.prompts, 64), "device": "cpu"}
        best = judged(task.oracle, **({} if getattr(task, "noise", 0.0) else few))  # type: ignore[arg-type]
        errors[name] = {kind: _curves(task, e.mean[-1]) for kind, e in found.items()}
        oracle[name] = _curves(task, best.mean[-1])
        zero[name] = _curves(task, found["AlgoFormer"].zeros)
    return Result(errors=errors, oracle=oracle, zero=zero)


def _curves(task: Any, asked: list[float]) -> Curves:
    links = task.layers if isinstance(task, ChainOfThought) else 1
    return [asked[i::links] for i in range(links)]


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below both others with all examples seen, in the mean over a chain."""
    made = []
    for task, models in result.errors.items():
        floor, zero = _last(result.oracle[task]), _last(result.zero[task])
        above = {kind: excess(_last(curves), floor, zero) for kind, curves in models.items()}
        for other in ("looped", "standard"):
            made.append(
                Claim(
                    text=f"{task}: AlgoFormer is better than the {other} transformer "
                    "(ratio of their errors above the oracle's, below 1)",
                    source=SOURCE,
                    measured=max(above["AlgoFormer"], LEAST) / max(above[other], LEAST),
                    sense="<",
                    bound=1.0,
                    errors=(above["AlgoFormer"], above[other]),
                )
            )
    return made


def _last(curves: Curves) -> float:
    return sum(curve[-1] for curve in curves) / len(curves)


def plot(result: Result) -> Figure:
    """One panel a task; a chain of thought has a curve for each position, the later the fainter."""
    fig, panels = axes(4.2 * len(result.errors) + 2, 3.9, columns=len(result.errors))
    for ax, (task, models) in zip(panels, result.errors.items(), strict=True):
        lines = models | {"oracle": result.oracle[task], "zero predictor": result.zero[task]}
        for (kind, curves), colour in zip(lines.items(), (*COLOURS[: len(models)], "#888888", "#bbbbbb"), strict=True):
            for i, curve in enumerate(curves):
                style = "-" if kind in models else ":"
                strength = 1 - 0.75 * i / len(curves)
                ax.plot(curve, style, color=colour, alpha=strength, label=kind if i == 0 else None)
        ax.set(title=task, xlabel="examples seen", ylim=(0, 1.5 * max(map(max, result.zero[task]))))
    panels[0].set_ylabel("squared error before noise")
    legend(fig, panels[0])
    return fig
