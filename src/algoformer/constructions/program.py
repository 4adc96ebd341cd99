"""A program: registers, an encoder, instruction lists before, inside and after a loop, and a reading."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from algoformer.checks import one_of, real, whole
from algoformer.constructions.encoder import Encoder, Spread, Unit
from algoformer.constructions.instructions import Copy, Equal, Groups, Instruction, Mac, Table, groups
from algoformer.constructions.stream import Form, Stream

Layer = tuple[Instruction, ...]
Support = Mapping[str, frozenset[str]]  # register -> the groups on which it may be other than 0


@dataclass(frozen=True, kw_only=True)
class Gram:
    """The declared spectrum: eigenvalues of the mean (or sum) of v_i v_i' over a group are at most `most`.

    What a step size is chosen from, and what a prompt is held to.
    """

    register: str
    groups: Groups
    most: float
    mean: bool = True


class Reach(NamedTuple):
    """What may be nonzero on tokens, and on those of unseen pairs."""

    seen: Support
    unseen: Support

    def union(self, other: Reach) -> Reach:
        """What may be nonzero in one or the other."""
        return Reach(*({r: one[r] | two[r] for r in one} for one, two in zip(self, other, strict=True)))


class Place(NamedTuple):
    """A layer of a program, where it stands, and what may be nonzero before its first and its second half.

    `unseen` is the same before the layer on the tokens of unseen pairs, by their groups.
    """

    section: str
    layer: Layer
    before: Support
    between: Support
    unseen: Support


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a transformer is compiled from.

    `pre`, `loop` and `post` are lists of layers, a layer a list of instructions (one layer may stand without its
    brackets). With `passes` instead of `loop` every step has layers of its own. The answer is the form `read` at the
    tokens of the groups `at` (with `first`, at the first of them). It answers `answers` queries at once (None: any
    number) and `labels` labels; what else a prompt asks is folded into the batch. The range of prompts that one set of
    weights serves is declared: at most `examples` pairs (windows, chains), the largest norm of registers after pre
    (`bounds`), a spectrum (`gram`); a program whose loop does what pre would do declares them after `settled` passes.
    """

    name: str
    stream: Stream
    encoder: Encoder
    read: Form
    at: Groups
    steps: int
    labels: int = 1
    answers: int | None = None
    pre: Sequence[Any] = ()
    loop: Sequence[Any] = ()
    post: Sequence[Any] = ()
    passes: Sequence[Sequence[Any]] | None = None
    causal: bool = False
    first: bool = False
    examples: int | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)
    gram: Gram | None = None
    settled: int = 0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("settled", self.settled)
        whole("labels", self.labels, 1)
        one_of("answers", self.answers, (None, 1))
        if self.examples is not None:
            whole("examples", self.examples)
        for name, bound in self.bounds.items():
            real(f"the bound of {name}", bound, least=0)
        for section in ("pre", "loop", "post"):
            object.__setattr__(self, section, _layers(getattr(self, section)))
        if self.passes is not None:
            if self.loop:
                raise ValueError("a program must have a loop or passes; got both")
            object.__setattr__(self, "passes", tuple(_layers(one) for one in self.passes))
            if self.steps != len(self.passes):
                raise ValueError(f"steps must be the number of passes, {len(self.passes)}; got {self.steps}")
        self._hold()

    @property
    def kind(self) -> type:
        """The kind of prompt it answers."""
        return self.encoder.kind

    @property
    def bodies(self) -> tuple[tuple[Layer, ...], ...]:
        """The layers of each step; one entry for all steps of a loop."""
        return self.passes if self.passes is not None else (self.loop,)  # type: ignore[return-value]

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Every instruction in the order of execution, the loop once."""
        sections = (self.pre, *self.bodies, self.post)
        return tuple(i for section in sections for layer in section for i in layer)

    def places(self) -> Generator[Place, None, None]:
        """Every layer with what may be nonzero around it; a loop is entered as its own passes leave it."""
        now = self.supports()
        for layer in self.pre:
            now = yield from _visit(self, "pre", layer, now)
        if self.passes is None:
            while True:  # the least fixed point: what may be nonzero after some number of passes
                after = now
                for layer in self.loop:
                    after = _after(self, layer, after)
                if now.union(after) == now:
                    break
                now = now.union(after)
        reached = now  # post may follow any number of passes, also none
        for body in self.bodies:
            for layer in body:
                now = yield from _visit(self, "loop", layer, now)
            reached = reached.union(now)
        for layer in self.post:
            reached = yield from _visit(self, "post", layer, reached)

    def sections(self) -> dict[str, list[Place]]:
        """The places of pre, of each step (of all steps of a loop: "0"), and of post."""
        found, bodies = self.places(), enumerate(self.bodies)
        layers = {"pre": self.pre, **{str(t): body for t, body in bodies}, "post": self.post}
        return {name: [next(found) for _ in body] for name, body in layers.items()}

    def supports(self) -> Reach:
        """The groups on which the encoder fills each register."""
        filled = {name: self.encoder.filled(name) for name in self.stream.widths}
        seen = {name: frozenset(fills) for name, fills in filled.items()}
        kept = {
            name: frozenset(
                g for g, f in fills.items() if isinstance(f, Unit | Spread) or self.encoder.everywhere(name)
            )
            for name, fills in filled.items()
        }
        return Reach(seen, {name: groups & self.encoder.hidden for name, groups in kept.items()})

    def _hold(self) -> None:
        z, known = self.stream, set(self.encoder.names)
        for g in self.encoder.groups:
            if unknown := set(g.fill) - set(z.widths):
                raise ValueError(f"group {g.name} must fill registers of the stream; got {', '.join(sorted(unknown))}")
        written = {name for name in z.widths if self.encoder.filled(name)}
        later = {i.target for body in self.bodies for layer in body for i in layer}
        for section, layers in (("pre", self.pre), *(("loop", b) for b in self.bodies), ("post", self.post)):
            if section == "loop":
                written |= later
            for layer in layers:
                for half in (True, False):
                    written |= self._hold_half([i for i in layer if i.attends == half], written, section)
        z.matrix(self.read)
        if self.read.width != self.labels:
            raise ValueError(
                f"read must be as wide as there are labels, {self.labels}; {self.read} has {self.read.width}"
            )
        for names in [self.at, *(() if self.gram is None else (self.gram.groups,))]:
            _known(groups(names), known)
        for name in (*self.read.parts, *self.bounds, *(() if self.gram is None else (self.gram.register,))):
            if name not in written:
                raise ValueError(f"register {name} is read, but neither the encoder nor an instruction writes it")

    def _hold_half(self, half: list[Instruction], written: set[str], section: str) -> set[str]:
        known = set(self.encoder.names)
        for i in half:
            for form, _ in [*i.reads(), (i.into, "into")]:
                self.stream.matrix(form)
            for form, what in i.reads():
                for name in form.parts:
                    if name not in written:
                        raise ValueError(
                            f"{section}: {i} reads register {name} ({what}), "
                            "which neither the encoder nor an earlier instruction writes"
                        )
            if isinstance(i, Mac | Copy):
                _known(groups(i.keys), known)
                _known(groups(i.queries or ()), known)
                _known(groups((i.dump if isinstance(i, Mac) else i.sink) or ()), known)
            same = [j for j in half if j.target == i.target]
            if len(same) > 1 and not all(j.add for j in same):
                raise ValueError(
                    f"{section}: {len(same)} instructions of one half-layer write register {i.target}; "
                    "each must say add=True"
                )
        return {i.target for i in half}

    def __str__(self) -> str:
        from algoformer.constructions.listing import listing

        return listing(self)


def receives(program: Program, i: Mac | Copy, support: Support) -> frozenset[str]:
    """The groups whose tokens an attention instruction writes."""
    wanted = frozenset(program.encoder.names if i.queries is None else groups(i.queries))
    return wanted & nonzero(i.query, support)


def carried(program: Program, i: Mac | Copy) -> bool:
    """Are tokens of unseen pairs keys as well, for the columns of matrices they hold?"""
    plain = isinstance(i, Mac) and i.match is None and not program.causal
    return plain and program.encoder.carries(groups(i.keys))


def nonzero(form: Form, support: Support) -> frozenset[str]:
    """The groups on which a form may be other than 0."""
    return frozenset().union(*(support[name] for name, m in form.parts.items() if bool(m.any())))


def _visit(program: Program, section: str, layer: Layer, now: Reach) -> Generator[Place, None, Reach]:
    between = _after(program, tuple(i for i in layer if i.attends), now)
    yield Place(section, layer, now.seen, between.seen, now.unseen)
    return _after(program, layer, now)


def _after(program: Program, layer: Layer, before: Reach) -> Reach:
    return Reach(*(_written(program, layer, support, before) for support in before))


def _written(program: Program, layer: Layer, support: Support, before: Reach) -> Support:
    now = dict(support)
    for i in layer:
        if isinstance(i, Mac | Copy) and nonzero(i.value, before.seen):
            asking = receives(program, i, support)
            if support is before.unseen:  # no mark keeps them from receiving; an empty code matches everything
                asking = nonzero(i.query, support) if isinstance(i, Mac) else program.encoder.hidden
            now[i.target] = now[i.target] | asking
    middle = dict(now)
    for i in layer:
        if i.attends:
            continue
        if isinstance(i, Table):
            new = frozenset(program.encoder.names) if support is before.seen else program.encoder.hidden
        elif isinstance(i, Equal):
            new = nonzero(i.left, middle) & nonzero(i.right, middle)
        else:
            new = nonzero(i.value, middle)  # type: ignore[attr-defined]
        now[i.target] = now[i.target] | new if i.add or i.block is not None else new
    return now


def _layers(body: Sequence[object]) -> tuple[Layer, ...]:
    flat = [isinstance(entry, Instruction) for entry in body]
    if any(flat) and not all(flat):
        raise TypeError("a body must be a list of instructions or a list of layers; got a mixture")
    raw: Iterable[Iterable[object]] = ((body,) if body else ()) if all(flat) else body  # type: ignore[assignment]
    layers = tuple(tuple(layer) for layer in raw)
    for layer in layers:
        if not layer or not all(isinstance(i, Instruction) for i in layer):
            raise TypeError(f"a layer must be a list of instructions; got {layer!r}")
        order = [i.attends for i in layer]  # type: ignore[attr-defined]
        if order != sorted(order, reverse=True):
            raise ValueError(
                f"attention must come before the token-wise half of a layer; got {'; '.join(map(str, layer))}"
            )
    return layers  # type: ignore[return-value]


def _known(names: tuple[str, ...], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"a group must be one of {', '.join(sorted(known))}; got {name}")
