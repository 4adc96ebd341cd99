"""What a training run is: one frozen config."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal

from algoformer.checks import flags, number, one_of, real, whole


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """A size that grows from `start` to `stop` in steps of `by`: every so many training steps, or by the loss."""

    start: int
    stop: int
    by: int = 1
    every: int | None = None  # None: when the loss says so

    def __post_init__(self) -> None:
        for name in ("start", "by"):
            whole(name, getattr(self, name), 1)
        whole("stop", self.stop, self.start)
        if self.every is not None:
            whole("every", self.every, 1)

    def at(self, stage: int) -> int:
        """The size at a stage, counted from 0."""
        return min(self.start + self.by * stage, self.stop)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run.

    Loss: the mean over the last `window` loops (None: 15, or all there are; a layered model is read once, at its end),
    "eq6" as Gao et al. print it, or "rao-blackwell" (the expectation over weights and query taken exactly, for linear
    transformers); `robust` r turns an error e into log(1 + e / r). On text it is the cross-entropy of the asked tokens,
    in nats, with `smoothing` of the labels, and `batch` counts tokens. `gradient_loops` (None: the window; all layers
    of a layered model) is how many last loops carry gradient.

    Curricula: `dims` active input coordinates, `examples` in a prompt, `loops`; a ramp by the loss advances when
    (Z - L) / (Z - O) > `advance` and at least `advance_after` steps were spent, L the running loss, Z and O those of
    the zero predictor and of the task's oracle at that size. `random_loops` draws the number of loops of every step:
    (T - w + 1, T) with a window of 1 and gradient in all T loops is one loop of a window w a step, and has its mean.

    Data are a function of (seed, step); with a `pool`, rows of so many fixed prompts. Those of `ahead` steps are drawn
    at once, which helps where a sampler takes many small operations. `precision` "auto" is bf16 on a
    GPU and fp32 elsewhere; `fast` (None: on a GPU) runs whole steps as CUDA graphs, on hand-written `kernels` where
    they apply, otherwise compiled.
    """

    steps: int = 24_000
    batch: int = 64
    seed: int = 0
    loss: Literal["window", "eq6", "rao-blackwell"] = "window"
    window: int | None = None
    gradient_loops: int | None = None
    robust: float | None = None
    smoothing: float = 0.0
    optimiser: Literal["adamw", "adam", "lbfgs"] = "adamw"
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float | None = 1.0
    warmup: int = 500
    schedule: Literal["constant", "cosine"] = "cosine"
    final_lr: float = 0.0
    ema: float = 0.0
    dims: Ramp | None = None
    examples: Ramp | None = None
    loops: Ramp | None = None
    random_loops: tuple[int, int] | None = None
    advance: float = 0.6
    advance_after: int = 200
    pool: int | None = None
    ahead: int = 1
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    fast: bool | None = None
    kernels: bool = True
    deterministic: bool = False
    log_every: int = 50
    checkpoint_every: int = 1000
    keep: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Real) and not isinstance(value, int | float):  # another library's, in its precision
                object.__setattr__(self, field.name, number(value))
        flags(self)
        for name in ("steps", "batch", "ahead", "log_every", "checkpoint_every", "keep"):
            whole(name, getattr(self, name), 1)
        for name in ("seed", "warmup", "advance_after"):
            whole(name, getattr(self, name))
        for name in ("window", "gradient_loops", "pool"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        real("lr", self.lr, above=0)
        real("advance", self.advance)
        for name in ("weight_decay", "final_lr", "ema", "smoothing"):
            real(name, getattr(self, name), least=0)
        for name in ("clip", "robust"):
            if getattr(self, name) is not None:
                real(name, getattr(self, name), above=0)
        one_of("loss", self.loss, ("window", "eq6", "rao-blackwell"))
        one_of("optimiser", self.optimiser, ("adamw", "adam", "lbfgs"))
        one_of("schedule", self.schedule, ("constant", "cosine"))
        one_of("precision", self.precision, ("auto", "fp32", "tf32", "bf16"))
        for name in ("ema", "smoothing"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1; got {getattr(self, name)}")
        if self.final_lr > (most := self.lr if self.schedule == "cosine" else 0):
            raise ValueError(f"final_lr must be at most {most} with a {self.schedule} schedule; got {self.final_lr}")
        for name in ("dims", "examples", "loops"):
            if not isinstance(getattr(self, name), Ramp | None):
                raise TypeError(f"{name} must be a Ramp or None; got {getattr(self, name)!r}")
        pair = isinstance(self.betas, Sequence) and len(self.betas) == 2
        if not pair or not all(isinstance(b, Real) and 0 <= b < 1 for b in self.betas):
            raise ValueError(f"betas must be two numbers in [0, 1); got {self.betas}")
        if self.pool is not None and self.pool < self.batch:
            raise ValueError(f"pool must hold at least a batch of {self.batch} prompts; got {self.pool}")
        if self.pool is not None and self.ahead > 1:
            raise ValueError(f"ahead must be 1 beside a pool, which is drawn but once; got {self.ahead}")
        if self.optimiser == "lbfgs" and self.clip is not None:
            raise ValueError(f"clip must be None with lbfgs, whose line of descent it would bend; got {self.clip}")
        if self.optimiser == "lbfgs" and self.weight_decay:
            raise ValueError(f"weight_decay must be 0 with lbfgs, which has none; got {self.weight_decay}")
        ramps = (self.dims, self.examples, self.loops)
        exactly = self.loss == "rao-blackwell" and self.robust is not None  # the logarithm of a mean, and no mean
        if (self.loss == "eq6" or exactly) and any(r is not None and r.every is None for r in ramps):
            how = f"{self.loss} and robust" if exactly else self.loss
            raise ValueError(f"a ramp must go by the clock (every) with the loss {how}; got one that goes by the loss")
        if self.random_loops is not None:
            if self.loops is not None:
                raise ValueError("random_loops must be None beside a ramp of loops; got both")
            if not isinstance(self.random_loops, Sequence) or len(self.random_loops) != 2:
                raise ValueError(f"random_loops must be two numbers, fewest and most; got {self.random_loops}")
            low, high = self.random_loops
            whole("random_loops", low, 1)
            whole("random_loops", high, low)

    def rate(self, step: int) -> float:
        """The learning rate of a step: linear warm-up, then constant or a cosine down to `final_lr`."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.final_lr + (self.lr - self.final_lr) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


@dataclass(frozen=True)
class Plan:
    """What a config means for a model: how many loops enter the loss, and how many carry gradient."""

    window: int
    gradient: int

    @classmethod
    def of(cls, model: Any, config: TrainConfig) -> Plan:
        """Hold model and config to each other."""
        looped, steps = model.limit is None, model.steps
        most = steps
        if config.loops is not None:
            most = config.loops.stop
        if config.random_loops is not None:
            most = config.random_loops[1]
        if not looped and (config.loops is not None or config.random_loops is not None):
            raise ValueError(f"loops must be left alone for a layered model; got {type(model).__name__}")
        if most < 1:
            raise ValueError(f"a model must have at least one step to be trained; got {most}")
        window = config.window if config.window is not None else (min(15, most) if looped else 1)
        if window > most:
            raise ValueError(f"window must be at most the {most} steps of the model; got {window}")
        gradient = config.gradient_loops if config.gradient_loops is not None else (window if looped else steps)
        gradient = min(gradient, most)
        if gradient < most and not model.truncatable:
            frozen = "what comes before the first loop" if looped else "the first layers"
            raise ValueError(
                f"gradient_loops must be all {most} steps of this model, or {frozen} would never learn "
                f"(its loops do not see it again); got {gradient}"
            )
        return cls(window, gradient)
