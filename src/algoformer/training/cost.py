"""What a training step costs, counted without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from algoformer.models import Model
from algoformer.task import Task
from algoformer.tasks.byte_pairs import PAD
from algoformer.tasks.translation import Parallel
from algoformer.training.codec import model_of
from algoformer.training.config import Plan, TrainConfig
from algoformer.training.loss import cross_entropy, rao_blackwell, window_loss


def cost(config: Any, task: Task[Any], train: TrainConfig) -> dict[str, int]:
    """Parameters, floating-point operations of the matrix products of a step, and bytes that it holds.

    Operations are the mean over the shapes of text and over a random number of loops, for one evaluation of the loss
    and its gradient. Memory counts weights, gradients and the optimiser's moments, and the most that the backward pass
    of the plain path keeps, in float32.
    """
    model: Model = model_of(config).to("meta")
    plan = Plan.of(model, train)
    weights = sum(v.numel() for v in model.parameters())
    last = train.loops.stop if train.loops is not None else model.steps
    low, high = train.random_loops or (last, last)
    bends = sorted({low, high, *(v for v in (plan.window, plan.gradient) if low < v < high)})
    flops, most = 0.0, 0
    for chance, loss in _losses(model, task, train, plan):
        found = [_counted(model, lambda loss=loss, loops=loops: loss(loops)) for loops in bends]  # type: ignore[misc]
        counts, kept = zip(*found, strict=True)
        each = np.interp(range(low, high + 1), bends, counts)  # between the bends operations are linear in the loops
        flops, most = flops + chance * float(each.mean()), max(most, *kept)
    return {"parameters": weights, "flops": round(flops), "memory": 4 * 4 * weights + most}


def _losses(
    model: Any, task: Task[Any], train: TrainConfig, plan: Plan
) -> Iterator[tuple[float, Callable[[int], Tensor]]]:
    """The loss of a batch as a function of the loops, for each shape with its chance; on no device."""
    sizes: Any = {"window": plan.window, "gradient": plan.gradient}
    if train.loss == "rao-blackwell":
        d, n = task.d, task.n  # type: ignore[attr-defined]
        x, square = (torch.empty(train.batch, rows, d, device="meta") for rows in (n, d))
        yield 1.0, lambda loops: rao_blackwell(model, x, square, square, loops=loops, **sizes).sum()
        return
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
    sizes["eq6"] = train.loss == "eq6"
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
