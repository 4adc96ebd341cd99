"""Gao et al. 2024, Table 1: German to English by a standard transformer, a looped one and AlgoFormer.

The paper gives a cross-entropy on the validation pairs of IWSLT 2015 for each. It says neither the unit, the tokens,
the steps nor the batch, so that no number of ours can be held against its three; only their order is tested, after a
quarter, half and all of the steps, and with as many operations. All models see the same text, tokens and steps, and
the checkpoint is chosen on the validation pairs. The text is the built-in corpus, or the folder that the environment
variable ALGOFORMER_DATA holds under the name in the config.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Missing, Site, assumed, stated
from algoformer.models import AlgoFormerConfig, LoopedConfig, TransformerConfig
from algoformer.tasks import NumberWords, Parallel, Translation
from algoformer.tasks.translation import Lines
from algoformer.training import TrainConfig, Translator, entropy, quality, validated
from algoformer.training.codec import model_of
from algoformer.training.cost import cost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 2
SOURCE = "Table 1"
SHARES = (0.25, 0.5, 1.0)  # of the steps
BUILT_IN = "number words"  # a text of which the paper says nothing


@dataclass(frozen=True, kw_only=True)
class Config:
    """Three models on one text."""

    data: str = assumed("iwslt2015_de_en")  # the name is stated, its preparation is not
    vocabulary: int = assumed(8000)
    longest: int = assumed(128)
    layers: int = stated(12)
    loops: int = stated(12)
    window: int = stated(10)
    width: int = stated(256)
    heads: int = stated(8)
    lr: float = stated(5e-5)
    warmup: int = assumed(500)
    batch: int = assumed(8192)  # tokens
    steps: int = assumed(100_000)
    checks: int = assumed(20)
    pairs: int = assumed(3000)  # of a split, at most
    beam: int = assumed(5)


PAPER = Config()
GPU = Config(data="multi30k_de_en", steps=10_000)
CPU = Config(
    data="", vocabulary=400, longest=64, layers=6, loops=6, window=4, width=64, heads=4, lr=1e-3, warmup=100,
    batch=2048, steps=600, pairs=500, checks=12,
)  # fmt: skip
SMOKE = Config(
    data="", vocabulary=300, longest=64, layers=2, loops=2, window=2, width=16, heads=2, lr=3e-3, warmup=2, batch=256,
    steps=8, pairs=8, checks=4, beam=2,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Result:
    """By model: nats per token of the validation pairs by step and loop, and per word; BLEU and chrF of the test."""

    text: str
    steps: list[int]
    entropy: dict[str, list[float]]
    loops: dict[str, dict[str, float]]
    per_word: dict[str, float]
    bleu: dict[str, float]
    chrf: dict[str, float]
    parameters: dict[str, int]
    flops: dict[str, int]
    uniform: float
    signatures: list[str]


def text(config: Config) -> Parallel:
    """The text of a config."""
    options: Any = {"vocabulary": config.vocabulary, "longest": config.longest}
    if not config.data:
        return NumberWords(**options)
    home = os.environ.get("ALGOFORMER_DATA")
    if not home or not (Path(home) / config.data).is_dir():
        raise Missing(f"it needs the text {config.data}: set ALGOFORMER_DATA to the folder that holds it")
    return Translation(data=str(Path(home) / config.data), **options)


def run(config: Config, site: Site) -> Result:
    """Train the three models, choose their checkpoints, and judge them."""
    task = text(config)
    sizes: Any = {
        "vocabulary": config.vocabulary, "positions": config.longest, "width": config.width, "heads": config.heads
    }  # fmt: skip
    models: dict[str, Any] = {
        "standard": TransformerConfig(layers=config.layers, **sizes),
        "looped": LoopedConfig(loops=config.loops, **sizes),
        "AlgoFormer": AlgoFormerConfig(loops=config.loops, **sizes),
    }
    found: dict[str, Any] = {name: {} for name in Result.__annotations__}
    valid, test = (_some(task.lines(split), config.pairs) for split in ("valid", "test"))
    for name, made in models.items():
        train = TrainConfig(
            steps=config.steps, batch=config.batch, seed=site.seed, lr=config.lr, warmup=config.warmup,
            schedule="constant", checkpoint_every=max(config.steps // 5, 1),
        )  # fmt: skip
        if name != "standard":  # one loop of the window a step
            low, high = config.loops - config.window + 1, config.loops
            options: Any = {"random_loops": (low, high), "window": 1, "gradient_loops": high}
            train = replace(train, **options)
        model: Any = model_of(made, torch.Generator().manual_seed(site.seed)).to(site.device)
        folder = None if site.folder is None else site.folder / name
        course = validated(model, task, train, folder, checks=config.checks, pairs=config.pairs)
        translator = Translator.of(model, task)
        last = config.layers if name == "standard" else config.loops
        steps = range(1, last + 1) if name == "standard" else range(1, 2 * last + 1)
        by_loop = entropy(translator, valid, steps=list(steps))
        judged = quality(translator, test, width=config.beam)
        about = cost(made, task, train)
        found["steps"] = course.steps
        found["entropy"][name] = course.per_token
        found["loops"][name] = {str(t): v for t, v in zip(by_loop.steps, by_loop.per_token, strict=True)}
        found["per_word"][name] = by_loop.per_word[by_loop.steps.index(last)]
        found["bleu"][name], found["chrf"][name] = judged.bleu, judged.chrf
        found["parameters"][name], found["flops"][name] = about["parameters"], about["flops"]
        found["signatures"] = judged.signatures
    return Result(**{**found, "text": config.data or BUILT_IN, "uniform": math.log(config.vocabulary)})


def claims(result: Result) -> list[Claim]:
    """AlgoFormer < looped < standard, step for step and operation for operation."""
    made = []
    for better, worse in (("AlgoFormer", "looped"), ("looped", "standard")):
        for share in SHARES:
            step = share * result.steps[-1]
            least = min(result.flops[better], result.flops[worse]) * step
            part = f"{100 * share:.0f} %"
            paper = "ours" if result.text == BUILT_IN else SOURCE
            pairs = {
                (paper, f"after {part} of the steps"): (step, step),
                ("ours", f"with the operations of {part} of the cheaper run"): (
                    least / result.flops[better],
                    least / result.flops[worse],
                ),
            }
            for (whose, when), (mine, other) in pairs.items():
                a, b = (
                    at(result.steps, result.entropy[name], result.uniform, step)
                    for name, step in ((better, mine), (worse, other))
                )
                made.append(
                    Claim(
                        text=f"{result.text}: {better} has a lower cross-entropy than {worse} {when}",
                        source=whose,
                        measured=a - b,
                        sense="<",
                        bound=0.0,
                        errors=(a / result.uniform, b / result.uniform),
                        paired=True,
                    )
                )
    return made


def plot(result: Result) -> Figure:
    """Cross-entropy against steps, operations and loops."""
    fig, panels = axes(13.0, 3.9, columns=3)
    for (name, line), colour in zip(result.entropy.items(), COLOURS, strict=False):
        panels[0].plot(result.steps, line, color=colour, label=name)
        panels[1].plot([result.flops[name] * step for step in result.steps], line, color=colour)
        loops = result.loops[name]
        panels[2].plot([int(t) for t in loops], list(loops.values()), color=colour)
    for ax, label in zip(panels, ("step", "operations", "layer or loop"), strict=True):
        ax.set(xlabel=label)
    panels[0].set_ylabel("nats per token, validation")
    legend(fig, panels[0])
    return fig


def at(steps: Sequence[float], values: Sequence[float], uniform: float, step: float) -> float:
    """The cross-entropy of a run at a step: between two looks on the line between them; uniform at step 0."""
    return float(np.interp(step, [0, *steps], [uniform, *values]))


def _some(lines: Lines, most: int) -> Lines:
    return lines._replace(source=lines.source[:most], target=lines.target[:most])
