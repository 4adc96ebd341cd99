"""What only a GPU can show: how the cost of a step grows, several runs at once, a curriculum, the fast path's curve."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from algoformer.models import AlgoFormerConfig
from algoformer.tasks import LinearRegression
from algoformer.training import Ramp, TrainConfig, train
from algoformer.training.codec import model_of
from algoformer.training.cost import cost
from algoformer.training.curriculum import Curriculum
from algoformer.training.data import Data, Size
from algoformer.training.step import Step, compiled, settings

TASK = LinearRegression(d=20, n=40, dense=True)
SEEDS = 8


def growth(
    ours: Callable[..., dict[str, Any]], config: TrainConfig, device: torch.device, rate: float
) -> list[dict[str, Any]]:
    """The step, as `ours` times it, over loops, batch, width and examples: ms, share of the floor, memory."""
    default = AlgoFormerConfig()
    cases: list[tuple[str, int, Any, Any, TrainConfig]] = [
        *(("loops", n, replace(default, loops=n), TASK, replace(config, window=min(15, n))) for n in (10, 20, 50, 200)),
        *(("batch", n, default, TASK, replace(config, batch=n)) for n in (64, 256, 512, 1024)),
        *(("width", n, replace(default, width=n), TASK, config) for n in (128, 256, 512)),
        *(("examples", n, replace(default, positions=2 * n + 1), replace(TASK, n=n), config) for n in (40, 100, 400)),
    ]
    rows = []
    for what, value, model, task, train_config in cases:
        try:
            found = ours(model, train_config, device, 3, 30, task=task)
        except torch.cuda.OutOfMemoryError:
            rows.append({"what": what, "value": value, "ms": None, "floor": None, "memory_mb": None})
            continue
        floor = 1000 * cost(model, task, train_config)["flops"] / rate
        facts = {"ms": found["ms"], "floor": floor / found["ms"], "memory_mb": found["memory_mb"]}
        rows.append({"what": what, "value": value, **facts})
    return rows


def several(config: TrainConfig, device: torch.device) -> dict[str, float]:
    """Milliseconds in which each of `SEEDS` runs takes a step: one after another, on streams, and as one graph."""
    size = Size(None, None, AlgoFormerConfig().loops)
    out: dict[str, float] = {}
    for count in (1, SEEDS):
        models = [model_of(AlgoFormerConfig(), torch.Generator().manual_seed(i)).to(device) for i in range(count)]
        steps = [Step(m, TASK, replace(config, seed=i), device) for i, m in enumerate(models)]
        data = [Data(TASK, s.config, device, torch.float32, padded=True).batch(0, size) for s in steps]
        with contextlib.ExitStack() as stack:
            stack.enter_context(settings(steps[0].precision, False, device))
            for model in models:
                stack.enter_context(compiled(model, True))
            for step, batch in zip(steps, data, strict=True):
                step.update(batch, size.loops)
            main = torch.cuda.current_stream()
            sides = [torch.cuda.Stream() for _ in steps]  # type: ignore[no-untyped-call]
            graphs = [torch.cuda.CUDAGraph() for _ in steps]
            for step, batch, graph, side in zip(steps, data, graphs, sides, strict=True):
                side.wait_stream(main)
                with torch.cuda.graph(graph, stream=side):  # products use memory that belongs to their stream
                    step.update(batch, size.loops)

            def after(graphs: Any = graphs) -> None:
                for graph in graphs:
                    graph.replay()

            def beside(graphs: Any = graphs, sides: Any = sides) -> None:
                for graph, side in zip(graphs, sides, strict=True):
                    with torch.cuda.stream(side):
                        graph.replay()

            out[f"{count}_after_another"] = _milliseconds(after)
            out[f"{count}_on_streams"] = _milliseconds(beside)
            one = torch.cuda.CUDAGraph()
            with torch.cuda.graph(one, stream=main):
                for step, batch, side in zip(steps, data, sides, strict=True):
                    side.wait_stream(main)
                    with torch.cuda.stream(side):
                        step.update(batch, size.loops)
                for side in sides:
                    main.wait_stream(side)
            out[f"{count}_in_one_graph"] = _milliseconds(one.replay)
    return out


def _milliseconds(f: Callable[[], object], repeats: int = 3, steps: int = 40) -> float:
    taken = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            f()
        torch.cuda.synchronize()
        taken.append(1000 * (time.perf_counter() - begin) / steps)
    return sorted(taken)[repeats // 2]


def curriculum(config: TrainConfig, device: torch.device, steps: int = 600) -> dict[str, float]:
    """A curriculum over loops, points and dimensions beside the same loops at full size, already captured.

    What it costs more is spent once for each number of loops: the share is that of a run of the config's steps.
    """
    ramps = {
        "dims": Ramp(start=5, stop=20, every=20),
        "examples": Ramp(start=10, stop=40, by=2, every=20),
        "loops": Ramp(start=15, stop=25, by=2, every=100),
    }
    config = replace(config, steps=steps, **ramps)  # type: ignore[arg-type]
    model = model_of(replace(AlgoFormerConfig(), loops=25), torch.Generator().manual_seed(0)).to(device)
    step = Step(model, TASK, config, device)
    data, plan = Data(TASK, config, device, torch.float32, padded=True), Curriculum(TASK, config, model.steps)
    seconds = []
    with settings(step.precision, False, device), compiled(model, True):
        for sized in (True, False):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for i in range(steps):
                size = plan.size(i)
                step(i, data.batch(i, size if sized else size._replace(dims=20, examples=40)), size.loops)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
    once = seconds[0] - seconds[1]
    return {
        "graphs": float(len(step.captured)),
        "seconds": seconds[0],
        "fixed_seconds": seconds[1],
        "once_seconds": once,
        "share_of_24000_steps": once / (24_000 * seconds[1] / steps),
    }


def curve(device: torch.device, steps: int = 2000) -> dict[str, list[float]]:
    """The loss of small runs, every 100 steps: three seeds on the fast path, one of them on the plain path too."""
    model = AlgoFormerConfig(features=2, width=128, heads=4, loops=5, positions=32)
    task = LinearRegression(d=2, n=12, dense=True)
    out: dict[str, list[float]] = {}
    for name, seed, fast in (("fast 0", 0, True), ("fast 1", 1, True), ("fast 2", 2, True), ("plain 0", 0, False)):
        config = TrainConfig(steps=steps, seed=seed, window=5, warmup=100, fast=fast, log_every=100)
        losses: list[float] = []
        made = model_of(model, torch.Generator().manual_seed(seed)).to(device)
        train(made, task, config, progress=lambda p, losses=losses: losses.append(p.loss))  # type: ignore[misc]
        out[name] = losses
    return out
