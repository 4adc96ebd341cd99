"""Configs and tasks as JSON and back: only the classes of this package or of what is at hand, and no code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import algoformer.models
import algoformer.tasks
import algoformer.training.config
from algoformer.checks import number


def encode(value: Any, *, defaults: bool = True) -> Any:
    """A config, task or plain value as JSON; without `defaults` only the fields that differ from theirs."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = {f: encode(getattr(value, f.name), defaults=defaults) for f in dataclasses.fields(value) if f.init}
        inner = {f.name: v for f, v in told.items() if defaults or v != encode(_default(f), defaults=False)}
        return {"class": type(value).__name__, **inner}
    if isinstance(value, Tensor):
        return {"class": "Tensor", "dtype": str(value.dtype).removeprefix("torch."), "values": value.tolist()}
    if isinstance(value, list | tuple):
        return [encode(v, defaults=defaults) for v in value]
    if isinstance(value, dict):
        return {str(k): encode(v, defaults=defaults) for k, v in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return number(value)


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.default_factory is not dataclasses.MISSING:
        return f.default_factory()
    return {} if f.default is dataclasses.MISSING else f.default  # no config is a dict


def decode(value: Any, like: Any = None) -> Any:
    """The config or task that `encode` gave this JSON for; classes from elsewhere must be those of parts of `like`."""
    return _decode(value, classes() | _parts(like))


def _decode(value: Any, known: dict[str, type]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v, known) for v in value)
    if not isinstance(value, dict) or "class" not in value:
        return value
    inner = {k: _decode(v, known) for k, v in value.items() if k != "class"}
    if value["class"] == "Tensor":
        dtypes = {"float32": torch.float32, "float64": torch.float64}
        if inner.get("dtype") not in dtypes:
            raise ValueError(f"a tensor in a config must be float32 or float64; got {inner.get('dtype')!r}")
        return torch.tensor(inner["values"], dtype=dtypes[inner["dtype"]])
    if value["class"] not in known:
        raise ValueError(
            f"a config must name a class of algoformer; got {value['class']!r}. With a task or model of your own, ask "
            "in Python: `training.evaluate(model, task)` of `training.load(folder)` or your model's `from_pretrained`"
        )
    try:
        return known[value["class"]](**inner)
    except TypeError as error:
        raise ValueError(f"the fields of {value['class']} must be its own; {error}") from error


def classes() -> dict[str, type]:
    """Every config, task and part of a task, by name."""
    homes = (algoformer.models, algoformer.tasks, algoformer.training.config)
    found = (getattr(home, name) for home in homes for name in getattr(home, "__all__", vars(home)))
    return {v.__name__: v for v in found if isinstance(v, type) and dataclasses.is_dataclass(v)}


def _parts(value: Any) -> dict[str, type]:
    """The classes of a config or task and of its fields, by name."""
    if isinstance(value, list | tuple):
        return {name: kind for v in value for name, kind in _parts(v).items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return {}
    inner = [getattr(value, f.name) for f in dataclasses.fields(value) if f.init]
    return {type(value).__name__: type(value), **_parts(inner)}


def model_of(config: Any, generator: torch.Generator | None = None) -> algoformer.models.Model:
    """The model that a config is for: AlgoFormerConfig makes an AlgoFormer."""
    name = type(config).__name__.removesuffix("Config")
    kind = getattr(algoformer.models, name, None)
    if kind is None or not type(config).__name__.endswith("Config"):
        raise ValueError(f"model must be the config of one of algoformer.models; got {type(config).__name__}")
    made: algoformer.models.Model = kind(config, generator)
    return made


def config_in(folder: Path) -> dict[str, Any]:
    """What a folder's config.json says."""
    file = folder / "config.json"
    if not file.exists():
        raise ValueError(f"{folder} must hold a config.json; got none")
    try:
        about = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} must be JSON; {error}") from error
    if not isinstance(about, dict):
        raise ValueError(f"{file} must hold an object; got {type(about).__name__}")
    return about
