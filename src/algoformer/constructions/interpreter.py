"""The meaning of a program, executed directly; also what every way of running one has in common."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.checks import one_of
from algoformer.constructions.encoder import Layout
from algoformer.constructions.instructions import Copy, Equal, Instruction, Leaky, Linear, Mac, Table, groups
from algoformer.constructions.program import Place, Program, Support, carried, receives
from algoformer.prompt import Chains, Dense, Prompt, Series

Outside = Literal["raise", "warn", "ignore"]


class State(NamedTuple):
    """The residual stream, and which token is what."""

    stream: Float[Tensor, "b s e"]
    layout: Layout


class Held(NamedTuple):
    """A layer, and its multiply-accumulates with the groups that receive and the largest |<key, query>|."""

    place: Place
    scores: tuple[tuple[Mac, tuple[str, ...], float], ...]


class OutOfRange(UserWarning):
    """A prompt is outside the range that the weights were made for."""


class Machine(Algorithm[Any, State]):
    """Runs a program: encode and pre, passes of the loop, post and read. How a layer is run is left open."""

    program: Program

    @property
    def kinds(self) -> tuple[type, ...]:  # type: ignore[override]
        return (self.program.kind,)

    @property
    def steps(self) -> int:  # type: ignore[override]
        return self.program.steps

    @property
    def limit(self) -> int | None:  # type: ignore[override]
        return None if self.program.passes is None else len(self.program.passes)

    @abstractmethod
    def run(self, section: str, state: State) -> State:
        """The state after the layers of a section: "pre", "post", or the number of a step."""

    def init(self, p: Any) -> State:
        z, layout = self.program.encoder.encode(self.program.stream, fold(self.program, p))
        return self.run("pre", State(z, layout))

    def step(self, p: Any, s: State, t: int) -> State:
        return self.run(str(t if self.program.passes is not None else 0), s)

    def read(self, p: Any, s: State) -> Float[Tensor, "b o k"]:
        z, layout = self.run("post", s)
        at = self.program.encoder.tokens(layout, groups(self.program.at)).nonzero()[:, 0]
        out = self.program.stream.of(self.program.read, z[:, at[:1] if self.program.first else at])
        b, o, k = p.asked
        folds = _folds(self.program, p)
        out = out.reshape(b, folds[0], folds[1], out.shape[1], out.shape[2])
        return out.transpose(2, 3).reshape(b, o, k)


class Interpreter(Machine):
    """Executes a program as it is written, tabulated functions exactly, in the dtype of the prompt."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sections = program.sections()

    def run(self, section: str, state: State) -> State:
        z, layout = state
        for place in self.sections[section]:
            z = execute(self.program, place, z, layout)
        return State(z, layout)


def execute(program: Program, place: Place, z: Float[Tensor, "b s e"], layout: Layout) -> Float[Tensor, "b s e"]:
    """The stream after one layer."""
    for half in (True, False):
        now = z.clone()
        for i in place.layer:
            if i.attends == half:
                now[..., program.stream.rows[i.target]] += _change(program, i, z, layout, place.before)
        z = now
    return z


def attended(
    program: Program, i: Mac | Copy, z: Float[Tensor, "b s e"], layout: Layout, support: Support | None = None
) -> Bool[Tensor, "b s s2"]:
    """Which keys each query attends to, [batch, query, key]; groups without a query, by their support, to none."""
    encoder, of = program.encoder, program.stream.of
    keys = encoder.tokens(layout, groups(i.keys)).expand_as(layout.seen)
    if not carried(program, i):
        keys = keys & layout.seen
    wanted = encoder.names if i.queries is None else groups(i.queries)
    asking = wanted if support is None else tuple(receives(program, i, support))
    queries = encoder.tokens(layout, asking).expand(keys.shape)
    if i.block is not None:
        queries = queries & (of(i.block, z)[..., 0] <= 0)
    if isinstance(i, Mac) and i.mask is not None:
        keys = keys & (of(i.mask, z)[..., 0] <= 0)
    pairs = queries[:, :, None] & keys[:, None]
    codes = (i.key, i.query) if isinstance(i, Copy) else i.match
    if codes is not None:
        pairs = pairs & (of(codes[1], z) @ of(codes[0], z).mT == 0)
    return pairs.tril() if program.causal else pairs


def fold(program: Program, p: Any) -> Any:
    """The prompt with as many queries and labels as the program answers at once, the others in the batch."""
    if isinstance(p, Series) and p.every:
        raise ValueError(f"{program.name} answers a Series that asks its next value; this one asks every value")
    if isinstance(p, Chains) and p.partial is None:
        raise ValueError(f"{program.name} answers a Chains with a partial chain; this one has none")
    if isinstance(p, Series | Chains):
        return p
    queries, labels = _folds(program, p)
    if queries == labels == 1:
        return p

    def spread(v: Tensor) -> Tensor:
        return v[:, None, None].expand(len(v), queries, labels, *v.shape[1:])

    y = p.y.unflatten(2, (labels, -1)).movedim(2, 1)[:, None]  # [b 1 labels n k]
    y = y.expand(-1, queries, -1, -1, -1).flatten(0, 2)
    if isinstance(p, Dense):
        return Dense(spread(p.x).flatten(0, 2), y, check=False)
    none = p.queries.new_zeros(len(p.queries), 0, 1, p.queries.shape[2])
    asked = p.queries.unflatten(1, (queries, -1)) if queries else none
    asked = asked[:, :, None].expand(-1, -1, labels, -1, -1).flatten(0, 2)
    return Prompt(spread(p.x).flatten(0, 2), y, asked, spread(p.seen).flatten(0, 2), check=False)


