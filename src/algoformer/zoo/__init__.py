"""Trained models that come with the package: nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from algoformer.checks import known

__all__ = ["NAMES", "pretrained"]

HOME = Path(__file__).parent
NAMES = tuple(sorted(folder.name for folder in HOME.iterdir() if (folder / "model.safetensors").is_file()))


def pretrained(name: str) -> Any:
    """The model of this name, ready to use: pretrained("numbers-de-en")(["eins"]). Its README.md is its card.

    Names are looked up here alone, never elsewhere.
    """
    from algoformer.training.translation import Translator

    return Translator.load(HOME / known("a pretrained model", name, NAMES))
