"""Transformers that run algorithms in context: build them, train them, dissect them, solve with them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Name -> the module that defines it. Names load on first use, so that `import algoformer` imports no torch.
_HOME = {
    "Algorithm": "algorithm",
    "Diverged": "algorithm",
    "On": "algorithm",
    "Reduction": "algorithm",
    "rollout": "algorithm",
    "InContextClassifier": "estimators",
    "InContextRegressor": "estimators",
    "Chains": "prompt",
    "Dense": "prompt",
    "Prompt": "prompt",
    "Series": "prompt",
    "Text": "prompt",
    "Sample": "task",
    "Task": "task",
    "Truth": "task",
    "compile": "constructions",
    "train": "training",
    "pretrained": "zoo",
}

_MODULES = (
    "analysis",
    "claims",
    "constructions",
    "experiments",
    "models",
    "solvers",
    "tasks",
    "testing",
    "theory",
    "training",
    "zoo",
)

__all__ = [
    "Algorithm",
    "Chains",
    "Dense",
    "Diverged",
    "InContextClassifier",
    "InContextRegressor",
    "On",
    "Prompt",
    "Reduction",
    "Sample",
    "Series",
    "Task",
    "Text",
    "Truth",
    "analysis",
    "claims",
    "compile",
    "constructions",
    "experiments",
    "models",
    "pretrained",
    "rollout",
    "solvers",
    "tasks",
    "testing",
    "theory",
    "train",
    "training",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"algoformer.{name}")
    if name in _HOME:
        return getattr(import_module(f"algoformer.{_HOME[name]}"), name)
    raise AttributeError(f"module 'algoformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from algoformer import (
        analysis,
        claims,
        constructions,
        experiments,
        models,
        solvers,
        tasks,
        testing,
        theory,
        training,
        zoo,
    )
    from algoformer.algorithm import Algorithm, Diverged, On, Reduction, rollout
    from algoformer.constructions import compile
    from algoformer.estimators import InContextClassifier, InContextRegressor
    from algoformer.prompt import Chains, Dense, Prompt, Series, Text
    from algoformer.task import Sample, Task, Truth
    from algoformer.training import train
    from algoformer.zoo import pretrained
