"""One process of a distributed run: training_ranks.py RANK WORLD PORT DTYPE OUT."""

import json
import os
import sys

import torch

from algoformer.models import AlgoFormer, AlgoFormerConfig
from algoformer.tasks import LinearRegression
from algoformer.training import Ramp, TrainConfig, processes, train


def main() -> None:
    torch.set_num_threads(1)
    rank, world, port, dtype, out = sys.argv[1:]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": world}  # as torchrun
    with processes("cpu"):
        run(rank, dtype, out)


def run(rank: str, dtype: str, out: str) -> None:
    config = AlgoFormerConfig(features=3, width=16, heads=2, positions=16, loops=3)
    model = AlgoFormer(config, torch.Generator().manual_seed(int(rank))).to(getattr(torch, dtype))
    losses: list[tuple[float, int | None]] = []  # the weights of rank 0 are those of all
    train(
        model,
        LinearRegression(d=3, n=4, dense=True),
        TrainConfig(
            steps=50,
            batch=8,
            lr=1e-3,
            warmup=5,
            log_every=1,
            window=2,
            ema=0.9,
            dims=Ramp(start=1, stop=3),
            advance=-9.0,
            advance_after=15,
        ),
        progress=lambda p: losses.append((p.loss, p.size.dims)),
    )
    with open(f"{out}-{rank}", "w") as file:
        json.dump({"losses": losses, "weights": torch.cat([v.flatten() for v in model.parameters()]).tolist()}, file)


if __name__ == "__main__":
    main()
