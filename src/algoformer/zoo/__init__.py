"""Trained models that come with the package: nothing is fetched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from algoformer.checks import known

__all__ = ["NAMES", "TRANSLATORS", "about", "pretrained"]

HOME = Path(__file__).parent
NAMES = tuple(sorted(folder.name for folder in HOME.iterdir() if (folder / "model.safetensors").is_file()))
TRANSLATORS = tuple(name for name in NAMES if (HOME / name / "tokenizer.json").is_file())


def pretrained(name: str) -> Any:
    """The model of this name, ready to use; its README.md is its card.

    `InContextRegressor(method=pretrained("linear-regression-d20"))`, `pretrained("numbers-de-en")(["eins"])`. Names are
    looked up here alone, never elsewhere.
    """
    from algoformer.training import load
    from algoformer.training.translation import Translator

    folder = HOME / known("a pretrained model", name, NAMES)
    facts = about(name)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != facts["sha256"]:
        raise ValueError(f"{folder / 'model.safetensors'} must be as it was shipped; its checksum differs")
    if name in TRANSLATORS:
        return Translator.load(folder)
    model = load(folder).float()
    model.context = facts["context"]
    return model


def about(name: str) -> dict[str, Any]:
    """What is recorded of a model: its checksum, its task; of one of numbers also its context and its error."""
    facts: dict[str, Any] = json.loads((HOME / known("a pretrained model", name, NAMES) / "about.json").read_bytes())
    return facts
