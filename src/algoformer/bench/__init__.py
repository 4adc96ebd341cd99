"""Every speed figure that we claim, as ratios measured side by side in one run.

A benchmark is a module with `run() -> Iterator[Table]`; the command line prints it.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

from algoformer.bench.timing import Table, median_seconds
from algoformer.checks import one_of

__all__ = ["BENCHMARKS", "Table", "load", "median_seconds"]

BENCHMARKS = ("solvers", "constructions", "theory", "train")


def load(name: str) -> Callable[..., Iterator[Table]]:
    """The benchmark of that name."""
    one_of("a benchmark", name, BENCHMARKS)
    run: Callable[..., Iterator[Table]] = import_module(f"algoformer.bench.{name}").run
    return run
