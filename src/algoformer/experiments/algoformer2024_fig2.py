"""Gao et al. 2024, Figure 2: AlgoFormer, standard and looped transformer on three tasks.

Regression with a representation, autoregression with one, and chain of thought with a network. AlgoFormer with
(T, dT) = (20, 15) is said to be significantly better than both others on all three.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, stated
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.training import evaluate

REVISION = 1
SOURCE = "Figure 2"


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
SMOKE = Config(**TINY, tasks=("representation", "chain"), loops=2, window=1, layers=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Squared error over the zero predictor's by task, model and asked position; and the oracle's."""

    errors: dict[str, dict[str, list[float]]]
    oracle: dict[str, list[float]]


def run(config: Config, site: Site) -> Result:
    """Train or load the nine models, and judge them on the same prompts."""
    errors: dict[str, dict[str, list[float]]] = {}
    oracle: dict[str, list[float]] = {}
    for name in config.tasks:
        task = config.task(name)
        models = {
            "AlgoFormer": config.model(config.algoformer(task, config.loops), task, site, window=config.window),
            "looped": config.model(config.looped(task, config.loops), task, site, window=config.window),
            "standard": config.model(config.standard(task, config.layers), task, site),
        }
        errors[name] = {}
        for kind, model in models.items():
            found = evaluate(model, task, prompts=config.prompts, seed=site.seed, device=site.device)
            errors[name][kind] = [v / found.zero for v in found.mean[-1]]
        best = evaluate(task.oracle, task, prompts=min(config.prompts, 64), seed=site.seed)  # type: ignore[arg-type]
        oracle[name] = [v / best.zero for v in best.mean[-1]]
    return Result(errors=errors, oracle=oracle)


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below both others at the last position of every task."""
    made = []
    for task, lines in result.errors.items():
        last = {kind: line[-1] for kind, line in lines.items()}
        for other in ("looped", "standard"):
            made.append(
                Claim(
                    text=f"{task}: AlgoFormer is better than the {other} transformer (ratio of errors below 1)",
                    source=SOURCE,
                    measured=last["AlgoFormer"] / last[other],
                    sense="<",
                    bound=1.0,
                    errors=(last["AlgoFormer"], last[other]),
                )
            )
    return made


def plot(result: Result) -> Figure:
    """One panel a task."""
    fig, panels = axes(4.2 * len(result.errors) + 2, 3.9, columns=len(result.errors))
    for ax, (task, lines) in zip(panels, result.errors.items(), strict=True):
        for (kind, line), colour in zip(lines.items(), COLOURS, strict=False):
            ax.plot(line, color=colour, label=kind)
        ax.plot(result.oracle[task], color="#888888", linestyle=":", label="oracle")
        ax.set(title=task, xlabel="asked position", ylim=(0, 1.5))
    panels[0].set_ylabel("error / zero predictor's")
    legend(fig, panels[0])
    return fig
