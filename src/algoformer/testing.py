"""The contract of an Algorithm as executable laws.

A solver or model of your own gets its test suite in two lines:

    @pytest.mark.parametrize("law", laws(MySolver(steps=5)), ids=str)
    def test_my_solver(law): law()

Laws that do not apply are left out by name: `laws(model, without=["permutation", "no_pairs"])`.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.prompt import Dense, Prompt

Draw = Callable[[torch.Generator, torch.dtype], Any]


@dataclass(frozen=True)
class Law:
    """One sentence of the contract; calling it raises AssertionError where the algorithm breaks it."""

    name: str
    dtype: torch.dtype
    check: Callable[[], None]

    def __call__(self) -> None:
        self.check()

    def __str__(self) -> str:
        return f"{self.name}-{str(self.dtype).removeprefix('torch.')}"


def laws(
    algorithm: Algorithm[Any, Any],
    *,
    prompt: Draw | None = None,
    without: Collection[str] = (),
    dtypes: Collection[torch.dtype] = (torch.float64, torch.float32),
    tolerance: float = 1e4,
) -> list[Law]:
    """Every law of the contract for this algorithm, in each dtype.

    `prompt` draws the prompts (by default a small noisy linear regression with some pairs unseen); two answers agree
    when they differ by at most `tolerance` units of rounding of the largest of them.
    """
    unknown = set(without) - {name.removeprefix("_law_") for name in globals() if name.startswith("_law_")}
    if unknown:
        raise ValueError(f"without must name laws of the contract; got {sorted(unknown)}")
    draw = prompt or regression
    return [
        Law(name, dtype, lambda case=case, dtype=dtype: case(_Case(algorithm, draw, dtype, tolerance)))  # type: ignore[misc]
        for name, case in _laws()
        for dtype in dtypes
        if name not in without
    ]


def regression(generator: torch.Generator, dtype: torch.dtype) -> Prompt:
    """Three noisy linear problems, 12 pairs of which a quarter is unseen, 4 features, 2 labels, 3 queries."""
    x, queries = (torch.randn(3, n, 4, generator=generator, dtype=dtype) for n in (12, 3))
    w = torch.randn(3, 4, 2, generator=generator, dtype=dtype)
    y = x @ w + 0.1 * torch.randn(3, 12, 2, generator=generator, dtype=dtype)
    return Prompt(x, y, queries, torch.arange(12).expand(3, 12) % 4 != 1)


@dataclass(frozen=True)
class _Case:
    algorithm: Algorithm[Any, Any]
    draw: Draw
    dtype: torch.dtype
    tolerance: float

    def prompt(self, seed: int = 0) -> Any:
        return self.draw(torch.Generator().manual_seed(seed), self.dtype)

    def pairs(self) -> Prompt | None:
        p = self.prompt()
        return p if isinstance(p, Prompt) else None

    def with_ties(self) -> Iterator[Prompt]:
        """The pairs, and the same with inputs rounded to integers, where many are equal or equally far."""
        if (p := self.pairs()) is not None:
            yield p
            yield replace(p, x=p.x.round(), queries=p.queries.round())

    def numbers_of_steps(self, p: Any) -> tuple[int | None, int]:
        """Its own number for each prompt, and that for this one given for all."""
        return None, self.algorithm.horizon(self.algorithm.prepare(p))

    def agree(self, got: Tensor, wanted: Tensor, what: str) -> None:
        assert got.shape == wanted.shape, f"{what}: {tuple(got.shape)} is not {tuple(wanted.shape)}"
        got, wanted = got.detach(), wanted.detach()
        if wanted.numel():
            size = float(wanted.abs().max()) or 1.0
            allowed = self.tolerance * torch.finfo(self.dtype).eps * size
            apart = float((got - wanted).abs().max())
            assert apart <= allowed, f"{what}: {apart:.1e} apart, at most {allowed:.1e} allowed"


def _laws() -> Iterator[tuple[str, Callable[[_Case], None]]]:
    for name, value in globals().items():
        if name.startswith("_law_"):
            yield name.removeprefix("_law_"), value


def _law_determinism(c: _Case) -> None:
    p = c.prompt()
    assert torch.equal(c.algorithm.predict(p), c.algorithm.predict(p)), "two calls on one prompt differ"


def _law_shape_and_dtype(c: _Case) -> None:
    p = c.prompt()
    answer = c.algorithm.predict(p)
    assert answer.shape == p.asked, f"the answer is {tuple(answer.shape)}, asked was {p.asked}"
    assert answer.dtype == c.dtype, f"a {c.dtype} prompt was answered in {answer.dtype}"


def _law_trace_ends_in_predict(c: _Case) -> None:
    p = c.prompt()
    trace = c.algorithm.trace(p)
    assert len(trace) == c.algorithm.horizon(c.algorithm.prepare(p)) + 1, f"{len(trace)} entries in the trace"
    c.agree(trace[-1], c.algorithm.predict(p), "the last of the trace and predict")


def _law_more_steps_extend_the_trace(c: _Case) -> None:
    p = c.prompt()
    steps = c.algorithm.horizon(c.algorithm.prepare(p))
    if c.algorithm.limit is None:
        longer = c.algorithm.trace(p, steps + 3)
        c.agree(longer[: steps + 1], c.algorithm.trace(p, steps), "the first entries of a longer trace")
        return
    try:
        c.algorithm.trace(p, c.algorithm.limit + 1)
    except ValueError:
        return
    raise AssertionError(f"more than {c.algorithm.limit} steps were not refused")


def _law_negative_steps_are_refused(c: _Case) -> None:
    for run in (c.algorithm.predict, c.algorithm.trace):
        try:
            run(c.prompt(), -1)
        except ValueError:
            continue
        raise AssertionError("steps = -1 was not refused")


def _law_prompts_of_a_batch_do_not_meet(c: _Case) -> None:
    p = c.prompt()
    whole = c.algorithm.predict(p)
    c.agree(torch.cat([c.algorithm.predict(p[i : i + 1]) for i in range(len(whole))]), whole, "one prompt at a time")


def _law_queries_of_a_prompt_do_not_meet(c: _Case) -> None:
    if (p := c.pairs()) is None:
        return
    whole = c.algorithm.predict(p)
    each = [c.algorithm.predict(replace(p, queries=p.queries[:, i : i + 1])) for i in range(whole.shape[1])]
    c.agree(torch.cat(each, 1), whole, "one query at a time")


def _law_unseen_pairs_have_no_influence(c: _Case) -> None:
    for p in c.with_ties():
        seen, g = p.seen[:, :, None], torch.Generator().manual_seed(1)
        x, y = (v.where(seen, 10 * torch.randn(v.shape, generator=g, dtype=v.dtype)) for v in (p.x, p.y))
        c.agree(c.algorithm.predict(replace(p, x=x, y=y)), c.algorithm.predict(p), "other values in unseen pairs")


def _law_more_unseen_pairs_change_nothing(c: _Case) -> None:
    for p, more in itertools.product(c.with_ties(), (1, 200)):
        x, y, seen = (torch.cat([v, v.new_zeros(len(v), more, *v.shape[2:])], 1) for v in (p.x, p.y, p.seen))
        for steps in c.numbers_of_steps(p):
            wanted = c.algorithm.predict(p, steps)
            try:
                got = c.algorithm.predict(replace(p, x=x, y=y, seen=seen), steps)
            except ValueError:  # it has room for so many pairs only
                continue
            c.agree(got, wanted, f"{more} more pairs that are unseen")


def _law_permutation(c: _Case) -> None:
    if (p := c.pairs()) is None:
        return
    q = replace(p, x=p.x.flip(1), y=p.y.flip(1), seen=p.seen.flip(1))
    c.agree(c.algorithm.predict(q), c.algorithm.predict(p), "the examples in another order")


def _law_dense_is_predict_on_every_prefix(c: _Case) -> None:
    if (p := c.pairs()) is None:
        return
    dense = Dense(*p.pairs)
    for steps in c.numbers_of_steps(dense):
        each = [c.algorithm.predict(dense.prefix(i), steps) for i in range(dense.x.shape[1])]
        c.agree(c.algorithm.predict(dense, steps), torch.cat(each, 1), "a dense prompt and its prefixes")


def _law_no_pairs(c: _Case) -> None:
    if (p := c.pairs()) is None:
        return
    empty = replace(p, x=p.x[:, :0], y=p.y[:, :0], seen=p.seen[:, :0])
    unseen = replace(p, seen=torch.zeros_like(p.seen))
    for q, what in ((empty, "n = 0"), (unseen, "every pair unseen")):
        answer = c.algorithm.predict(q)
        assert answer.shape == q.asked, f"{what}: the answer is {tuple(answer.shape)}, asked was {q.asked}"
        assert not bool(answer.any()), f"{what}: the answer is not 0"


def _law_no_queries(c: _Case) -> None:
    if (p := c.pairs()) is None:
        return
    q = replace(p, queries=p.queries[:, :0])
    assert c.algorithm.predict(q).shape == q.asked, "m = 0: the answer has a wrong shape"


def _law_autograd_flows_or_is_refused_by_name(c: _Case) -> None:
    p, flows, refused = c.prompt(), False, False
    asked = [p] if c.pairs() is None else [p, Dense(p.x, p.y)]
    for p, field in itertools.product(asked, ("x", "y", "queries", "chains")):
        if not hasattr(p, field):
            continue
        value = getattr(p, field).clone().requires_grad_()
        try:
            answer = c.algorithm.predict(replace(p, **{field: value}))
        except ValueError as error:
            assert str(error).split()[0] in repr(c.algorithm), f"the refusal does not name the algorithm: {error}"
            refused = True
            continue
        if answer.requires_grad:
            (gradient,) = torch.autograd.grad(answer.sum(), value, allow_unused=True)
            assert gradient is None or bool(gradient.isfinite().all()), f"the gradient by {field} is not finite"
            flows = flows or (gradient is not None and bool(gradient.any()))
    assert flows or refused, "no gradient flows"


def _law_copies_agree(c: _Case) -> None:
    p = c.prompt()
    wanted = c.algorithm.predict(p)
    for twin in (copy.deepcopy(c.algorithm), pickle.loads(pickle.dumps(c.algorithm))):
        assert torch.equal(twin.predict(p), wanted), "a copy answers differently"
