"""Compiled layers beside an ordinary transformer layer of the same width and tokens, how they grow, and their errors.

The ordinary layer is `torch.nn.TransformerEncoderLayer` with as many heads, a feed-forward layer of four times the
width and no dropout, in evaluation mode; the compiled one is a pass of the loop. Both run without autograd.

`python -m algoformer.bench.constructions` prints errors instead: the largest |transformer - algorithm| / max|y| of each
lowering, over 64 fresh prompts and all steps.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from algoformer.bench.timing import Table, median_seconds
from algoformer.constructions import Compiled, Interpreter, compile, descent_step, newton
from algoformer.constructions.catalogue import CATALOGUE

BATCH, ROUNDS = 16, 20


def run() -> Iterator[Table]:
    """Compiled layers beside an ordinary one, and how they grow."""
    found = measure()
    columns = ["pass of the loop", "tokens", "width", "layers", "ms", "times an ordinary layer"]
    titles = {
        "layers": f"A compiled layer beside an ordinary one: at most {found['largest ratio']:.2g} times (gate: 2)",
        "growth": "How it grows with N and d",
    }
    for part, title in titles.items():
        yield Table(title, columns, [[name, *row.values()] for name, row in found[part].items()])
    steps = found["milliseconds for t steps"]
    yield Table(
        "How it grows with the steps of gradient descent", ["steps", "ms"], [[t, ms] for t, ms in steps.items()]
    )


def measure(batch: int = BATCH, rounds: int = ROUNDS) -> dict[str, Any]:
    """Milliseconds a pass of the loop, and the ratio to an ordinary layer, for the catalogue and for growing sizes."""
    generator = torch.Generator().manual_seed(0)
    layers = {}
    for name, construction in CATALOGUE.items():
        prompt = next(iter(construction.prompts.values()))(batch, generator).to(dtype=torch.float32)
        for lowering in construction.bars:
            layers[f"{name}, {lowering}"] = cost(construction.compile(lowering, torch.float32), prompt, rounds)
    isotropic = CATALOGUE["descent-step"].prompts["isotropic"]
    growth = {}
    for n in (10, 40, 160, 640):
        model = compile(descent_step(20, eta=0.01, steps=1, x=11.0), "softmax", dtype=torch.float32)
        prompt = repeated(isotropic(batch, generator), n).to(dtype=torch.float32)
        growth[f"gradient descent, d = 20, N = {n}"] = cost(model, prompt, rounds)
    for d in (5, 20, 80):
        program = newton(d, most=1e4, steps=1, examples=40, x=30.0, reach=1e3)
        model = compile(program, "softmax", dtype=torch.float32, outside="ignore")
        prompt = resized(isotropic(batch, generator), d).to(dtype=torch.float32)
        growth[f"Newton, d = {d}, N = 40"] = cost(model, prompt, rounds)
    model = CATALOGUE["descent-step"].compile("softmax", torch.float32)
    prompt = isotropic(batch, generator).to(dtype=torch.float32)
    with torch.no_grad():
        passes = {t: 1e3 * median_seconds(partial(model.predict, prompt, t), repeats=rounds)[0] for t in (1, 10, 100)}
    ratios = [row["ratio"] for name, row in layers.items()]
    return {"layers": layers, "growth": growth, "milliseconds for t steps": passes, "largest ratio": max(ratios)}


def errors(batch: int = 64) -> Iterator[tuple[str, dict[str, float]]]:
    """For every construction, prompt distribution and lowering: the error in float64 and float32, and their bars."""
    for name, construction in CATALOGUE.items():
        machine = Interpreter(construction.program())
        algorithm = machine if construction.algorithm is None else construction.algorithm()
        for case, draw in construction.prompts.items():
            prompt = draw(batch, torch.Generator().manual_seed(1))
            labels = next(getattr(prompt, field) for field in ("y", "x", "chains") if hasattr(prompt, field))
            scale = labels.abs().flatten(1).amax(1)[:, None, None]
            seen = {dtype: prompt.to(dtype=dtype) for dtype in (torch.float64, torch.float32)}
            exact = {dtype: algorithm.trace(p.to(dtype=torch.float64)) for dtype, p in seen.items()}
            for lowering, bars in construction.bars.items():
                row: dict[str, float] = {}
                for dtype, bar in zip(seen, bars, strict=True):
                    with torch.no_grad():
                        apart = construction.compile(lowering, dtype).trace(seen[dtype]).double() - exact[dtype]
                    key = str(dtype).removeprefix("torch.")
                    row |= {key: float((apart / scale).abs().max()), f"{key} bar": bar}
                yield f"{name}, {lowering}, {case}", row


def cost(model: Compiled, prompt: Any, rounds: int) -> dict[str, float]:
    """A pass of the loop and as many ordinary layers, interleaved."""
    with torch.no_grad():
        state = model.init(prompt)
        z, layout = state
        width, tokens = z.shape[2], z.shape[1]
        blocks: list[Any] = list(model.section("0"))
        heads = max(1, *(b.heads for b in blocks))
        even = heads * math.ceil(width / heads)  # its heads must divide it
        layer = torch.nn.TransformerEncoderLayer(even, heads, 4 * even, dropout=0.0, batch_first=True).eval()
        ordinary = torch.randn(*z.shape[:2], even)

        def ours() -> None:
            stream = z
            for block in blocks:
                stream = block(stream, layout)

        def theirs() -> None:
            stream = ordinary
            for _ in blocks:
                stream = layer(stream)

        mine, other = median_seconds(ours, theirs, repeats=rounds)
    return {"tokens": tokens, "width": width, "layers": len(blocks), "ms": 1e3 * mine, "ratio": mine / other}


def repeated(prompt: Any, n: int) -> Any:
    """The prompt with n examples, its own over and over."""
    rows = torch.arange(n) % prompt.x.shape[1]
    return type(prompt)(prompt.x[:, rows], prompt.y[:, rows], prompt.queries)


def resized(prompt: Any, d: int) -> Any:
    """The prompt with d features, its own over and over."""
    columns = torch.arange(d) % prompt.x.shape[2]
    return type(prompt)(prompt.x[:, :, columns], prompt.y, prompt.queries[:, :, columns])


if __name__ == "__main__":
    ArgumentParser(prog="algoformer.bench.constructions", description=errors.__doc__).parse_args()
    for name, row in errors():
        bars = f"bars {row['float64 bar']:.0e} / {row['float32 bar']:.0e}"
        print(f"{name:<75} {row['float64']:.1e} / {row['float32']:.1e}   {bars}", flush=True)
