"""The picture of a training step in the docs, from the record of `algoformer bench train --gpu`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algoformer.experiments.drawing import COLOURS, INK, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORD = Path("benchmarks", "train-h200.json")
WAYS = {
    "a_research_ms": "research style, TF32",
    "b_eager_ms": "eager, fused attention, bf16",
    "d_ours_ms": "ours, bf16",
    "floor_ms": "matrix products alone",
}
PARTS = {  # by what the names of kernels hold
    "matrix products": ("nvjet", "splitK", "cutlass", "gemm"),
    "sums and norms": ("_add_norm", "_column_sums"),
    "attention": ("_attend",),
    "activation": ("_act",),
    "other kernels": ("",),
}


def step(record: Path) -> Figure:
    """How long a step takes in each way, and where the time of ours goes."""
    found: dict[str, Any] = json.loads(record.read_bytes())
    facts = found["summary"]
    fig, (left, right) = axes(9.6, 2.5, columns=2)
    ways = [(name, facts[key]) for key, name in WAYS.items() if key in facts][::-1]
    colours = [COLOURS[0] if name == WAYS["d_ours_ms"] else COLOURS[6] for name, _ in ways]
    bars = left.barh([name for name, _ in ways], [ms for _, ms in ways], color=colours)
    left.bar_label(bars, [f"{ms:.2f}" for _, ms in ways], padding=4, color=INK)
    left.set(title=f"milliseconds a step, {found['device']}", xlim=(0, 1.15 * max(ms for _, ms in ways)))
    spent = parts(found["profile"]["kernels"])
    spent["pauses, small kernels"] = max(found["d_ours"]["ms"] - sum(spent.values()), 0.0)
    bars = right.barh(list(spent)[::-1], list(spent.values())[::-1], color=COLOURS[0])
    right.bar_label(bars, [f"{ms:.2f}" for ms in list(spent.values())[::-1]], padding=4, color=INK)
    right.set(title="where the time of ours goes", xlim=(0, 1.2 * max(spent.values())))
    for ax in (left, right):
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
    return fig


def parts(kernels: list[list[Any]]) -> dict[str, float]:
    """Milliseconds by part, from rows of (kernel, microseconds, launches)."""
    total = dict.fromkeys(PARTS, 0.0)
    for name, microseconds, _ in kernels:
        total[next(part for part, words in PARTS.items() if any(w in name for w in words))] += microseconds / 1000
    return total
