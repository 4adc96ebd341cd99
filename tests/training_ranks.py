"""One process of a distributed run: training_ranks.py RANK WORLD PORT DTYPE OUT."""

import json
import os
import sys

import torch
import torch.distributed as dist

from algoformer.models import AlgoFormer, AlgoFormerConfig
from algoformer.tasks import LinearRegression
from algoformer.training import Ramp, TrainConfig, train


def main() -> None:
    torch.set_num_threads(1)
    rank, world, port, dtype, out = sys.argv[1:]
    if int(world) > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": world}
        dist.init_process_group("gloo")
    config = AlgoFormerConfig(features=3, width=16, heads=2, positions=16, loops=3)
    model = AlgoFormer(config, torch.Generator().manual_seed(int(rank))).to(getattr(torch, dtype))
    if int(world) == 1:  # rank 0's weights are broadcast, so the single process begins with the same
        assert rank == "0"
    losses: list[float] = []
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
            dims=Ramp(start=1, stop=3),
            advance=-9.0,
            advance_after=15,
        ),
        progress=lambda p: losses.append((p.loss, p.size.dims)),
    )
    if rank == "0":
        with open(out, "w") as file:
            json.dump(
                {"losses": losses, "weights": torch.cat([v.flatten() for v in model.parameters()]).tolist()}, file
            )
    if int(world) > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
