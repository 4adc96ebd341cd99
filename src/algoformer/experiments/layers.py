"""What each layer of a trained transformer knows: a linear read-out for every layer (Fu et al. 2024, Section 4).

The read-outs are fitted in closed form on other prompts of the same task, one for all positions, as Fu et al. retrain
theirs by gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algoformer.analysis.probe import fit
from algoformer.experiments.experiment import Site
from algoformer.models import Model
from algoformer.prompt import Dense
from algoformer.task import Task


@dataclass(frozen=True, eq=False)
class Read:
    """Dense prompts in float64, and the answers of every layer [t b o k], the embedding first."""

    prompt: Dense
    answers: Tensor

    @property
    def errors(self) -> Tensor:
        """Squared error at the last position over the zero predictor's, by layer."""
        target = self.prompt.y
        return (self.answers - target)[:, :, -1].square().mean((1, 2)) / target[:, -1].square().mean()


def read_layers(model: Model, task: Task[Any], prompts: int, site: Site) -> Read:
    """The answers of every layer on fresh prompts."""
    known, asked = (
        task.sample(prompts, torch.Generator(site.device).manual_seed((site.seed << 8) + 2 + i)) for i in range(2)
    )
    with torch.no_grad():
        there, here = (_states(model, s.prompt) for s in (known, asked))
    target = known.target.double().cpu().flatten(0, 1)
    answers = [
        fit(a.flatten(0, 1), target)(b.flatten(0, 1)).reshape(asked.target.shape)
        for a, b in zip(there, here, strict=True)
    ]
    prompt = Dense(asked.prompt.x.double().cpu(), asked.target.double().cpu())
    return Read(prompt, torch.stack(answers))


def _states(model: Model, prompt: Any) -> list[Tensor]:
    q = model.prepare(prompt)
    return [_rows(s).double().cpu() for s in model.states(q)]


def _rows(state: Any) -> Tensor:
    """The stream at the tokens that are read: of a transformer, or of an LSTM."""
    rows = state.layout.rows if hasattr(state, "layout") else state.rows
    out: Tensor = state.h[:, rows]
    return out
