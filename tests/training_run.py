"""A small training run as its own process, to be killed and run again: training_run.py FOLDER [die-at STEP [where]]."""

import os
import signal
import sys

import torch

from algoformer.models import AlgoFormer, AlgoFormerConfig
from algoformer.tasks import LinearRegression
from algoformer.training import Ramp, TrainConfig, checkpoint, train

CONFIG = TrainConfig(
    steps=24,
    batch=4,
    lr=1e-3,
    warmup=4,
    ema=0.9,
    dims=Ramp(start=2, stop=3, every=None),
    examples=Ramp(start=2, stop=4, every=6),
    random_loops=(2, 4),
    window=2,
    advance=-9.0,
    advance_after=5,
    log_every=3,
    checkpoint_every=5,
)


def main() -> None:
    torch.set_num_threads(1)
    folder = sys.argv[1]
    if len(sys.argv) > 2:
        number, step, where = sys.argv[2], int(sys.argv[3]), sys.argv[4]
        if where == "write":  # in the middle of writing a checkpoint, from the given one on
            put, seen = checkpoint.put, []

            def dying(path, data):
                seen.append(path)
                if len(seen) > step:
                    path.write_bytes(data[: len(data) // 2])
                    os.kill(os.getpid(), getattr(signal, number))
                put(path, data)

            checkpoint.put = dying
        else:
            sample = LinearRegression.sample
            calls = []

            def counting(self, *args, **options):
                calls.append(1)
                if len(calls) == step:
                    os.kill(os.getpid(), getattr(signal, number))
                return sample(self, *args, **options)

            LinearRegression.sample = counting
    model = AlgoFormer(
        AlgoFormerConfig(features=3, width=16, heads=2, positions=16, loops=3), torch.Generator().manual_seed(0)
    )
    train(model, LinearRegression(d=3, n=4, dense=True), CONFIG, folder)
    print("finished")


if __name__ == "__main__":
    main()
