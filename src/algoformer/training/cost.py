"""What a training step costs, counted without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from algoformer.models import Model
from algoformer.task import Task
from algoformer.tasks.byte_pairs import PAD
from algoformer.tasks.translation import Parallel
from algoformer.training.codec import model_of
from algoformer.training.config import Plan, TrainConfig
from algoformer.training.loss import cross_entropy, window_loss


def cost(config: Any, task: Task[Any], train: TrainConfig) -> dict[str, int]:
    """Parameters, floating-point operations of the matrix products of a step, and bytes that it holds.

    Operations are the mean over the shapes of text and over a random number of loops. Memory counts weights, gradients
    and the optimiser's moments, and the most that the backward pass of the plain path keeps, in float32.
    """
    model: Model = model_of(config).to("meta")
    plan = Plan.of(model, train)
    weights = sum(v.numel() for v in model.parameters())
    counts = train.random_loops or (train.loops.stop if train.loops is not None else model.steps,)
    flops, most = 0.0, 0
    for chance, loss in _losses(model, task, train, plan):
        for loops in counts:  # the operations are linear in the loops: the ends have their mean
            count, kept = _counted(model, lambda loss=loss, loops=loops: loss(loops))  # type: ignore[misc]
            flops, most = flops + chance * count / len(counts), max(most, kept)
    return {"parameters": weights, "flops": round(flops), "memory": 4 * 4 * weights + most}


def _losses(
    model: Any, task: Task[Any], train: TrainConfig, plan: Plan
) -> Iterator[tuple[float, Callable[[int], Tensor]]]:
    """The loss of a batch as a function of the loops, for each shape with its chance; on no device."""
    sizes: Any = {"window": plan.window, "gradient": plan.gradient}
    if isinstance(task, Parallel):
        for chance, bucket in task.shapes(train.batch):
            some = task.asked(bucket.tokens, bucket.begin)
            rows = bucket.rows(train.batch)
            asked = round(rows * float((some.target != PAD).sum()) / len(some.target))
            text = some.prompt[:1].to(device="meta")[torch.zeros(rows, dtype=torch.long, device="meta")]
            at = torch.zeros(asked, dtype=torch.long, device="meta")
            weight = torch.ones(asked, device="meta")
            yield chance, lambda loops, t=text, a=at, w=weight: cross_entropy(model, t, a, a, w, loops=loops, **sizes)  # type: ignore[misc]
        return
    sample = task.sample(1, torch.Generator().manual_seed(0))
    batch = sample.prompt.to(device="meta")[torch.zeros(train.batch, dtype=torch.long, device="meta")]
    target = torch.empty(train.batch, *sample.target.shape[1:], device="meta")
    weight = torch.ones(target.shape[1], device="meta")
    yield 1.0, lambda loops: window_loss(model, batch, target, weight, loops=loops, **sizes).sum()


def _counted(model: Model, loss: Callable[[], Tensor]) -> tuple[int, int]:
    """The operations of a loss and its gradient, and the bytes of what the backward pass keeps."""
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(v: Tensor) -> Tensor:
        kept[v.untyped_storage()._cdata] = v.untyped_storage().nbytes()
        alive.append(v)  # so that no storage takes another's place
        return v

    own = {v.untyped_storage()._cdata for v in model.parameters()}
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(pack, lambda v: v):
        loss().backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops(), sum(size for key, size in kept.items() if key not in own)
