"""A distribution over in-context problems: two draws, a function and its inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algoformer.algorithm import Algorithm

P = TypeVar("P", covariant=True)


@dataclass(frozen=True, eq=False)
class Truth:
    """What no algorithm may see: the answers before noise, and the latent that made them."""

    clean: Float[Tensor, "b o k"] | Int[Tensor, "b o"]
    latent: Any


@dataclass(frozen=True, eq=False)
class Sample(Generic[P]):
    """A batch of prompts, the answers as the prompt would hold them (of text, tokens), and the truth behind both."""

    prompt: P
    target: Float[Tensor, "b o k"] | Int[Tensor, "b o"]
    truth: Truth


class Task(ABC, Generic[P]):
    """A distribution over prompts. Tasks are frozen dataclasses: the object is its configuration.

    Samples live on the generator's device and are a function of its state alone. A batch is counted in prompts; one of
    text in tokens. `files` are what the folder of a run must keep of the task, beside its fields.
    """

    @abstractmethod
    def sample(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Sample[P]:
        """Draw a batch of prompts with their answers."""

    @property
    def files(self) -> dict[str, bytes]:
        """Contents by name."""
        return {}

    @property
    def shares(self) -> bool:
        """Do the prompts of one draw share what the next draw has anew, such as a covariance?"""
        return False

    @property
    def oracle(self) -> Algorithm[Any, Any] | None:
        """The Bayes predictor, or the best one known that sees only the prompt; None where there is none."""
        return None
