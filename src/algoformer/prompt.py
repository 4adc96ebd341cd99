"""What an algorithm may see and what it is asked: the prompts.

One legend of shapes for the whole package: b batch, n examples, m queries, d features, k labels, o answers asked
for, s tokens, e stream width, h heads, t step or layer (always axis 0).
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, fields, replace
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algoformer.checks import one_of, whole

B = TypeVar("B", bound="_Batch")


class _Batch:
    """A frozen dataclass of tensors that share their first axis and a dtype."""

    def to(self: B, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> B:
        """The same prompt with its numbers in another dtype or on another device."""
        return self._map(lambda v: v.to(device=device, dtype=dtype if v.is_floating_point() else None))

    def __getitem__(self: B, rows: slice | Tensor) -> B:
        """The prompts of the given rows of the batch."""
        if not isinstance(rows, slice | Tensor):
            raise TypeError(f"rows of a batch must be a slice or a tensor; got {type(rows).__name__}")
        return self._map(lambda v: v[rows])

    def _map(self: B, change: Any) -> B:
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        tensors = {name: change(v) for name, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **tensors, check=False)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Prompt(_Batch):
    """Examples (x_i, y_i) and queries whose labels are asked; an unseen pair has no influence.

    n = 0 and m = 0 are legal. `check=False` skips the search for NaN and infinity, which waits for a GPU.
    """

    x: Float[Tensor, "b n d"]
    y: Float[Tensor, "b n k"]
    queries: Float[Tensor, "b m d"]
    seen: Bool[Tensor, "b n"] = None  # type: ignore[assignment]  # None at the door: every pair is seen
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        sizes = expect(check, x=(self.x, "b n d"), y=(self.y, "b n k"), queries=(self.queries, "b m d"))
        if self.seen is None:
            object.__setattr__(self, "seen", self.x.new_ones(self.x.shape[:2], dtype=torch.bool))
        elif not isinstance(self.seen, Tensor) or self.seen.dtype != torch.bool:
            raise TypeError(f"seen must be a bool tensor; got {_kind(self.seen)}")
        elif self.seen.shape != (sizes["b"], sizes["n"]):
            raise ValueError(f"seen must be (b, n) = {(sizes['b'], sizes['n'])}; got {tuple(self.seen.shape)}")
        elif self.seen.device != self.x.device:
            raise ValueError(f"seen must be on {self.x.device} as x is; got {self.seen.device}")

    @property
    def asked(self) -> tuple[int, int, int]:
        """The shape (b, o, k) of an answer."""
        return self.x.shape[0], self.queries.shape[1], self.y.shape[2]

    @property
    def pairs(self) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n k"]]:
        """The examples with the unseen ones at zero, where a least-squares method does not notice them."""
        seen = self.seen[:, :, None]
        return self.x.where(seen, 0.0), self.y.where(seen, 0.0)

    @property
    def seen_first(self) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n k"], Bool[Tensor, "b n"]]:
        """The pairs with the unseen ones at zero and behind the seen ones, and which are seen."""
        order = (~self.seen).to(torch.int8).argsort(dim=1, stable=True)
        x, y = (v.gather(1, order[:, :, None].expand_as(v)) for v in self.pairs)
        return x, y, self.seen.gather(1, order)

    @property
    def counts(self) -> Float[Tensor, " b"]:
        """How many pairs each prompt shows."""
        return self.seen.sum(1).to(self.x.dtype)


@dataclass(frozen=True, eq=False)
class Dense(_Batch):
    """The same pairs, asking every y_i from the pairs before it: n answers."""

    x: Float[Tensor, "b n d"]
    y: Float[Tensor, "b n k"]
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        expect(check, x=(self.x, "b n d"), y=(self.y, "b n k"))

    @property
    def asked(self) -> tuple[int, int, int]:
        """The shape (b, o, k) of an answer."""
        return tuple(self.y.shape)  # type: ignore[return-value]

    def prefix(self, i: int) -> Prompt:
        """The prompt of answer i: the first i pairs, and x_i as its one query."""
        if not 0 <= i < self.x.shape[1]:
            raise ValueError(f"a prefix must end before one of the {self.x.shape[1]} pairs; got {i}")
        return Prompt(self.x[:, :i], self.y[:, :i], self.x[:, i : i + 1], check=False)

    def expand(self) -> Prompt:
        """All prefixes as one batch of b n masked prompts."""
        b, n, d = self.x.shape
        before = torch.ones(n, n, dtype=torch.bool, device=self.x.device).tril(-1)

        def repeat(v: Tensor) -> Tensor:
            return v[:, None].expand(b, n, *v.shape[1:]).flatten(0, 1)

        return Prompt(repeat(self.x), repeat(self.y), self.x.reshape(b * n, 1, d), before.repeat(b, 1), check=False)


@dataclass(frozen=True, eq=False)
class Series(_Batch):
    """A series x_1 .. x_n, asking x_{n+1}; with `every`, asking each x_t from those before it."""

    x: Float[Tensor, "b n d"]
    every: bool = False
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        expect(check, x=(self.x, "b n d"))

    @property
    def asked(self) -> tuple[int, int, int]:
        """The shape (b, o, k) of an answer."""
        b, n, d = self.x.shape
        return b, n if self.every else 1, d

    def extended(self, answer: Float[Tensor, "b 1 d"]) -> Series:
        """The series with one more value."""
        if self.every:
            raise ValueError("only a series that asks its next value can be extended; this one asks every value")
        return replace(self, x=torch.cat([self.x, answer], 1), check=False)


@dataclass(frozen=True, eq=False)
class Chains(_Batch):
    """Chains of states s^0 .. s^{c-1}, and the first l states of one more, asking its next state.

    Without a partial chain every state after the first of its chain is asked, from the chains before it and the
    states before it: o = n (c - 1), chain by chain.
    """

    chains: Float[Tensor, "b n c d"]
    partial: Float[Tensor, "b l d"] | None = None
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if self.partial is None:
            sizes = expect(check, chains=(self.chains, "b n c d"))
        else:
            sizes = expect(check, chains=(self.chains, "b n c d"), partial=(self.partial, "b l d"))
            if not 1 <= sizes["l"] < sizes["c"]:
                raise ValueError(f"partial must hold 1 to c - 1 = {sizes['c'] - 1} states; got {sizes['l']}")
        if sizes["c"] < 2:
            raise ValueError(f"a chain must have at least 2 states; got {sizes['c']}")

    @property
    def asked(self) -> tuple[int, int, int]:
        """The shape (b, o, k) of an answer."""
        b, n, c, d = self.chains.shape
        return b, n * (c - 1) if self.partial is None else 1, d

    def extended(self, answer: Float[Tensor, "b 1 d"]) -> Chains:
        """The prompt after one more state of the partial chain."""
        if self.partial is None:
            raise ValueError("only a partial chain can be extended; this prompt asks every state")
        return replace(self, partial=torch.cat([self.partial, answer], 1), check=False)


@dataclass(frozen=True, eq=False)
class Text(_Batch):
    """Sentences as tokens of a vocabulary, [source] <sep> [target so far], asking the token after every token.

    `begin` is where each target begins, behind its separator. With the mask "causal" a token sees itself and those
    before it; with "prefix" the tokens before `begin` also see each other. Whatever stands behind a sentence is unseen
    by it. `first` is the place of the first token (None: 0): a text may go on where another one ended.
    """

    tokens: Int[Tensor, "b s"]
    begin: Int[Tensor, " b"]
    vocabulary: int
    mask: Literal["causal", "prefix"] = "causal"
    first: Int[Tensor, " b"] | None = None
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        given = {"tokens": self.tokens, "begin": self.begin} | ({} if self.first is None else {"first": self.first})
        for name, value in given.items():
            if not isinstance(value, Tensor) or value.dtype != torch.int64:
                raise TypeError(f"{name} must be a tensor of torch.int64; got {_kind(value)}")
            if value.ndim != (2 if name == "tokens" else 1) or value.shape[:1] != self.tokens.shape[:1]:
                wanted = "(b, s)" if name == "tokens" else f"(b,) = ({self.tokens.shape[0]},)"
                raise ValueError(f"{name} must be {wanted}; got {tuple(value.shape)}")
        whole("vocabulary", self.vocabulary, 1)
        one_of("mask", self.mask, ("causal", "prefix"))
        if check and self.tokens.numel():
            low, high = (int(v) for v in self.tokens.aminmax())
            if low < 0 or high >= self.vocabulary:
                raise ValueError(f"tokens must be 0 to {self.vocabulary - 1}; got {low} to {high}")
            low, high = (int(v) for v in self.begin.aminmax())
            if low < 0 or high > self.tokens.shape[1]:
                raise ValueError(f"begin must be 0 to s = {self.tokens.shape[1]}; got {low} to {high}")

    @property
    def asked(self) -> tuple[int, int, int]:
        """The shape (b, o, k) of an answer: a score for every token of the vocabulary."""
        b, s = self.tokens.shape
        return b, s, self.vocabulary


def expect(check: bool, /, **named: tuple[Tensor, str]) -> dict[str, int]:
    """Hold named tensors to shapes in the letters of the legend; give the size of each letter.

    They must be floating point, of one dtype, on one device and, if `check`, finite.
    """
    sizes: dict[str, int] = {}
    first = ""
    for name, (value, legend) in named.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise TypeError(f"{name} must be a tensor of floating-point numbers; got {_kind(value)}")
        letters = legend.split()
        wanted = [sizes.get(letter, letter) for letter in letters]
        fits = value.ndim == len(letters) and all(
            w in (letter, got) for w, letter, got in zip(wanted, letters, value.shape, strict=True)
        )
        if not fits:
            known = f" = ({', '.join(map(str, wanted))})" if sizes else ""
            raise ValueError(f"{name} must be ({', '.join(letters)}){known}; got {tuple(value.shape)}")
        sizes |= zip(letters, value.shape, strict=True)
        first = first or name
        other = named[first][0]
        if value.dtype != other.dtype or value.device != other.device:
            raise ValueError(
                f"{name} must be {other.dtype} on {other.device} as {first} is; got {value.dtype} on {value.device}"
            )
        if check and not bool(value.isfinite().all()):
            where = tuple(value.isfinite().logical_not().nonzero()[0].tolist())
            raise ValueError(f"{name} must be finite; got {value[where].item()} at {where}")
    return sizes


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
