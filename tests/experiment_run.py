"""A small experiment that trains one model, as its own process, to be killed and run again: experiment_run.py OUT."""

import sys
from dataclasses import replace
from functools import partial

import torch

from algoformer.experiments import load, reproduce, softmax
from algoformer.training import TrainConfig

NAME = "algoformer2024_fig5"
CONFIG = replace(load(NAME).SMOKE, noises=(0.0,), steps=300)
TRAIN = partial(TrainConfig, checkpoint_every=50)


def main() -> None:
    torch.set_num_threads(1)
    load(NAME).SMOKE, softmax.TrainConfig = CONFIG, TRAIN
    reproduce([NAME], preset="smoke", seeds=1, out=sys.argv[1])


if __name__ == "__main__":
    main()
