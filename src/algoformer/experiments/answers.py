"""What trained models and oracles answered, kept beside the results: figures are made again without the weights.

A file lies at the hash of what it was made from (the recipe of the model with its seed, or the task of the oracle, and
how many prompts it was asked). It holds tensors in float32, what it was made from, commit, versions and device, and a
hash of the tensors, which is checked when they are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from algoformer.experiments.experiment import Site
from algoformer.experiments.trained import encoded, placed
from algoformer.files import replace_file
from algoformer.provenance import provenance
from algoformer.task import Task
from algoformer.training import Recipe
from algoformer.training.codec import encode

FORM = 1  # raised when the same model or oracle gives other tensors


def kept(
    what: str, source: Recipe | Task[Any], sizes: Sequence[int], site: Site, make: Callable[[], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Tensors that follow from a trained model or a task, in float64: read where they are kept, else made and kept.

    What was just made is rounded as the disk rounds it, so that a figure made again has the same numbers.
    """
    if isinstance(source, Recipe):
        parts = encoded(placed(source, site), defaults=False)
    else:
        parts = {"task": encode(source, defaults=False)}
    text = json.dumps({"form": FORM, "what": what, "sizes": list(sizes), **parts}, sort_keys=True)
    file = None if site.answers is None else site.answers / f"{_hash(text.encode())[:16]}.safetensors"
    if file is not None and file.exists():
        found = _read(file, text)
    else:
        found = {name: v.to("cpu", torch.float32, copy=True).contiguous() for name, v in make().items()}
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            origin = json.dumps(provenance(site.device))
            replace_file(file, save(found, {"about": text, "sha256": _digest(found), "provenance": origin}))
    return {name: v.double() for name, v in found.items()}


def sources(folder: Path) -> Iterator[dict[str, Any]]:
    """What each file of a folder was made from: `what` and `sizes`, and model, task and training or the task alone."""
    for file in sorted(folder.glob("*.safetensors")):
        with _opened(file) as (_, about):
            yield json.loads(about["about"])


def _read(file: Path, text: str) -> dict[str, Tensor]:
    with _opened(file) as (opened, about):
        found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # it is no dict
    if about["about"] != text:
        raise ValueError(f"{file} must lie at the hash of what it was made from")
    if about["sha256"] != _digest(found):
        raise ValueError(f"{file} must hold the tensors it was written with; their hash is another")
    return found


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """A file of answers, and what it says of itself."""
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            if not {"about", "sha256"} <= set(about):
                raise ValueError(f"{file} must say what it was made from, and the hash of its tensors; it does not")
            yield opened, about
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} must be a safetensors file; {error}") from error


def _digest(tensors: Mapping[str, Tensor]) -> str:
    parts = (f"{name} {tuple(v.shape)} ".encode() + v.numpy().tobytes() for name, v in sorted(tensors.items()))
    return _hash(b"".join(parts))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
