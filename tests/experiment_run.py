"""A small experiment that trains one model, as its own process: experiment_run.py OUT [MINUTES].

With minutes it stops itself, and its exit code is 3 as long as it is not finished. A second is a look at the clock, of
which every step has one: where it stops does not depend on the machine.
"""

import itertools
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import torch

from algoformer.experiments import clock, load, reproduce, softmax
from algoformer.training import TrainConfig, loop

NAME = "algoformer2024_fig5"
CONFIG = replace(load(NAME).SMOKE, noises=(0.0,), steps=300, precisions=())


def TRAIN(**options):  # noqa: N802  # it takes the place of TrainConfig
    return TrainConfig(**options | {"checkpoint_every": 50})


def by_looks() -> SimpleNamespace:
    """A module `time` whose seconds are the looks at it."""
    looks = itertools.count()
    return SimpleNamespace(time=lambda: float(next(looks)), perf_counter=time.perf_counter)


def main() -> int:
    torch.set_num_threads(1)
    clock.time = loop.time = by_looks()
    load(NAME).SMOKE, softmax.TrainConfig = CONFIG, TRAIN
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else None
    found = reproduce([NAME], preset="smoke", seeds=1, out=sys.argv[1], minutes=minutes)
    return 3 if found.unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
