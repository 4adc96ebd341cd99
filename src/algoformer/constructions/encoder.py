"""How a prompt becomes tokens, as data: groups of tokens and what fills their registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algoformer.constructions.stream import Stream
from algoformer.prompt import Chains, Dense, Prompt, Series


@dataclass(frozen=True)
class Code:
    """The token's position in its track, plus `shift`, as a complementary binary code of 2 `bits` digits.

    A query holds (b, 1 - b) and a key (1 - b, b), so that their product is the Hamming distance: 0 on a match and at
    least 1 elsewhere, all exact (a realisation of AlgoFormer Lemma A.1).
    """

    bits: int
    key: bool = False
    shift: int = 0


@dataclass(frozen=True)
class Unit:
    """The unit vector of the token's position, 0 from position `size` on: the columns of [I 0]."""

    size: int


@dataclass(frozen=True)
class Spread:
    """One number a token: the coordinates of the query, then 0."""


@dataclass(frozen=True)
class Link:
    """The position of a state in its chain of `size` states, one-hot."""

    size: int


@dataclass(frozen=True)
class LogCount:
    """The logarithm of the number of examples (of chains, of windows), which divides in a softmax."""


Fill = str | float | Code | Unit | Spread | Link | LogCount
Fills = dict[str, Fill]


@dataclass(frozen=True)
class Group:
    """Tokens `start` to `stop` of a track of the prompt, and what fills their registers.

    Tracks: `examples` and `queries` of a Prompt, `examples` of a Dense, `values` of a Series (and `next`, one token
    after them), `states` and `partial` of a Chains; `blank` is one token of no track. A fill is a field of the prompt
    (`x`, `y`, `s`), a number, or one of the codes of this module. The tokens of an unseen pair are left empty.
    """

    name: str
    track: str
    fill: Mapping[str, Fill]
    start: int = 0
    stop: int | None = None


class Layout(NamedTuple):
    """Which group each token belongs to, which tokens are seen, and how many examples each prompt shows."""

    group: Int[Tensor, " s"]
    seen: Bool[Tensor, "b s"]
    number: Float[Tensor, " b"]


