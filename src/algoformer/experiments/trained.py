"""Models that experiments share: trained once, kept by what they were trained as, loaded from then on."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from algoformer.experiments.experiment import Missing, Site
from algoformer.files import settle
from algoformer.models import Model
from algoformer.training import Recipe, load, train
from algoformer.training.codec import encode, model_of


def key(recipe: Recipe) -> str:
    """The hash of model, task and training. Only what differs from the defaults counts: a new field moves no model."""
    text = json.dumps(list(encoded(recipe, defaults=False).values()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def encoded(recipe: Recipe, *, defaults: bool = True) -> dict[str, Any]:
    """Model, task and training as JSON."""
    return {part: encode(getattr(recipe, part), defaults=defaults) for part in ("model", "task", "train")}


def placed(recipe: Recipe, site: Site) -> Recipe:
    """The recipe with the seed of a site."""
    return replace(recipe, train=replace(recipe.train, seed=site.seed))


def trained(recipe: Recipe, site: Site, *, fresh: bool = True) -> Model:
    """The model of a recipe, with the seed of the site: loaded if it is kept, else trained (resuming) and kept.

    Without `fresh` it must be there already.
    """
    recipe = placed(recipe, site)
    home = None if site.models is None else site.models / key(recipe)
    if home is not None and (home / "config.json").exists():
        return load(home).to(site.device)
    if not fresh:
        where = "no folder of models is given" if home is None else f"{home} is not there"
        raise Missing(f"a trained model is needed, and {where}: run with --preset gpu first")
    model = model_of(recipe.model, torch.Generator().manual_seed(site.seed)).to(site.device)
    train(model, recipe.task, recipe.train, None if site.folder is None else site.folder / key(recipe))
    if home is not None:
        _keep(model, recipe, home)
    return model


def kept(models: Path, seed: int) -> list[Path]:
    """The folders of the models that were trained with a seed."""
    homes = (file.parent for file in sorted(models.glob("*/recipe.json")) if file.parent.suffix != ".tmp")
    return [home for home in homes if json.loads((home / "recipe.json").read_text())["train"]["seed"] == seed]


def _keep(model: Model, recipe: Recipe, home: Path) -> None:
    draft = home.with_name(f"{home.name}.{os.getpid()}.tmp")
    model.save_pretrained(draft)
    (draft / "recipe.json").write_text(json.dumps(encoded(recipe), indent=1) + "\n")
    settle(draft, home)
