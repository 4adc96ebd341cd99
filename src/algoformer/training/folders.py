"""Trained models from the folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import algoformer.models
from algoformer.models import Model
from algoformer.models.model import load_weights
from algoformer.task import Task
from algoformer.training import checkpoint
from algoformer.training.codec import config_in, decode, model_of
from algoformer.training.config import TrainConfig
from algoformer.training.step import averaged


def load(path: str | Path) -> Model:
    """The model in a folder: a run's (finished or not), one of its checkpoints, or what `save_pretrained` wrote.

    Of a run with averaged weights these are the averages, as if it had ended there.
    """
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"a model is loaded from a folder; got {path}")
    if checkpoint.NAME.fullmatch(folder.name) and not (folder / "config.json").exists():
        return _weighted(folder.parent.parent, checkpoint.read(folder), folder)
    about = config_in(folder)
    if isinstance(about.get("model"), str):
        kind = getattr(algoformer.models, about["model"], None)
        if about["model"] not in algoformer.models.__all__ or not isinstance(kind, type) or not issubclass(kind, Model):
            raise ValueError(f"config.json must name a model of algoformer.models; got {about['model']!r}")
        made: Model = kind.from_pretrained(folder)
        return made
    if (folder / "model" / "config.json").exists():
        return load(folder / "model")
    found = checkpoint.latest(folder / "checkpoints")
    if found is None:
        raise ValueError(f"{folder} must hold a model or a checkpoint; got neither")
    return _weighted(folder, found[1], folder)


def recipe_of(path: str | Path) -> tuple[Any, Task[Any], TrainConfig]:
    """The configs of model, task and training that a run's folder records; a checkpoint is of the run around it."""
    folder = Path(path).resolve()
    about = config_in(folder.parent.parent if checkpoint.NAME.fullmatch(folder.name) else folder)
    if isinstance(about.get("model"), str):
        raise ValueError(f"the task must be given (--task) with a model that was saved alone; got none with {path}")
    made = tuple(decode(about.get(part)) for part in ("model", "task", "train"))
    if not isinstance(made[1], Task) or not isinstance(made[2], TrainConfig):
        raise ValueError(f"{path} must be the folder of a run; its config.json is not a run's")
    return made


def _weighted(run: Path, tree: Any, source: Path) -> Model:
    model = model_of(decode(config_in(run).get("model")))
    load_weights(model, tree["weights"], str(source))
    averaged(model, tree.get("step", {}))
    return model.eval()
