"""What a model has learned of the representation that its task is made of: linear probes for phi, loop by loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.analysis.probe import fit, probe, r_squared
from algoformer.checks import whole
from algoformer.models import Model
from algoformer.solvers.reductions import Windows
from algoformer.tasks import Autoregression, Representation
from algoformer.training.codec import model_of

FITTED, JUDGED = 1, 2  # seeds of the prompts that a probe is fitted on, and of those that judge it


@dataclass(frozen=True)
class Represented:
    """R² of linear probes for phi on other prompts than they were fitted on.

    From the inputs of phi, and from what each loop or layer takes in at the tokens where the inputs end: of the model
    and of the same one without training. What an AlgoFormer's first loop takes in is what its pre gives.
    """

    inputs: float
    model: list[float]
    untrained: list[float]


def represented(
    model: Model, task: Representation | Autoregression, prompts: int = 256, *, steps: int | None = None
) -> Represented:
    """Ask a looped or layered model for phi(x), or for phi of the last values of a series, at every x of a prompt."""
    if not isinstance(task, Representation | Autoregression):
        raise TypeError(f"the task must have a representation phi; got {type(task).__name__}")
    whole("prompts", prompts, 1)
    fitted, judged = (_known(task, prompts, seed) for seed in (FITTED, JUDGED))
    tokens = slice(task.q, None) if isinstance(task, Autoregression) else slice(0, None, 2)
    untrained = model_of(model.config, torch.Generator().manual_seed(0)).eval()
    found = probe(
        model,
        (fitted[0], fitted[2]),
        (judged[0], judged[2]),
        lambda state: _taken(state, model)[:, tokens].flatten(0, 1),
        steps=steps,
        untrained=untrained,
    )
    inputs = r_squared(fit(*fitted[1:])(judged[1]), judged[2])
    return Represented(inputs, found.model, found.untrained or [])


def _known(
    task: Representation | Autoregression, prompts: int, seed: int
) -> tuple[Any, Float[Tensor, "c f"], Float[Tensor, "c g"]]:
    """Prompts that ask everything; the inputs of phi in them, and phi of those."""
    asking: Any = {"every": True} if isinstance(task, Autoregression) else {"dense": True}
    prompt: Any = replace(task, **asking).sample(prompts, torch.Generator().manual_seed(seed)).prompt
    inputs = (Windows(q=task.q).regression(prompt) if isinstance(task, Autoregression) else prompt).x
    return prompt, inputs.flatten(0, 1).double(), task.phi(inputs).flatten(0, 1).double()


def _taken(state: Any, model: Model) -> Tensor:
    """The stream that the next loop or layer takes in."""
    if hasattr(state, "h"):
        return state.h  # type: ignore[no-any-return]
    return state.e + state.z if model.config.injection else state.z  # type: ignore[no-any-return]
