"""The precision of float32 products on a GPU: one switch for the two that PyTorch has."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Products of float32 numbers, those of cuDNN too, may be in TF32 for a while, or may not."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
