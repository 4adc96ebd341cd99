"""The clock of the benchmarks, and the table they fill."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from threadpoolctl import threadpool_limits


@dataclass(frozen=True)
class Table:
    """A title, columns, rows of plain values, and notes below them."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)


def median_seconds(*contestants: Callable[[], Any], repeats: int = 5) -> list[float]:
    """The median time of each contestant on one thread, in turns after a warm-up, so that all see the same machine."""
    times: list[list[float]] = [[] for _ in contestants]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            for contestant in contestants:
                contestant()
            for _ in range(repeats):
                for contestant, taken in zip(contestants, times, strict=True):
                    start = time.perf_counter()
                    contestant()
                    taken.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return [statistics.median(taken) for taken in times]
