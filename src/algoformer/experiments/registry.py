"""Which experiments there are."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from algoformer.checks import known
from algoformer.experiments.experiment import Experiment

EXPERIMENTS = (
    "ahn2023_fig1",
    "ahn2023_fig3",
    "gatmiry2024_fig1",
    "gatmiry2024_fig2",
    "gatmiry2024_fig3",
    "gatmiry2024_fig4",
    "giannou2024_fig2",
    "giannou2024_fig3",
    "giannou2024_fig5",
    "giannou2024_fig7",
    "giannou2024_fig8",
    "giannou2024_fig9",
    "fu2024_fig2",
    "fu2024_fig3",
    "fu2024_fig6",
    "fu2024_fig9",
    "fu2024_fig11",
    "fu2024_fig12",
    "fu2024_fig13",
    "fu2024_fig15",
    "fu2024_fig19",
    "fu2024_fig20",
    "fu2024_fig21",
    "fu2024_fig22",
    "fu2024_fig24",
    "fu2024_fig26",
    "fu2024_fig27",
    "fu2024_rates",
    "fu2024_table1",
    "algoformer2024_fig2a",
    "algoformer2024_fig2b",
    "algoformer2024_fig2c",
    "algoformer2024_fig3",
    "algoformer2024_fig4",
    "algoformer2024_fig5",
    "algoformer2024_table1",
    "ours_beyond",
    "ours_built_and_trained",
    "ours_chains",
    "ours_controls",
    "ours_exact_theory",
    "ours_headline",
    "ours_limits",
    "ours_linear",
    "ours_noise",
    "ours_outside",
    "ours_parts",
    "ours_represented",
    "ours_second_phi",
    "ours_similarity_null",
    "ours_stuck",
    "ours_weight_null",
)

ALSO = {"algoformer2025_table1": "algoformer2024_table1"}  # one paper has one year here


def load(name: str) -> Experiment:
    """The experiment of that name."""
    return cast(Experiment, import_module(f"algoformer.experiments.{known('an experiment', name, EXPERIMENTS)}"))
