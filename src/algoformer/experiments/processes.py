"""Several runs at once on this machine, one process each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from multiprocessing.connection import wait
from typing import Any, Self

from algoformer.experiments.clock import Clock
from algoformer.experiments.runs import Outcome, Run, attempt


class Processes:
    """At most `jobs` processes; on a machine with several GPUs the device "cuda" takes them in turn."""

    def __init__(self, device: str, jobs: int, clock: Clock) -> None:
        self.jobs, self.clock = jobs, clock
        self.context = multiprocessing.get_context("spawn")
        self.devices = _devices(device, jobs)
        self.at_once = -(-jobs // len(set(self.devices)))  # on one device
        self.going: dict[Any, tuple[Run, Any, Any, str]] = {}
        self.before: Any = None  # who heard SIGTERM

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # to be told to end is to leave, not to vanish
            self.before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return self

    def __exit__(self, *error: object) -> None:
        for _, process, _, _ in self.going.values():
            process.terminate()
            process.join()
        if self.before is not None:
            signal.signal(signal.SIGTERM, self.before)

    def room(self) -> int:
        """The number of jobs."""
        return self.jobs

    def start(self, run: Run) -> None:
        """A process of its own."""
        device = self.devices.popleft()
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=_child,
            args=(run, device, self.clock, self.jobs, self.at_once, theirs),
            name=f"{run.name}-{run.seed}",
        )
        process.start()
        theirs.close()
        self.going[process.sentinel] = run, process, ours, device

    def ended(self) -> list[tuple[Run, Outcome]]:
        """A process that ends without a word has died."""
        found = []
        for sentinel in wait(list(self.going)):
            run, process, ours, device = self.going.pop(sentinel)
            process.join()
            self.devices.append(device)
            died = run.ended("failed", f"the process died with exit code {process.exitcode}")
            found.append((run, _last(ours) or died))
        return found


def _devices(device: str, jobs: int) -> deque[str]:
    if device != "cuda":
        return deque([device] * jobs)
    import torch

    count = max(torch.cuda.device_count(), 1)
    return deque(f"cuda:{i % count}" for i in range(jobs))


def _child(run: Run, device: str, clock: Clock, jobs: int, at_once: int, pipe: Any) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends its children
    threading.Thread(target=_orphaned, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    pipe.send(attempt(run, device, clock, at_once))


def _orphaned() -> None:
    """Leave when the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _last(pipe: Any) -> Outcome | None:
    try:
        return pipe.recv() if pipe.poll() else None
    except (EOFError, OSError):
        return None
    finally:
        pipe.close()
