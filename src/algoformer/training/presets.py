"""The papers' models as recipes, each field of which can be changed by name.

What a paper or its authors' code states is used. Where both are silent the value is assumed: batch, heads and
curriculum of AlgoFormer (those of Yang et al., the curriculum by the loss), and how Gatmiry et al. train.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch

import algoformer.tasks
from algoformer.models import (
    AlgoFormerConfig,
    LinearSelfAttentionConfig,
    LinearTransformerConfig,
    LoopedConfig,
    LSTMConfig,
    TransformerConfig,
)
from algoformer.task import Task
from algoformer.tasks import (
    Autoregression,
    ChainOfThought,
    Conditioned,
    DecisionTree,
    LinearRegression,
    LogisticRegression,
    NumberWords,
    Parallel,
    ReluNetwork,
    Representation,
    Shift,
    SparseLinear,
    Spectrum,
    Translation,
)
from algoformer.training.codec import encode, model_of
from algoformer.training.config import Ramp, TrainConfig
from algoformer.training.cost import cost
from algoformer.training.data import Size, resized
from algoformer.training.loop import hold


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model, a task and how the one is trained on the other."""

    model: Any
    task: Task[Any]
    train: TrainConfig


_LINEAR = LinearRegression(d=20, n=40, dense=True)
_CLASSIC = TrainConfig(
    steps=500_000,
    lr=1e-4,
    optimiser="adam",
    clip=None,
    warmup=0,
    schedule="constant",
    dims=Ramp(start=5, stop=20, every=2000),
    examples=Ramp(start=10, stop=40, by=2, every=2000),
)


def preset(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}{_nearest(name, PRESETS)}")
    return PRESETS[name]()


