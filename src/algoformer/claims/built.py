"""Transformers built by the assembler, measured against the algorithms they must run."""

from __future__ import annotations

from typing import Any

import torch

from algoformer.constructions import Compiled
from algoformer.constructions.catalogue import CATALOGUE


def deviation(name: str, lowering: str, *, prompts: str | None = None, batch: int = 2) -> float:
    """The largest |transformer - algorithm| / max|y| over all steps, on fresh prompts of every kind, or of one."""
    c = CATALOGUE[name]
    if c.algorithm is None:
        raise ValueError(f"{name} has no algorithm to be compared with")
    model, algorithm, apart = c.compile(lowering), c.algorithm(), []
    for kind, draw in c.prompts.items():
        if prompts in (None, kind):
            p: Any = draw(batch, torch.Generator().manual_seed(0))
            labels = next(getattr(p, field) for field in ("y", "x", "chains") if hasattr(p, field))
            with torch.no_grad():
                apart.append(float((model.trace(p) - algorithm.trace(p)).abs().max() / labels.abs().max()))
    return max(apart)


def heads(model: Compiled, section: str) -> list[int]:
    """How many heads each layer of a section has."""
    blocks: Any = model.section(section)
    return [int(block.heads) for block in blocks]


def size(name: str, lowering: str) -> dict[str, int]:
    """Layers and heads of pre, of a pass of the loop, and of post; and the width of the stream."""
    c = CATALOGUE[name]
    counts = {section: heads(c.compile(lowering), section) for section in ("pre", "loop", "post")}
    layers = {f"{section} layers": len(found) for section, found in counts.items()}
    most = {f"{section} heads": max(found, default=0) for section, found in counts.items()}
    return layers | most | {"width": c.program().stream.width}
