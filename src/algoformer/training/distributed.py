"""One run on several processes, as `torchrun` starts them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist

from algoformer.training.step import device_named


@contextlib.contextmanager
def processes(device: str | None = None) -> Iterator[torch.device]:
    """The device of this process, which joins the others if `torchrun` started it."""
    chosen = device_named(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield chosen
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield chosen
    finally:
        dist.destroy_process_group()