def override(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """The recipe with some fields changed: {"train.steps": "100", "model.loops": "8", "train.dims": "5:20:1:2000"}."""
    parts: dict[str, dict[str, Any]] = {}
    for path, text in changes.items():
        part, _, name = path.partition(".")
        if part not in ("model", "task", "train"):
            owners = [p for p in ("model", "task", "train") if hasattr(getattr(recipe, p), part)]
            hint = f" (did you mean {' or '.join(f'{p}.{path}' for p in owners)}?)" if owners else ""
            raise ValueError(f"a field must begin with model., task. or train.; got {path!r}{hint}")
        owner = getattr(recipe, part)
        hints = typing.get_type_hints(type(owner), _names(type(owner)))
        known = [f.name for f in fields(owner)]
        if name not in known:
            nearest = _nearest(name, known, f"{part}.")
            raise ValueError(f"{type(owner).__name__} has no field {name!r}{nearest}; it has {', '.join(known)}")
        parts.setdefault(part, {})[name] = parsed(path, str(text), hints[name])
    made = {part: replace(getattr(recipe, part), **values) for part, values in parts.items()}
    return _held(replace(recipe, **made))


def with_data(recipe: Recipe, data: str) -> Recipe:
    """The recipe on text of one's own: a folder of {train,valid,test}.{de,en}, plain or .gz."""
    if not isinstance(recipe.task, Parallel):
        raise ValueError(f"data must be given with a recipe for text, such as translation-algoformer; got {data}")
    own = Translation(data=data, vocabulary=recipe.model.vocabulary, mask=recipe.task.mask)
    return replace(recipe, task=replace(own, longest=recipe.model.positions or own.longest))


def task_named(name: str, changes: Mapping[str, object] | None = None) -> Task[Any]:
    """A task by the name of its class, with some fields changed: task_named("LinearRegression", {"n": "80"})."""
    known = {k: v for k, v in vars(algoformer.tasks).items() if isinstance(v, type) and issubclass(v, Task)}
    known = {k: v for k, v in known.items() if not inspect.isabstract(v) and not issubclass(v, Shift)}
    if name not in known:
        raise ValueError(f"task must be one of {', '.join(known)}; got {name!r}{_nearest(name, known)}")
    changed = {f"task.{field}": text for field, text in (changes or {}).items()}
    return override(Recipe(model=None, task=known[name](), train=TrainConfig()), changed).task


def describe(recipe: Recipe) -> dict[str, Any]:
    """What a run would be: its config, its variant, and what a step costs."""
    model = model_of(recipe.model)
    hold(model, recipe.task, recipe.train)
    configs = {part: encode(getattr(recipe, part)) for part in ("model", "task", "train")}
    return {"variant": model.variant, **configs, **cost(recipe.model, recipe.task, recipe.train)}


def parsed(name: str, text: str, kind: Any) -> Any:
    """A value of a field's type from its text."""
    options = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if type(None) in options and text.lower() in ("none", ""):
            return None
        for option in options:
            if option is not type(None):
                return parsed(name, text, option)
    if typing.get_origin(kind) is Literal:
        if text not in options:
            raise ValueError(
                f"{name} must be one of {', '.join(map(str, options))}; got {text!r}{_nearest(text, options)}"
            )
        return text
    if typing.get_origin(kind) is tuple:
        values = text.replace(",", " ").split()
        return tuple(parsed(name, value, options[0]) for value in values)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false; got {text!r}")
        return text.lower() == "true"
    if kind is Ramp:
        return _ramp(name, text)
    if kind in (int, float, str):
        try:
            return kind(text.replace("_", "") if kind is not str else text)
        except ValueError:
            raise ValueError(f"{name} must be {'an integer' if kind is int else 'a number'}; got {text!r}") from None
    raise ValueError(f"{name} cannot be set by name; set it in Python")


def _ramp(name: str, text: str) -> Ramp:
    """start:stop, start:stop:by or start:stop:by:every."""
    try:
        parts = [int(v) for v in text.split(":")]
        given = dict(zip(("start", "stop", "by", "every")[: max(len(parts), 2)], parts, strict=True))
    except ValueError as error:
        raise ValueError(f"{name} must be start:stop[:by[:every]]; got {text!r}") from error
    try:
        return Ramp(**given)
    except ValueError as error:
        raise ValueError(f"of {name}, {error}") from error


def _text(value: Ramp | tuple[int, int]) -> str:
    """A ramp or a range as it is written on the command line."""
    if isinstance(value, Ramp):
        return ":".join(str(v) for v in (value.start, value.stop, value.by, value.every) if v is not None)
    return ",".join(map(str, value))


def _held(recipe: Recipe) -> Recipe:
    """A recipe whose curricula end where its model and its task do: a change of the one alone would be ignored."""
    train, task = recipe.train, recipe.task
    for name, value in (("loops", train.loops), ("random_loops", train.random_loops)):
        if value is not None and recipe.model is not None:
            steps, own = model_of(recipe.model).steps, "loops" if hasattr(recipe.model, "loops") else "layers"
            if (value.stop if isinstance(value, Ramp) else value[1]) != steps:
                raise ValueError(f"train.{name} must end at model.{own} = {steps}; got {_text(value)}")
    for name, ramp, own in (("dims", train.dims, "d"), ("examples", train.examples, "n")):
        if ramp is not None:
            if ramp.stop > (most := getattr(task, own, ramp.stop)):
                raise ValueError(f"train.{name} must end at most at task.{own} = {most}; got {_text(ramp)}")
            resized(task, Size(None, None, 0)._replace(**{name: ramp.stop}))
    return recipe


def _names(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        found |= vars(sys.modules[parent.__module__])
    return found


def _nearest(name: str, known: Any, prefix: str = "") -> str:
    close = difflib.get_close_matches(name, [str(k) for k in known], 1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def _algoformer(task: Task[Any] = _LINEAR, *, long: bool = True, **changes: Any) -> Recipe:
    """Gao et al. 2024. The paper's 500,000 steps at 1e-4, or our shorter recipe: 3e-4 and a cosine."""
    config = AlgoFormerConfig(**changes)
    train = TrainConfig(window=15, dims=Ramp(start=5, stop=20) if hasattr(task, "active") else None)
    if long:
        train = replace(train, steps=500_000, lr=1e-4, schedule="constant")
    return Recipe(model=config, task=task, train=train if config.injection else replace(train, gradient_loops=20))


def _standard(model: Any) -> Recipe:
    """Garg et al. 2022; also the transformer and the LSTM of Fu et al. 2024."""
    return Recipe(model=model, task=_LINEAR, train=_CLASSIC)


def _yang(task: Task[Any], loops: int, window: int) -> Recipe:
    """Yang et al. 2024: loops b and window T grow as in their code, dimensions and points every 5,000 steps.

    Sparse functions are those of Garg et al., of active coordinates; in the code of Yang et al. any may count.
    """
    points = task.n  # type: ignore[attr-defined]
    sizes = {
        "dims": Ramp(start=5, stop=20, every=5000),
        "examples": Ramp(start=points // 4, stop=points, by=points // 20, every=5000),
        "loops": Ramp(start=window, stop=loops, by=2, every=500),
    }
    return Recipe(model=LoopedConfig(loops=loops), task=task, train=replace(_CLASSIC, window=window, **sizes))  # type: ignore[arg-type]


def _ahn(n: int, **changes: Any) -> Recipe:
    """Ahn et al. 2023, d = 5: one covariance in a random basis for good, eigenvalues of condition number 16."""
    sigma = Spectrum().fixed(5, torch.Generator().manual_seed(0))
    train = TrainConfig(
        steps=2000,
        batch=20_000,
        pool=20_000,
        optimiser="lbfgs",
        lr=0.1,
        clip=None,
        warmup=0,
        schedule="constant",
        precision="fp32",
    )
    task = LinearRegression(d=5, n=n, covariance=sigma, prior="inverse")
    return Recipe(model=LinearTransformerConfig(init=1e-4, **changes), task=task, train=train)


def _gatmiry() -> Recipe:
    """Gatmiry et al. 2024: one layer with symmetric A in 5 loops, d = 10; how it is trained is assumed."""
    model = LinearTransformerConfig(features=10, layers=5, looped=True, symmetric=True)
    train = TrainConfig(
        steps=10_000,
        batch=1000,
        lr=0.02,
        warmup=100,
        window=1,
        gradient_loops=5,
        loss="rao-blackwell",
        precision="fp32",
    )
    return Recipe(model=model, task=LinearRegression(d=10, n=20), train=train)


def _giannou(*, norm: bool) -> Recipe:
    """Giannou et al. 2024, least squares: 4 layers of linear attention, or 12 with LayerNorm, as their code trains.

    But for two things: their curriculum over dimensions leaves the inputs whole and truncates the weights alone, and
    their cosine ends 10,000 steps before the training does.
    """
    model = LinearSelfAttentionConfig(
        features=10,
        layers=12 if norm else 4,
        heads=4,
        width=64,
        scratch=10,
        hidden=False,
        mean=False,
        norm=norm,
        clip=None if norm else 10.0,
        init=0.02 if norm else 2e-4,
    )
    train = TrainConfig(
        steps=100_000,
        batch=2000,
        optimiser="adam",
        lr=1e-4,
        warmup=10_000,
        final_lr=5e-5,
        clip=None if norm else 10.0,
        dims=Ramp(start=2, stop=10, every=5000),
        examples=Ramp(start=10, stop=50, by=5, every=5000),
        precision="fp32",
    )
    task = LinearRegression(d=10, n=50, covariance=Conditioned(kappa=10.0, shared=True))
    return Recipe(model=model, task=task, train=train)


def _logistic() -> Recipe:
    """Giannou et al. 2024, logistic regression: a softmax encoder with ReLU; here it is asked labels, not weights."""
    model = TransformerConfig(features=5, positions=0, width=32, heads=4, layers=15, causal=False, activation="relu")
    train = TrainConfig(steps=1000, lr=1e-4, final_lr=5e-5, warmup=0, optimiser="adam", clip=None)
    return Recipe(model=model, task=LogisticRegression(d=5, n=26), train=train)


def _translation(model: type[Any], **changes: Any) -> Recipe:
    """Gao et al. 2024, section 5.5: T = 12, window 10, 5e-5; batch, steps, schedule and positions are assumed.

    One loop of the window enters the loss of a step, which has the mean of all ten. Without `--data` the text is the
    built-in corpus.
    """
    sizes = {"layers": 12} if model is TransformerConfig else {"loops": 12}
    config = model(**{"vocabulary": 8000, "positions": 128, **sizes, **changes})
    train = TrainConfig(steps=10_000, batch=8192, lr=5e-5, schedule="constant")
    if model is not TransformerConfig:
        train = replace(train, random_loops=(3, 12), window=1, gradient_loops=12)
    return Recipe(model=config, task=NumberWords(vocabulary=8000), train=train)


def _translation_ours() -> Recipe:
    """Our recipe for text: the source sees all of itself, dropout, smoothed labels, 1e-3 and a cosine."""
    base = _translation(AlgoFormerConfig, dropout=0.3)
    train = replace(base.train, lr=1e-3, warmup=1000, schedule="cosine", smoothing=0.1, weight_decay=0.01)
    return replace(base, task=replace(base.task, mask="prefix"), train=train)  # type: ignore[type-var]


def _numbers() -> Recipe:
    """The built-in corpus, by a model of less than a megabyte: minutes on two cores."""
    model = AlgoFormerConfig(vocabulary=400, positions=64, width=96, heads=4, loops=4)
    train = TrainConfig(
        steps=3000,
        batch=2048,
        lr=2e-3,
        warmup=300,
        random_loops=(2, 4),
        window=1,
        gradient_loops=4,
        checkpoint_every=500,
    )
    return Recipe(model=model, task=NumberWords(mask="prefix", size=60_000), train=train)


PRESETS: dict[str, Callable[[], Recipe]] = {
    "algoformer": lambda: _algoformer(long=False),
    "algoformer-long": _algoformer,
    "algoformer-eq2": lambda: _algoformer(injection=False),
    "algoformer-representation": lambda: _algoformer(Representation(dense=True)),
    "algoformer-autoregression": lambda: _algoformer(Autoregression(every=True), labels=20),
    "algoformer-chain": lambda: _algoformer(ChainOfThought(dense=True), labels=20, positions=512),
    "yang": lambda: _yang(_LINEAR, loops=20, window=15),
    "yang-sparse": lambda: _yang(SparseLinear(dense=True), loops=20, window=10),
    "yang-tree": lambda: _yang(DecisionTree(n=100, dense=True), loops=70, window=15),
    "yang-network": lambda: _yang(ReluNetwork(n=100, dense=True), loops=12, window=5),
    "garg": lambda: _standard(TransformerConfig()),
    "lstm": lambda: _standard(LSTMConfig()),
    "ahn": lambda: _ahn(20),
    "ahn-eq13": lambda: _ahn(10, form="eq13"),
    "gatmiry": _gatmiry,
    "giannou": lambda: _giannou(norm=False),
    "giannou-norm": lambda: _giannou(norm=True),
    "giannou-logistic": _logistic,
    "translation-algoformer": lambda: _translation(AlgoFormerConfig),
    "translation-looped": lambda: _translation(LoopedConfig),
    "translation-standard": lambda: _translation(TransformerConfig),
    "translation-ours": _translation_ours,
    "numbers": _numbers,
}
