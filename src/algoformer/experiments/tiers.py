"""What is to be run on a GPU, in which order, and how long it takes by estimate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from algoformer.experiments.answers import sources
from algoformer.experiments.estimate import seconds
from algoformer.experiments.experiment import preset
from algoformer.experiments.protocol import PILOT_SEED
from algoformer.experiments.registry import load
from algoformer.experiments.store import Store
from algoformer.experiments.trained import encoded, key
from algoformer.training import Recipe

MINUTES = 9  # of a call
ERRORS = "measured", "errors"  # answers after which a comparison of softmax models or of linear attention needs no more


@dataclass(frozen=True)
class Row:
    """Experiments that are run together, with one number of seeds."""

    tier: str
    what: str
    names: tuple[str, ...]
    seeds: int = 1
    preset: str = "gpu"
    more: int = 0  # minutes that the machine must stay, where one training of the row cannot move and takes longer
    device: str = "cuda"

    @property
    def command(self) -> str:
        """What runs it, nine minutes at a time."""
        runs = f"algoformer reproduce {' '.join(self.names)} --preset {self.preset} --seeds {self.seeds}"
        if self.device == "cpu":
            return f"{runs} --device cpu"
        return f"{runs} --device cuda --minutes {MINUTES}{f' --more {self.more}' if self.more else ''}"


_READERS = (  # of one model
    "fu2024_fig2", "fu2024_fig3", "fu2024_fig9", "fu2024_fig12", "fu2024_fig13", "fu2024_fig27", "fu2024_table1",
)  # fmt: skip
ROWS = (
    Row("A", "stuck rate of 8 seeds, injection on and off", ("ours_stuck",)),
    Row("A", "representation: pilots, three models, 3 seeds", ("algoformer2024_fig2a",), 3),
    Row("A", "representation: without pre, without post", ("ours_parts",)),
    Row("A", "AR(3): pilots, three models, 3 seeds", ("algoformer2024_fig2b",), 3),
    Row("A", "chain of thought of 20 chains: pilots, three models, 3 seeds", ("algoformer2024_fig2c",), 3),
    Row("A", "linear regression, 3 seeds", ("ours_linear",), 3),
    Row("A", "headline, and its models outside of training", ("ours_headline", "ours_outside"), more=6),
    Row("B", "AlgoFormer beside solvers, noise 0, 0.1, 1; standard in TF32 beside bf16", ("algoformer2024_fig5",)),
    Row("B", "T and window, loops to 5 T", ("algoformer2024_fig3",)),
    Row("B", "layers and heads", ("algoformer2024_fig4",), more=6),
    Row("B", "Fu et al.: 12 layers one by one, and an LSTM", _READERS),
    Row("B", "Fu et al.: kappa = 100, and noisy", ("fu2024_fig15", "fu2024_fig19")),
    Row("B", "Fu et al.: 12 layers, one head, width 8 to 64", ("fu2024_fig6",)),
    Row("B", "Giannou et al.: linear attention", ("giannou2024_fig2", "giannou2024_fig3", "giannou2024_fig8")),
    Row("B", "Giannou et al.: with LayerNorm", ("giannou2024_fig5", "giannou2024_fig9")),
    Row("B", "Giannou et al.: logistic regression", ("giannou2024_fig7",)),
    Row("C", "equation 2, 22 untied layers, 3 layers a loop", ("ours_controls",)),
    Row("C", "a second Phi: three models", ("ours_second_phi",)),
    Row("C", "the headline after 500,000 steps", ("ours_headline",), 1, "paper", 15),
    Row("-", "Fu et al.: networks, one head of width 256, 24 layers",
        ("fu2024_fig20", "fu2024_fig21", "fu2024_fig22", "fu2024_fig24"), more=6),
    Row("-", "who computes the representation, where the models of Gao et al.'s Figure 2 are kept",
        ("ours_represented",), 3, "cpu", device="cpu"),
    Row("-", "the models of linear regression with noise, loop by loop, once they are kept", ("ours_noise",), 1, "cpu",
        device="cpu"),
    Row("-", "how near to Bayes the models of Gao et al.'s Figure 2c are", ("ours_chains",), 3, "cpu", device="cpu"),
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """A row of which runs have no result yet: how many, and the minutes they take by estimate."""

    row: Row
    missing: int
    minutes: float


def plan(out: str | Path) -> list[Planned]:
    """The rows that are not finished. A training that several rows share counts in the first.

    One whose errors are kept does not count: the figures of a comparison need no more of it.
    """
    store, seen, found = Store(Path(out)), set[str](), []
    measured = {_open(about) for about in sources(Path(out) / "answers") if about["what"] in ERRORS}
    for row in ROWS:
        missing, time = 0, 0.0
        for name in row.names:
            config = preset(load(name), row.preset)
            for seed in range(row.seeds):
                done = store.has(name, config, seed)
                missing += not done
                for recipe in _trainings(config, seed):
                    if (mine := key(recipe)) not in seen:
                        seen.add(mine)
                        known = done or _open(encoded(recipe, defaults=False)) in measured
                        time += 0 if known else seconds(recipe)
        if missing:
            found.append(Planned(row, missing, time / 60))
    return found


def _open(parts: dict[str, Any]) -> str:
    """Model, task and training without its learning rate, which pilots choose; a pilot has its own."""
    pilot = parts["train"].get("seed") == PILOT_SEED
    train = {name: v for name, v in parts["train"].items() if pilot or name != "lr"}
    return json.dumps([parts["model"], parts["task"], train], sort_keys=True)


def _trainings(config: object, seed: int) -> Iterator[Recipe]:
    for recipe in config.recipes() if hasattr(config, "recipes") else ():
        yield replace(recipe, train=replace(recipe.train, seed=recipe.train.seed or seed))
