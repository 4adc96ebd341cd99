"""Curricula by the clock (Garg et al. 2022; Yang et al. 2024) and by the loss."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from algoformer.task import Task
from algoformer.training.config import Ramp, TrainConfig
from algoformer.training.data import Size, resized, seeded
from algoformer.training.evaluation import TOGETHER

MEMORY = 0.98  # of the running loss, a step


class Curriculum:
    """The size of every step. `stage`, `since`, `running` and `reached` are its whole state."""

    def __init__(self, task: Task[Any], config: TrainConfig, loops: int) -> None:
        self.task, self.config, self.loops = task, config, loops
        self.ramps = {"dims": config.dims, "examples": config.examples, "loops": config.loops}
        self.by_loss = [r for r in self.ramps.values() if r is not None and r.every is None]
        self.stage, self.since = 0, 0
        self.running: float | None = None
        self.reached: list[dict[str, Any]] = []
        self._aside = ThreadPoolExecutor(1)
        self._begun: tuple[Size, Future[tuple[float, float]]] | None = None

    def size(self, step: int) -> Size:
        """The size of the problems of a step."""

        def at(ramp: Ramp | None) -> int | None:
            if ramp is None:
                return None
            return ramp.at(self.stage if ramp.every is None else step // ramp.every)

        loops = at(self.ramps["loops"]) or self.loops
        if self.config.random_loops is not None:
            low, high = self.config.random_loops
            g = seeded(torch.Generator(), self.config.seed, "loops", step)
            loops = int(torch.randint(low, high + 1, (), generator=g))
        return Size(at(self.ramps["dims"]), at(self.ramps["examples"]), loops)

    def full(self, step: int) -> bool:
        """Is every ramp at its end?"""
        return self._grown(self.size(step)) == tuple(r.stop for r in self.ramps.values() if r is not None)

    def observe(self, step: int, losses: list[float]) -> None:
        """Take in the losses of the steps before `step`, and move on if they are good enough.

        What good enough is takes the host a while to find: it begins with a stage, aside, and no GPU waits.
        """
        if not self.by_loss or all(r.at(self.stage) == r.stop for r in self.by_loss):
            return
        for loss in losses:
            self.running = loss if self.running is None else MEMORY * self.running + (1 - MEMORY) * loss
        size = self.size(step)._replace(loops=0)  # which change no prompt
        if self._begun is None or self._begun[0] != size:
            self._begun = size, self._aside.submit(self.bounds, size)
        if step - self.since < self.config.advance_after or self.running is None:
            return
        zero, oracle = self._begun[1].result()
        if zero - self.running > self.config.advance * (zero - oracle):
            self.stage, self.since, self.running = self.stage + 1, step, None

    def bounds(self, size: Size, prompts: int = 2048, solved: int = 64) -> tuple[float, float]:
        """The losses, as trained, Z of the zero predictor and O of the oracle (0 where there is none) at a size.

        The oracle solves only a few of the prompts; its loss relative to Z varies far less than either. What prompts of
        a draw share is drawn as often as there are draws.
        """

        def loss(error: Tensor) -> float:
            square, robust = error.square(), self.config.robust
            return float((square if robust is None else torch.log1p(square / robust)).mean())

        task, g = resized(self.task, size), seeded(torch.Generator(), self.config.seed, "bounds")
        draws = prompts // TOGETHER if task.shares else 1
        samples = [task.sample(prompts // draws, g, torch.float64) for _ in range(draws)]
        zero, share, each = loss(torch.cat([s.target for s in samples])), 0.0, max(solved // draws, 1)
        if task.oracle is not None:
            few = torch.cat([s.target[:each] for s in samples])
            found = torch.cat([task.oracle.predict(s.prompt[:each]) for s in samples])
            share = loss(found - few) / loss(few)
        return zero, zero * share

    def note(self, step: int) -> dict[str, Any] | None:
        """The event of a new size, if this step is the first of one."""
        now = {name: value for name, value in self.size(step)._asdict().items() if self.ramps[name] is not None}
        if not now or (self.reached and {k: self.reached[-1][k] for k in now} == now):
            return None
        self.reached.append({"step": step, **now})
        return {"step": step, "event": "size", **now}

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        return {"stage": self.stage, "since": self.since, "running": self.running, "reached": self.reached}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.stage, self.since, self.running = state["stage"], state["since"], state["running"]
        self.reached = state["reached"]

    def _grown(self, size: Size) -> tuple[int, ...]:
        return tuple(v for name, v in size._asdict().items() if self.ramps[name] is not None)