@dataclass(frozen=True)
class Encoder:
    """Groups of tokens in order; interleaved, the tokens of one position stand together.

    Blanks stand before them, and what is asked (`queries`, `next`, `partial`) after them.
    """

    groups: tuple[Group, ...]
    kind: type = Prompt
    interleaved: bool = False

    def __post_init__(self) -> None:
        names = [g.name for g in self.groups]
        if len(set(names)) < len(names):
            raise ValueError(f"groups must have names of their own; got {', '.join(names)}")
        for g in self.groups:
            if g.track not in TRACKS[self.kind]:
                raise ValueError(f"a track of a {self.kind.__name__} is {', '.join(TRACKS[self.kind])}; got {g.track}")
            known = TRACKS[self.kind][g.track]
            if unknown := sorted({f for f in g.fill.values() if isinstance(f, str)}.difference(known)):
                raise ValueError(
                    f"a field of {g.track} must be one of {', '.join(known) or 'none'}; "
                    f"group {g.name} has {', '.join(unknown)}"
                )
            for fill, kind in ((Spread, Prompt), (Link, Chains)):
                if self.kind is not kind and any(isinstance(f, fill) for f in g.fill.values()):
                    raise ValueError(
                        f"a {fill.__name__} is of a {kind.__name__}; group {g.name} is of a {self.kind.__name__}"
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups."""
        return tuple(g.name for g in self.groups)

    def filled(self, register: str) -> dict[str, Fill]:
        """What fills a register, by group."""
        return {g.name: g.fill[register] for g in self.groups if register in g.fill}

    def constant(self, register: str) -> frozenset[str]:
        """The groups on which a register holds 1, if it holds 1 or nothing everywhere; else none."""
        fills = self.filled(register)
        return frozenset(fills) if all(f == 1 and not isinstance(f, str) for f in fills.values()) else frozenset()

    def everywhere(self, register: str) -> bool:
        """Does a register hold a number on every token, whether its pair is seen or not?"""
        return self._numbers(register) == frozenset(self.names)

    @property
    def hidden(self) -> frozenset[str]:
        """The groups that may have tokens of unseen pairs."""
        return frozenset(g.name for g in self.groups if self.kind is Prompt and g.track == "examples")

    def counts(self, name: str) -> bool:
        """Has a group a token for each example (for each window)?"""
        g = self[name]
        return g.stop is None and (g.track, g.start) in (("examples", 0), ("values", self._first()))

    def always(self, name: str) -> bool:
        """Has a group a token in every prompt?"""
        g = self[name]
        return g.track in ("blank", "next") or (
            g.track == "partial" and (g.start, g.stop) in ((0, None), (0, 1), (-1, None))
        )

    def begins(self, g: Group, long: int) -> int:
        """Where a track begins beside the positions of the `long` examples, if interleaved."""
        return -1 if g.track == "blank" else long if g.track in ("queries", "next", "partial") else 0

    def single(self, name: str) -> bool:
        """Is a group one token?"""
        g = self[name]
        return g.track in ("blank", "next") or (g.start, g.stop) == (-1, None) or g.stop == g.start + 1

    def __getitem__(self, name: str) -> Group:
        return next(g for g in self.groups if g.name == name)

    def _numbers(self, register: str) -> frozenset[str]:
        return frozenset(name for name, fill in self.filled(register).items() if isinstance(fill, int | float))

    def carries(self, names: tuple[str, ...]) -> bool:
        """Do tokens of these groups hold columns of matrices, whether their pair is seen or not?"""
        return any(isinstance(f, Unit | Spread) for g in self.groups if g.name in names for f in g.fill.values())

    def encode(self, z: Stream, p: Any) -> tuple[Float[Tensor, "b s e"], Layout]:
        """The tokens of a prompt and their layout."""
        tracks, count = _tracks(p), self._count(p)
        like = next(iter(next(iter(tracks.values())).fields.values()))
        b = like.shape[0]
        # What is a number on every group, or a column of a matrix, stands on every token, seen or not.
        everywhere = {name for name in z.widths if self.everywhere(name)}
        parts, seen, group, key = [], [], [], []
        for index, g in enumerate(self.groups):
            track = tracks[g.track]
            at = torch.arange(track.length, device=like.device)[g.start : g.stop]
            out = like.new_zeros(b, len(at), z.width)
            visible = track.seen[:, at]
            for register, fill in g.fill.items():
                value = _value(fill, track, at, p, count)
                if value.shape[-1] != z.widths[register]:
                    raise ValueError(
                        f"register {register} must be filled with {z.widths[register]} numbers a token; "
                        f"group {g.name} has {value.shape[-1]} ({fill})"
                    )
                if register not in everywhere and not isinstance(fill, Unit | Spread):
                    value = value.where(visible[..., None], 0.0)
                out[..., z.rows[register]] = value
            parts.append(out)
            seen.append(visible)
            group.append(torch.full((len(at),), index, device=like.device))
            key.append(at + self.begins(g, next(iter(tracks.values())).length))
        stream, shown, rank = torch.cat(parts, 1), torch.cat(seen, 1), torch.cat(group)
        if self.interleaved:
            order = torch.cat(key).argsort(stable=True)
            stream, shown, rank = stream[:, order], shown[:, order], rank[order]
        return stream, Layout(rank, shown, count)

    def tokens(self, layout: Layout, names: tuple[str, ...]) -> Bool[Tensor, " s"]:
        """Which tokens belong to the named groups."""
        if len(names) == 1:
            return layout.group == self.names.index(names[0])
        wanted = torch.tensor([name in names for name in self.names], device=layout.group.device)
        return wanted[layout.group]

    def _first(self) -> int:
        """The position of the first value of a series that ends a window."""
        return max((g.start for g in self.groups if g.track == "values" and g.start > 0), default=0)

    def _count(self, p: Any) -> Tensor:
        if isinstance(p, Prompt):
            return p.counts
        if isinstance(p, Series):  # the windows that have a label: the values of the last group
            q = self._first()
            windows = p.x.shape[1] - q
            if windows < 0:
                raise ValueError(f"a series must have at least q = {q} values; got {p.x.shape[1]}")
            return p.x.new_full((len(p.x),), windows)
        v = p.x if isinstance(p, Dense) else p.chains
        return v.new_full((len(v),), v.shape[1])


TRACKS: dict[type, dict[str, tuple[str, ...]]] = {  # with the fields of each
    Prompt: {"examples": ("x", "y"), "queries": ("x",), "blank": ()},
    Dense: {"examples": ("x", "y"), "blank": ()},
    Series: {"values": ("x",), "next": (), "blank": ()},
    Chains: {"states": ("s",), "partial": ("s",), "blank": ()},
}


class _Track(NamedTuple):
    length: int
    fields: dict[str, Tensor]
    seen: Tensor
    offset: int = 0  # of positions, for codes


def _tracks(p: Any) -> dict[str, _Track]:
    def track(length: int, like: Tensor, offset: int = 0, **fields: Tensor) -> _Track:
        return _Track(length, fields, like.new_ones(len(like), length, dtype=torch.bool), offset)

    if isinstance(p, Prompt):
        x, y = p.pairs
        named = {
            "examples": _Track(x.shape[1], {"x": x, "y": y}, p.seen),
            "queries": track(p.queries.shape[1], x, x=p.queries),
        }
    elif isinstance(p, Dense):
        named = {"examples": track(p.x.shape[1], p.x, x=p.x, y=p.y)}
    elif isinstance(p, Series):
        named = {"values": track(p.x.shape[1], p.x, x=p.x), "next": track(1, p.x, offset=p.x.shape[1])}
    else:
        states = p.chains.flatten(1, 2)
        named = {
            "states": track(states.shape[1], states, s=states),
            "partial": track(p.partial.shape[1], states, s=p.partial),
        }
    first = next(iter(named.values()))
    return {**named, "blank": track(1, next(iter(first.fields.values())))}


def _value(fill: Fill, track: _Track, at: Tensor, p: Any, count: Tensor) -> Tensor:
    b = len(count)
    if isinstance(fill, str):
        return track.fields[fill][:, at]
    if isinstance(fill, LogCount):
        return count.clamp(min=1).log()[:, None, None].expand(b, len(at), 1)
    if isinstance(fill, Spread):
        query = p.queries[:, 0]
        _enough(track, query.shape[1])
        return torch.nn.functional.pad(query, (0, track.length - query.shape[1]))[:, at, None]
    if isinstance(fill, Code):
        position = at + track.offset + fill.shift
        if len(at) and (position[0] < 0 or position[-1] >= 2**fill.bits):
            raise ValueError(
                f"positions must be 0 to {2**fill.bits - 1} for codes of {fill.bits} bits; "
                f"got {int(position[0])} to {int(position[-1])}"
            )
        bits = (position[:, None] >> torch.arange(fill.bits, device=at.device)) & 1
        value = torch.cat([1 - bits, bits] if fill.key else [bits, 1 - bits], 1)
    elif isinstance(fill, Unit):
        _enough(track, fill.size)
        value = at[:, None] == torch.arange(fill.size, device=at.device)
    elif isinstance(fill, Link):
        if p.chains.shape[2] != fill.size:
            raise ValueError(f"chains must have {fill.size} states; got {p.chains.shape[2]}")
        value = at[:, None] % fill.size == torch.arange(fill.size, device=at.device)
    else:
        value = torch.full((len(at), 1), float(fill), device=at.device)
    return value.to(count.dtype).expand(b, *value.shape)


def _enough(track: _Track, size: int) -> None:
    if track.length < size:
        raise ValueError(f"the prompt must have at least d = {size} examples; got {track.length}")
