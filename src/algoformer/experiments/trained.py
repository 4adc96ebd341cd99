"""Models that experiments share: trained once, kept by what they were trained as, loaded from then on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from algoformer.experiments.clock import TRAVELS
from algoformer.experiments.estimate import seconds
from algoformer.experiments.experiment import Missing, Site
from algoformer.experiments.ledger import Entry
from algoformer.files import settle
from algoformer.models import Model
from algoformer.training import (
    Interrupted,
    OutOfTime,
    Progress,
    Recipe,
    TrainingDiverged,
    Watch,
    checkpoint,
    load,
    train,
)
from algoformer.training.codec import encode, model_of


@dataclass(frozen=True, eq=False)
class Made:
    """A model as its training left it (None if that diverged), and the lines of the log."""

    model: Model | None
    log: list[dict[str, Any]]

    @property
    def outcome(self) -> str:
        """finished, stuck (it did not come to the full size by half of its steps) or diverged."""
        events = {row.get("event") for row in self.log}
        return "diverged" if self.model is None else "stuck" if "stuck" in events else "finished"


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


def trained(recipe: Recipe, site: Site, *, fresh: bool = True, watch: Watch | None = None) -> Model:
    """The model of a recipe, with the seed of the site: loaded if it is kept, else trained (resuming) and kept.

    Without `fresh` it must be there already.
    """
    found = made(recipe, site, fresh=fresh, watch=watch)
    if found.model is None:
        raise TrainingDiverged(f"the training of {key(placed(recipe, site))} diverged, and there is no model")
    return found.model


def made(
    recipe: Recipe,
    site: Site,
    *,
    fresh: bool = True,
    keep: bool = True,
    watch: Watch | None = None,
    purpose: str = "",
) -> Made:
    """The same with the log of the training, of which a divergence is one possible end; not kept without `keep`.

    A run whose checkpoint is too large to travel is begun only if it can end before the machine goes.
    """
    recipe = placed(recipe, site)
    name = key(recipe)
    home = None if site.models is None else site.models / name
    if home is not None and (home / "config.json").exists():
        whole = any(checkpoint.steps(home / "checkpoints"))
        return Made(load(home).to(site.device) if whole else None, _log(home))
    if not fresh:
        where = "no folder of models is given" if home is None else f"{home} is not there"
        raise Missing(f"a trained model is needed, and {where}: a run with --preset gpu that trains it must come first")
    if site.folder is None and watch is not None:  # the log is what is asked for
        with tempfile.TemporaryDirectory() as place:
            return made(recipe, replace(site, folder=Path(place)), keep=keep, watch=watch, purpose=purpose)
    folder = None if site.folder is None else site.folder / name
    begun = max(checkpoint.steps(folder / "checkpoints"), default=0) if folder is not None else 0
    model = model_of(recipe.model, torch.Generator().manual_seed(site.seed)).to(site.device)
    what = f"{purpose or 'training'}: {model.variant} on {type(recipe.task).__name__}, lr {recipe.train.lr:g}"
    limit = _Limit(recipe, model, site, begun)
    with _told(site, what, name, begun, recipe.train.steps) as entry:
        try:
            limit.before()
            result = train(
                model, recipe.task, recipe.train, folder, deadline=site.clock.deadline, progress=limit, watch=watch
            )
            entry.steps, entry.outcome = result.step, "stuck" if result.stuck else "finished"
        except TrainingDiverged:
            entry.steps, entry.outcome = limit.step, "diverged"
        except (OutOfTime, Interrupted):
            entry.steps = max(checkpoint.steps(folder / "checkpoints"), default=0) if folder is not None else 0
            entry.outcome = "stopped"
            raise
    found = Made(None if entry.outcome == "diverged" else model, [] if folder is None else _log(folder))
    if home is not None and keep:
        _keep(found, recipe, home)
    if folder is not None and (home is not None or not keep):
        shutil.rmtree(folder)
    return found


def kept(models: Path, seed: int) -> list[Path]:
    """The folders of the models that were trained with a seed."""
    homes = (file.parent for file in sorted(models.glob("*/config.json")) if file.parent.suffix != ".tmp")
    return [home for home in homes if json.loads((home / "config.json").read_text())["train"]["seed"] == seed]


EARLY = 10  # lines of the log after which the pace of a run is known


class _Limit:
    """Holds a run that cannot travel to the time it has: by an estimate before it begins, then by its own pace."""

    def __init__(self, recipe: Recipe, model: Model, site: Site, begun: int) -> None:
        self.recipe, self.site, self.step = recipe, site, begun
        copies = 4 if recipe.train.ema else 3  # weights, the two moments of the optimiser, and averages
        self.bytes = copies * sum(v.nbytes for v in model.parameters())
        self.bound = self.bytes > TRAVELS and not begun
        self.rate = 0.0

    def before(self) -> None:
        """The estimate, where there is one for this device."""
        if self.bound and self.site.device.startswith("cuda"):
            self._check(seconds(self.recipe))

    def __call__(self, p: Progress) -> None:
        self.step, self.rate = p.step, max(self.rate, p.rate)
        if self.bound and p.step == EARLY * self.recipe.train.log_every:
            self._check((p.steps - p.step) / self.rate)  # the best of the first lines: some compile

    def _check(self, time_needed: float) -> None:
        if not self.site.clock.fits(time_needed):
            left = max((self.site.clock.leave or 0) - time.time(), 0)
            raise OutOfTime(
                f"a run of {time_needed / 60:.1f} minutes was not begun in the {left / 60:.1f} that are left: "
                f"its checkpoint of {self.bytes / 1e6:.0f} MB does not travel, and must end on one machine"
            )


@contextmanager
def _told(site: Site, what: str, name: str, begun: int, steps: int) -> Iterator[Entry]:
    """The entry of a training in the ledger, if there is one."""
    if site.ledger is None:
        yield Entry(id="", at="", experiment="", seed=site.seed, config="", preset="", purpose=what, device="")
        return
    with replace(site.ledger, seed=site.seed).entry(what, key=name, begun=begun, of=steps) as entry:
        yield entry


def _log(folder: Path) -> list[dict[str, Any]]:
    file = folder / "log.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _keep(found: Made, recipe: Recipe, home: Path) -> None:
    """Weights in files that travel, the recipe, and the log: a folder that `load` knows."""
    draft = home.with_name(f"{home.name}.{os.getpid()}.tmp")
    draft.mkdir(parents=True, exist_ok=True)
    if found.model is not None:
        checkpoint.write(draft / "checkpoints", recipe.train.steps, {"weights": dict(found.model.state_dict())}, keep=1)
    (draft / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found.log))
    (draft / "config.json").write_text(json.dumps(encoded(recipe), indent=1) + "\n")
    settle(draft, home)
