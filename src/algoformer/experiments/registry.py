"""Which experiments there are."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import cast

from algoformer.experiments.experiment import Experiment

EXPERIMENTS = (
    "ahn2023_fig1",
    "ahn2023_fig3",
    "gatmiry2024_fig1",
    "gatmiry2024_fig2",
    "gatmiry2024_fig3",
    "gatmiry2024_fig4",
    "fu2024_fig11",
    "fu2024_fig26",
    "fu2024_rates",
)


def load(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(EXPERIMENTS)}"
        raise ValueError(f"an experiment must be one that there is; got {name!r}: {hint}")
    return cast(Experiment, import_module(f"algoformer.experiments.{name}"))
