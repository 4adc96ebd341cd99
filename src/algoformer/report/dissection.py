"""The picture of a dissection: how good each step of a model is, which steps it is like, and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from algoformer.analysis import Dissection, readings
from algoformer.experiments.drawing import COLOURS, INK, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 1e-16  # what is drawn of 0


def draw(found: Dissection, trained: int | None = None) -> Figure:
    """The error beside each family's own, the nearest steps, and what is missing to likeness 1; dotted: `trained`.

    Of a family the error and the steps are those of the candidate which is the match most often. Triangles are matches
    with the last step that was tried. A family with one number of steps to try, such as the zero predictor, is drawn
    where likeness is.
    """
    fig, (errors, steps, likeness) = axes(11.5, 4.2, columns=3)
    race = range(max(found.steps) + 1)
    own = found.error.cpu()
    errors.semilogy(found.steps, own.clamp(min=LEAST), "o-", color=COLOURS[0], ms=3, label="the model")
    colours = iter(COLOURS[1:])
    for name, match in found.matches.items():
        tried = {step for c in found.families[name] for step in c.steps}
        lone = len(tried) == 1
        colour = "#888888" if lone else next(colours, COLOURS[-1])
        if not lone:
            rival = max(match.algorithm, key=match.algorithm.count)
            run = range(min(max(race), rival.limit if rival.limit is not None else max(race)) + 1)
            trace = readings(rival, found.prompt, run)
            errors.semilogy(run, found.relative(trace).cpu().clamp(min=LEAST), color=colour)
            told = match.similarity.value.cpu().isfinite() & torch.tensor([a == rival for a in match.algorithm])
            nearest = torch.tensor(match.step).where(told, torch.nan)
            steps.plot(found.steps, nearest, ".-", color=colour, ms=4)
            steps.plot(
                found.steps, nearest.where(nearest == max(tried), torch.nan), "^", color=colour, mfc="none", ms=5
            )
        band = match.similarity
        apart, most, least = ((1 - v.cpu()).clamp(min=LEAST) for v in (band.value, band.low, band.high))
        likeness.semilogy(found.steps, apart, color=colour, linestyle="--" if lone else "-", label=name)
        likeness.fill_between(found.steps, least, most, color=colour, alpha=0.2, linewidth=0)
    for ax in (errors, steps, likeness):
        ax.set_xlabel("step")
        if trained is not None:
            ax.axvline(trained, color="#888888", linestyle=":")
    top = min(max(3.0, 1.5 * float(own.nan_to_num(torch.inf).max())), 1e3)
    errors.set(ylabel="error / zero predictor's", title="error at the last position", ylim=(1e-6, top))
    steps.set(ylabel="steps of the other", title="the nearest step (triangles: the last tried)", yscale="symlog")
    steps.set_ylim(0, 2 * steps.get_ylim()[1])
    likeness.set(ylabel="1 - cosine of errors", title="how far from alike")
    lines = [*errors.get_legend_handles_labels()[0], *likeness.get_legend_handles_labels()[0]]
    fig.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False, labelcolor=INK, fontsize=9)
    return fig
