"""The instruction set: what one transformer layer does to named registers.

A layer is a few attention instructions (Mac, Copy) and then a few token-wise ones; the instructions of one half read
the same stream and write together. Attention can only add to a register. A token-wise instruction sets its register,
or adds to it with `add=True`. Two writers of one register in one half-layer must both say `add=True`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from algoformer.checks import real, whole
from algoformer.constructions.stream import Form

Groups = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """Writes a register. Where the form `block` is positive it writes nothing; `add` says that others write it too.

    A block, and the mask of a Mac, must be 0 where it is not positive: a transformer adds 2^60 times it. So where they
    are positive they must be far above 2^-60, and what a block of 1 stops must be below 2^60.
    """

    into: Form
    block: Form | None = None
    add: bool = False
    attends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.into.register is None:
            raise ValueError(f"an instruction must write a whole register; got {self.into}")
        for name in ("scale", "slope"):
            if hasattr(self, name):
                real(name, getattr(self, name))
        for form, what in self.reads():
            if what in ("block", "mask") and form.width != 1:
                raise ValueError(f"{what} must be one number a token; {form} has {form.width}")

    @property
    def target(self) -> str:
        """The register it writes."""
        return str(self.into.register)

    def reads(self) -> list[tuple[Form, str]]:
        """The forms it reads, with the names of its fields."""
        named = [
            (getattr(self, f), f)
            for f in ("value", "key", "query", "mask", "block", "left", "right")
            if hasattr(self, f)
        ]
        return [(form, name) for form, name in named if isinstance(form, Form)]


@dataclass(frozen=True, kw_only=True)
class Mac(Instruction):
    """Multiply-accumulate: into_j += scale * sum_i value_i <key_i, query_j> over the tokens i of the groups `keys`.

    `queries` are the groups that receive (None: all). `mean` divides by the number of examples (of chains, of
    windows; in a causal program, of the keys in sight). Keys with a positive `mask`, and with `match = (key code,
    query code)` those whose code differs, are left out. `score` bounds |<key, query>| and `mass` the sum (or mean)
    of |value| where a theorem knows better than the bounds of the registers. `dump` names the group that takes the
    attention nobody wants, for softmax.
    """

    value: Form
    key: Form
    query: Form
    scale: float = 1.0
    keys: Groups = "examples"
    queries: Groups | None = None
    mean: bool = False
    mask: Form | None = None
    match: tuple[Form, Form] | None = None
    dump: str | None = None
    score: float | None = None
    mass: float | None = None
    attends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _fits(self.value, self.into, "value")
        if self.key.width != self.query.width:
            raise ValueError(f"key and query must be equally wide; got {self.key.width} and {self.query.width}")
        if self.match is not None and self.match[0].width != self.match[1].width:
            raise ValueError(
                f"the codes of match must be equally wide; got {self.match[0].width} and {self.match[1].width}"
            )
        for name in ("dump", "sink"):
            if not isinstance(named := getattr(self, name, None), str | None):
                raise TypeError(f"{name} must be the name of one group; got {named!r}")
        if self.score is not None:
            real("score", self.score, 0)
        if self.mass is not None:
            real("mass", self.mass, least=0)

    def reads(self) -> list[tuple[Form, str]]:
        codes = [] if self.match is None else [(form, "match") for form in self.match]
        return [*super().reads(), *codes]

    def __str__(self) -> str:
        sign = "-=" if self.scale < 0 else "+="
        size = "" if abs(self.scale) == 1 else f"{abs(self.scale):.4g} "
        total = "mean" if self.mean else "sum"
        text = f"{self.target} {sign} {size}{total} {_bracket(self.value)} <{self.key}, {self.query}>"
        return text + _where(self, dump=self.dump)


@dataclass(frozen=True, kw_only=True)
class Copy(Instruction):
    """into_j += scale * value_i at the token i of `keys` whose key code matches the query code; 0 if none does.

    Codes are complementary (`Code`), so that <key, query> is the Hamming distance. Each should match one token: of
    several the values are summed, and softmax attention takes their mean. `sink` names the group that is attended
    where nothing matches, for softmax.
    """

    value: Form
    key: Form
    query: Form
    scale: float = 1.0
    keys: Groups = "examples"
    queries: Groups | None = None
    sink: str | None = None
    attends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _fits(self.value, self.into, "value")
        if self.key.width != self.query.width:
            raise ValueError(f"key and query must be equally wide; got {self.key.width} and {self.query.width}")

    def __str__(self) -> str:
        sign = "-=" if self.scale < 0 else "+="
        size = "" if abs(self.scale) == 1 else f"{abs(self.scale):.4g} "
        return f"{self.target} {sign} {size}{_bracket(self.value)} at {self.key} = {self.query}" + _where(
            self, sink=self.sink
        )


@dataclass(frozen=True, kw_only=True)
class Linear(Instruction):
    """into = value."""

    value: Form

    def __post_init__(self) -> None:
        super().__post_init__()
        _fits(self.value, self.into, "value")

    def __str__(self) -> str:
        return f"{self.target} {'+=' if self.add else '='} {self.value}" + _where(self)


def Clear(into: Form) -> Linear:  # noqa: N802  # reads as an instruction
    """into = 0."""
    return Linear(into=into, value=Form(into.width, {}))


def Double(into: Form) -> Linear:  # noqa: N802
    """into = 2 into."""
    return Linear(into=into, value=2.0 * into)


def Gate(*, into: Form, value: Form, block: Form, add: bool = False) -> Linear:  # noqa: N802
    """into = value where `block` is 0, as before where it is positive; block is the complement, so passing is exact."""
    return Linear(into=into, value=value, block=block, add=add)


@dataclass(frozen=True, kw_only=True)
class Leaky(Instruction):
    """into = value where positive, slope * value where negative; with `inverse`, value / slope there.

    Slope 0 is the ReLU, slope -1 the absolute value.
    """

    value: Form
    slope: float
    inverse: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _fits(self.value, self.into, "value")
        if self.inverse and not self.slope > 0:
            raise ValueError(f"only a positive slope has an inverse; got {self.slope}")

    @property
    def factor(self) -> float:
        """The slope on the negative side."""
        return 1 / self.slope if self.inverse else self.slope

    def __str__(self) -> str:
        name = "leaky^-1" if self.inverse else "leaky"
        return f"{self.target} {'+=' if self.add else '='} {name}({self.value}; {self.slope:g})" + _where(self)


@dataclass(frozen=True, kw_only=True)
class Equal(Instruction):
    """into = scale * [left = right] for one-hot codes; 0 where one of them is empty."""

    left: Form
    right: Form
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.into.width != 1:
            raise ValueError(f"Equal writes one number a token; {self.target} is {self.into.width} wide")
        if self.left.width != self.right.width:
            raise ValueError(f"left and right must be equally wide; got {self.left.width} and {self.right.width}")

    def __str__(self) -> str:
        size = "" if self.scale == 1 else f"{self.scale:g} "
        return f"{self.target} {'+=' if self.add else '='} {size}[{self.left} = {self.right}]" + _where(self)


@dataclass(frozen=True, kw_only=True)
class Table(Instruction):
    """into = scale * function(value), entry by entry; compiled to `hinges` ReLUs an entry over `domain`.

    Outside `domain` a transformer goes on along the last piece, and does not say so. `name` is what a saved program
    calls the function.
    """

    value: Form
    function: Callable[[Tensor], Tensor] = field(compare=False)
    name: str
    domain: tuple[float, float]
    hinges: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _fits(self.value, self.into, "value")
        for end in self.domain:
            real("an end of the domain", end)
        if not self.domain[0] < self.domain[1]:
            raise ValueError(f"domain must be an interval; got {self.domain}")
        whole("hinges", self.hinges, 2)

    def __str__(self) -> str:
        size = "" if self.scale == 1 else f"{self.scale:g} "
        return (
            f"{self.target} {'+=' if self.add else '='} {size}{self.name}({self.value}; {self.hinges} hinges)"
            + _where(self)
        )


def groups(names: Groups) -> tuple[str, ...]:
    """One name or several, as several."""
    return (names,) if isinstance(names, str) else names


def _fits(form: Form, into: Form, what: str) -> None:
    if form.width != into.width:
        raise ValueError(f"{what} must be as wide as {into}, {into.width}; {form} has {form.width}")


def _bracket(form: Form) -> str:
    text = str(form)
    return f"({text})" if " + " in text or " - " in text else text


def _where(i: Instruction, **named: str | None) -> str:
    notes = []
    if isinstance(i, Mac | Copy):
        notes.append(f"keys {' '.join(groups(i.keys))}")
        notes += [f"queries {' '.join(groups(i.queries))}"] if i.queries is not None else []
    if isinstance(i, Mac):
        notes += [f"mask {i.mask}"] if i.mask is not None else []
        notes += [f"where {i.match[0]} = {i.match[1]}"] if i.match is not None else []
    notes += [f"unless {i.block}"] if i.block is not None else []
    notes += [f"{name} {value}" for name, value in named.items() if value]
    return f"   [{', '.join(notes)}]" if notes else ""
