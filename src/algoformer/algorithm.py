"""A transformer is an algorithm whose state is its residual stream: a first state, a step, a reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import whole
from algoformer.prompt import Chains, Dense, Prompt, Series

P = TypeVar("P")
Q = TypeVar("Q")
S = TypeVar("S")


class Diverged(ArithmeticError):
    """An answer that is not finite: the first step at which it was not, and the prompts it was asked for."""

    def __init__(self, algorithm: str, step: int, prompts: list[int]) -> None:
        super().__init__(algorithm, step, prompts)
        self.algorithm, self.step, self.prompts = algorithm, step, prompts

    def __str__(self) -> str:
        more = f" and {len(self.prompts) - 8} more" if len(self.prompts) > 8 else ""
        return f"{self.algorithm} is not finite from step {self.step} on, for prompts {self.prompts[:8]}{more}"


class Algorithm(ABC, Generic[P, S]):
    """A first state, a step and a reading; everything else is given.

    Index 0 is `init`. One step is one iteration, layer or pass of the loop body; a closed form has none. A state is
    whatever `init` chose: a tensor, or a NamedTuple that also holds what a step should not compute again. Nothing is
    kept on the object.

    An algorithm lists the `kinds` of prompt it answers. One that answers `Prompt` but not `Dense` is given the prefixes
    of a dense prompt as a batch of masked prompts. `limit` is the largest number of steps there is (a layered model's
    layers), None for one that runs on; `context` the most examples that it was trained to take, None for any number.
    """

    steps: int
    limit: int | None = None
    context: int | None = None
    kinds: ClassVar[tuple[type, ...]] = (Prompt,)

    @abstractmethod
    def init(self, p: P) -> S:
        """The state before the first step, and whatever no step should recompute."""

    @abstractmethod
    def step(self, p: P, s: S, t: int) -> S:
        """The state after step t; t counts from 0."""

    @abstractmethod
    def read(self, p: P, s: S) -> Float[Tensor, "b o k"]:
        """The predictions that a state holds."""

    def horizon(self, p: P) -> int:
        """How many steps `predict` takes on this prompt."""
        return self.steps

    def states(self, p: P, steps: int | None = None) -> Iterator[S]:
        """The steps + 1 states, one at a time; the only loop over steps."""
        return self._run(p, self._count(p, steps))

    def trace(self, p: Any, steps: int | None = None) -> Float[Tensor, "t b o k"]:
        """The predictions of every state. A diverging method is a result: values may be non-finite."""
        q = self.prepare(p)
        return torch.stack([self.read(q, s).reshape(p.asked) for s in self.states(q, steps)])

    def predict(self, p: Any, steps: int | None = None) -> Float[Tensor, "b o k"]:
        """The predictions of the last state; raises `Diverged` if one is not finite."""
        q = self.prepare(p)
        for s in self.states(q, steps):  # noqa: B007  # the last one is read
            pass
        answer = self.read(q, s).reshape(p.asked)
        finite = answer.isfinite().all(-1).all(-1)
        if not bool(finite.all()):
            raise Diverged(type(self).__name__, self._broke(q, steps), (~finite).nonzero()[:, 0].tolist())
        return answer

    def _broke(self, q: P, steps: int | None) -> int:
        """The first step whose predictions are not all finite, found by running once more."""
        with torch.no_grad():
            sick = (not bool(self.read(q, s).isfinite().all()) for s in self.states(q, steps))
            return next((t for t, broken in enumerate(sick) if broken), self._count(q, steps))

    def prepare(self, p: Any) -> P:
        """The prompt as init, step and read want it: p itself, or the prefixes of a dense one."""
        if isinstance(p, self.kinds):
            return p  # type: ignore[return-value]
        if isinstance(p, Dense) and Prompt in self.kinds:
            return p.expand()  # type: ignore[return-value]
        known = " or ".join(kind.__name__ for kind in self.kinds)
        raise TypeError(f"{type(self).__name__} answers a {known}; got {type(p).__name__}")

    def _count(self, p: P, steps: int | None) -> int:
        if steps is None:
            return self.horizon(p)
        whole("steps", steps)
        if self.limit is not None and steps > self.limit:
            raise ValueError(f"{type(self).__name__} has {self.limit} steps; got steps = {steps}")
        return steps

    def _run(self, p: P, count: int) -> Iterator[S]:
        s = self.init(p)
        yield s
        for t in range(count):
            s = self.step(p, s, t)
            yield s


class Reduction(ABC, Generic[Q]):
    """A way to see a prompt as a regression, and the regression's answer as the prompt's."""

    kinds: ClassVar[tuple[type, ...]]

    @abstractmethod
    def regression(self, p: Q) -> Prompt | Dense:
        """The regression problem inside the prompt."""

    @abstractmethod
    def answer(self, p: Q, out: Float[Tensor, "..."]) -> Float[Tensor, "b o k"]:
        """What the regression's answer says about the prompt."""


class Reduced(NamedTuple):
    """The regression as the solver sees it, the shape of its answer, and the solver's state."""

    prompt: Any
    asked: tuple[int, int, int]
    state: Any


@dataclass(frozen=True)
class On(Algorithm[Any, Reduced]):
    """A regression solver at work on another kind of prompt: `On(GradientDescent(steps=20), Windows(q=3))`."""

    solver: Algorithm[Any, Any]
    reduction: Reduction[Any]

    def __post_init__(self) -> None:
        for name, value, kind in (("solver", self.solver, Algorithm), ("reduction", self.reduction, Reduction)):
            if not isinstance(value, kind):
                article = "an" if kind is Algorithm else "a"
                raise TypeError(f"{name} must be {article} {kind.__name__}; got {type(value).__name__}")

    @property
    def steps(self) -> int:  # type: ignore[override]
        return self.solver.steps

    @property
    def limit(self) -> int | None:  # type: ignore[override]
        return self.solver.limit

    @property
    def context(self) -> int | None:  # type: ignore[override]
        return self.solver.context

    @property
    def kinds(self) -> tuple[type, ...]:  # type: ignore[override]
        return self.reduction.kinds

    def horizon(self, p: Any) -> int:
        return self.solver.horizon(self.solver.prepare(self.reduction.regression(p)))

    def init(self, p: Any) -> Reduced:
        r = self.reduction.regression(p)
        q = self.solver.prepare(r)
        return Reduced(q, r.asked, self.solver.init(q))

    def step(self, p: Any, s: Reduced, t: int) -> Reduced:
        return s._replace(state=self.solver.step(s.prompt, s.state, t))

    def read(self, p: Any, s: Reduced) -> Tensor:
        return self.reduction.answer(p, self.solver.read(s.prompt, s.state).reshape(s.asked))


def rollout(algorithm: Algorithm[Any, Any], prompt: Series | Chains, length: int) -> Float[Tensor, "b length d"]:
    """The next `length` values, each predicted from the prompt and the predictions before it."""
    if not isinstance(prompt, Series | Chains):
        raise TypeError(f"a rollout continues a Series or a Chains; got {type(prompt).__name__}")
    whole("length", length)
    if prompt.every if isinstance(prompt, Series) else prompt.partial is None:
        raise ValueError("a rollout continues a prompt that asks one value, its next; this asks every value")
    answers = [prompt.chains[:, :0, 0] if isinstance(prompt, Chains) else prompt.x[:, :0]]
    for i in range(length):
        answers.append(algorithm.predict(prompt))
        if i < length - 1:
            prompt = prompt.extended(answers[-1])
    return torch.cat(answers, 1)
