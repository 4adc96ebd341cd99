"""Run experiments: finished work is never repeated, several runs go at once, and one that dies takes no other along."""

from __future__ import annotations

import multiprocessing
import shutil
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

from algoformer.checks import whole
from algoformer.experiments.experiment import Missing, Site, preset
from algoformer.experiments.registry import EXPERIMENTS, load
from algoformer.experiments.store import Store

TRIES = 3  # a run that dies is tried twice more
UNTESTED = 3  # the exit code of a run that needs what is not there

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one run: made now, kept from before, not possible at this scale, or failed."""

    experiment: str
    seed: int
    status: Literal["made", "kept", "untested", "failed"]
    message: str = ""


@dataclass(frozen=True)
class Reproduction:
    """The outcomes of all runs, and result files that are broken, each with what is wrong."""

    outcomes: list[Outcome]
    broken: dict[Path, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Did every run come to an end, and is every file whole?"""
        return not self.broken and all(o.status != "failed" for o in self.outcomes)


def reproduce(
    names: Sequence[str],
    *,
    preset: str = "cpu",
    seeds: int = 3,
    device: str = "cpu",
    jobs: int = 1,
    out: str | Path = "results",
    progress: Progress | None = None,
) -> Reproduction:
    """Run the named experiments (all, if there is no name) with seeds 0 .. seeds - 1, `jobs` processes at a time.

    Results go to `out`. On a machine with several GPUs `device="cuda"` takes them in turn.
    """
    whole("seeds", seeds, least=1)
    whole("jobs", jobs, least=1)
    store = Store(Path(out))
    asked = [Task(name, preset, seed, str(out)) for name in names or EXPERIMENTS for seed in range(seeds)]
    kept = [t for t in asked if store.has(t.name, t.config, t.seed)]
    rest = [t for t in asked if t not in kept]
    outcomes = {t: Outcome(t.name, t.seed, "kept") for t in kept}
    tell = progress or (lambda done, total, what: None)
    tell(0, len(rest), "")

    def finished(task: Task, outcome: Outcome) -> None:
        outcomes[task] = outcome
        tell(len(outcomes) - len(kept), len(rest), f"{task.name}, seed {task.seed}: {outcome.status}")

    (_alone if jobs == 1 else _together)(rest, device, jobs, finished)
    return Reproduction([outcomes[t] for t in asked], store.records()[1])


@dataclass(frozen=True)
class Task:
    """One run of one experiment."""

    name: str
    preset: str
    seed: int
    out: str

    @property
    def config(self) -> Any:
        """The config of its preset."""
        return preset(load(self.name), self.preset)


def carry_out(task: Task, device: str) -> None:
    """Run a task and keep its result. What it leaves on the way stays until it is finished, so that it can go on."""
    from algoformer.provenance import provenance

    store = Store(Path(task.out))
    folder = store.folder / "unfinished" / store.file(task.name, task.config, task.seed).stem
    kept = {part: store.folder / part for part in ("models", "answers")}
    site = Site(seed=task.seed, device=device, **kept, folder=folder)
    begin = time.perf_counter()
    result = load(task.name).run(task.config, site)
    seconds = time.perf_counter() - begin
    about = {**provenance(device), "seconds": round(seconds, 3), "preset": task.preset}
    store.write(task.name, task.config, task.seed, result, about)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.exists() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def _alone(tasks: list[Task], device: str, jobs: int, finished: Callable[[Task, Outcome], None]) -> None:
    for task in tasks:
        try:
            carry_out(task, device)
            finished(task, Outcome(task.name, task.seed, "made"))
        except Missing as missing:
            finished(task, Outcome(task.name, task.seed, "untested", str(missing)))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            finished(task, Outcome(task.name, task.seed, "failed", message))


def _together(tasks: list[Task], device: str, jobs: int, finished: Callable[[Task, Outcome], None]) -> None:
    """One process a run, at most `jobs` at once: a process that is killed is one run that died."""
    context = multiprocessing.get_context("spawn")
    waiting = deque((task, 1) for task in tasks)
    slots = _devices(device, jobs)
    running: dict[Any, tuple[Any, Any, Task, int, str]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task, tries = waiting.popleft()
                place = slots.popleft()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_child, args=(task, place, jobs, theirs), name=f"{task.name}-{task.seed}"
                )
                process.start()
                theirs.close()
                running[process.sentinel] = process, ours, task, tries, place
            for sentinel in wait(list(running)):
                process, ours, task, tries, place = running.pop(sentinel)
                process.join()
                slots.append(place)
                message = _last(ours)
                if process.exitcode == 0:
                    finished(task, Outcome(task.name, task.seed, "made"))
                elif process.exitcode == UNTESTED:
                    finished(task, Outcome(task.name, task.seed, "untested", message))
                elif tries < TRIES:
                    waiting.append((task, tries + 1))
                else:
                    died = message or f"the process died with exit code {process.exitcode}"
                    finished(task, Outcome(task.name, task.seed, "failed", f"{died} ({tries} tries)"))
    finally:
        for process, *_ in running.values():
            process.terminate()
            process.join()


def _devices(device: str, jobs: int) -> deque[str]:
    if device != "cuda":
        return deque([device] * jobs)
    import torch

    count = max(torch.cuda.device_count(), 1)
    return deque(f"cuda:{i % count}" for i in range(jobs))


def _child(task: Task, device: str, jobs: int, pipe: Any) -> None:
    import os

    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    try:
        carry_out(task, device)
    except Missing as missing:
        pipe.send(str(missing))
        raise SystemExit(UNTESTED) from None
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")
        raise SystemExit(1) from None


def _last(pipe: Any) -> str:
    try:
        return str(pipe.recv()) if pipe.poll() else ""
    except (EOFError, OSError):
        return ""
    finally:
        pipe.close()