def _folds(program: Program, p: Any) -> tuple[int, int]:
    """Into how many parts the queries and the labels of a prompt are folded."""
    if isinstance(p, Series | Chains):
        return 1, 1
    k = p.y.shape[2]
    if program.labels not in (1, k):
        raise ValueError(f"{program.name} answers {program.labels} labels at once; got {k}")
    one = program.answers == 1 and isinstance(p, Prompt)
    return (p.queries.shape[1] if one else 1), (k if program.labels == 1 else 1)


def _change(program: Program, i: Instruction, z: Tensor, layout: Layout, support: Support) -> Tensor:
    """What an instruction adds to its register."""
    of = program.stream.of
    if isinstance(i, Mac | Copy):
        pairs = attended(program, i, z, layout, support)
        value = i.scale * of(i.value, z)
        if isinstance(i, Copy):
            return pairs.to(z) @ value
        scores = (of(i.query, z) @ of(i.key, z).mT).where(pairs, 0.0)
        if i.mean:
            seen = pairs.sum(2, keepdim=True).to(z) if program.causal else layout.number[:, None, None]
            scores = scores / seen.clamp(min=1)
        return scores @ value
    if isinstance(i, Linear):
        new = of(i.value, z)
    elif isinstance(i, Leaky):
        v = of(i.value, z)
        new = torch.where(v < 0, i.factor * v, v)
    elif isinstance(i, Table):
        new = i.scale * i.function(of(i.value, z))
    elif isinstance(i, Equal):
        new = i.scale * (of(i.left, z) * of(i.right, z)).sum(2, keepdim=True)
    else:
        raise TypeError(f"an instruction must be one of the instruction set; got {type(i).__name__}")
    change = new if i.add else new - of(i.into, z)
    return change if i.block is None else change.where(of(i.block, z) <= 0, 0.0)


def in_range(program: Program, at: str | Held, state: State, outside: Outside) -> None:
    """Hold a state to the range the program declares.

    After "pre" bounds and spectrum; after a pass of the "loop" the bounds that scores rest on; before a layer the
    scores that `Held` names.
    """
    one_of("outside", outside, ("raise", "warn", "ignore"))
    if outside == "ignore" or not state.stream[..., 0].numel():
        return
    z, layout = state.stream.detach(), state.layout
    limits = _limits(program, at, z, layout) if isinstance(at, str) else _peaks(program, at, z, layout)
    for found, what, bound in limits:
        if not bool((found <= bound * (1 + 64 * torch.finfo(found.dtype).eps)).all()):
            digits = next(k for k in (4, 8, 17) if f"{bound:.{k}g}" != f"{float(found.max()):.{k}g}")
            got = f"{float(found.max()):.{digits}g}"
            text = f"{program.name} was declared for {what} up to {bound:.{digits}g}; got {got}"
            if outside == "raise":
                raise ValueError(text)
            warnings.warn(text, OutOfRange, stacklevel=4)


def _limits(program: Program, section: str, z: Tensor, layout: Layout) -> Iterator[tuple[Tensor, str, float]]:
    """The value found in each prompt, what is bounded, and by how much."""
    held = _held(program, layout)
    loops = [i for body in program.bodies for layer in body for i in layer]
    later = [*loops, *(i for layer in program.post for i in layer)]
    asked = [f for i in later if isinstance(i, Mac) and i.score is None for f in (i.key, i.query)]
    moved = {i.target for i in loops} & {name for form in asked for name in form.parts}
    for name, bound in program.bounds.items():
        if section == "pre" or name in moved:
            size = z[..., program.stream.rows[name]].norm(dim=-1).where(held, 0.0)
            yield size.amax(1), f"|{name}|", bound
    if section == "pre":
        if program.examples is not None:
            yield layout.number, "examples", program.examples
        if (gram := program.gram) is not None:
            counted = program.encoder.tokens(layout, groups(gram.groups)) & held
            v = z[..., program.stream.rows[gram.register]].where(counted[..., None], 0.0)
            largest = torch.linalg.eigvalsh(v.mT @ v)[:, -1] / (layout.number.clamp(min=1) if gram.mean else 1)
            yield largest, f"eigenvalues of {gram.register}'{gram.register}", gram.most


def _peaks(program: Program, layer: Held, z: Tensor, layout: Layout) -> Iterator[tuple[Tensor, str, float]]:
    """The largest |score| of each multiply-accumulate of a layer in each prompt, where it may be too large."""
    encoder, of, support = program.encoder, program.stream.of, layer.place.before
    for i, asking, bound in layer.scores:
        queries, keys = encoder.tokens(layout, asking), encoder.tokens(layout, groups(i.keys))
        scores = (of(i.query, z[:, queries]) @ of(i.key, z[:, keys]).mT).abs()
        if not bool((scores <= bound).all()):  # rarely: only then it matters which of the pairs attend
            pairs = attended(program, i, z, layout, support) & _held(program, layout)[:, :, None]
            size = scores.where(pairs[:, queries][:, :, keys], 0.0).amax((1, 2))
            yield size, f"<{i.key}, {i.query}>", bound


def _held(program: Program, layout: Layout) -> Bool[Tensor, "b s"]:
    """The tokens that are held to the range: whatever a token of an unseen pair receives, it gives to nobody."""
    carrying = tuple(name for name in program.encoder.names if program.encoder.carries((name,)))
    return layout.seen | program.encoder.tokens(layout, carrying)
