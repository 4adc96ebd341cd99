"""What a training step costs, counted without running it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from algoformer.models import Model
from algoformer.task import Task
from algoformer.training.codec import model_of
from algoformer.training.config import Plan, TrainConfig
from algoformer.training.loss import window_loss


def cost(config: Any, task: Task[Any], train: TrainConfig) -> dict[str, int]:
    """Parameters, floating-point operations of the matrix products of a step, and bytes that it holds.

    Memory counts weights, gradients and the optimiser's moments, and the activations that the backward pass of the
    plain path keeps, in float32.
    """
    model: Model = model_of(config).to("meta")
    plan = Plan.of(model, train)
    sample = task.sample(1, torch.Generator().manual_seed(0))
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(v: Tensor) -> Tensor:
        kept[v.untyped_storage()._cdata] = v.untyped_storage().nbytes()
        alive.append(v)  # so that no storage takes another's place
        return v

    prompt = sample.prompt.to(device="meta")
    batch = prompt[torch.zeros(train.batch, dtype=torch.long, device="meta")]
    target = torch.empty(train.batch, *sample.target.shape[1:], device="meta")
    weights = sum(v.numel() for v in model.parameters())
    own = {v.untyped_storage()._cdata for v in model.parameters()}
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(pack, lambda v: v):
        loops = train.loops.stop if train.loops is not None else model.steps
        loss = window_loss(
            model,
            batch,
            target,
            torch.ones(target.shape[1], device="meta"),
            loops=loops,
            window=plan.window,
            gradient=plan.gradient,
        )
        loss.sum().backward()  # type: ignore[no-untyped-call]
    activations = sum(size for key, size in kept.items() if key not in own)
    return {
        "parameters": weights,
        "flops": counter.get_total_flops(),
        "memory": 4 * 4 * weights + activations,
    }
