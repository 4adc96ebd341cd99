"""The residual stream as named registers, and the linear maps between them; no index arithmetic above this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Form:
    """A linear map of the stream, one matrix a register: a register itself, a multiple, a sum, a few of its rows."""

    width: int
    parts: Mapping[str, Float[Tensor, "width r"]]

    def __neg__(self) -> Form:
        return -1.0 * self

    def __rmul__(self, factor: float) -> Form:
        return Form(self.width, {name: factor * m for name, m in self.parts.items()})

    def __add__(self, other: Form) -> Form:
        if other.width != self.width:
            raise ValueError(f"forms that are added must be equally wide; got {self.width} and {other.width}")
        total = dict(self.parts)
        for name, m in other.parts.items():
            total[name] = total[name] + m if name in total else m
        return Form(self.width, total)

    def __sub__(self, other: Form) -> Form:
        return self + -other

    def __getitem__(self, rows: int | slice) -> Form:
        kept = rows if isinstance(rows, slice) else slice(rows, rows + 1 or None)
        width = len(range(self.width)[kept])
        if not width:
            raise ValueError(f"rows of a form must lie in its {self.width}; got {rows}")
        return Form(width, {name: m[kept] for name, m in self.parts.items()})

    def through(self, matrix: Float[Tensor, "out width"]) -> Form:
        """The form times a matrix, from the left."""
        a = torch.as_tensor(matrix, dtype=torch.float64)
        if a.ndim != 2 or a.shape[1] != self.width:
            raise ValueError(f"a matrix over {self} must have {self.width} columns; got shape {tuple(a.shape)}")
        return Form(a.shape[0], {name: a @ m for name, m in self.parts.items()})

    @property
    def register(self) -> str | None:
        """The name of the register this form is, None if it is anything else."""
        if len(self.parts) != 1:
            return None
        (name, m), *_ = self.parts.items()
        return (
            name if torch.equal(m, torch.eye(len(m), m.shape[1], dtype=m.dtype)) and m.shape[0] == m.shape[1] else None
        )

    @cached_property
    def multiples(self) -> Mapping[str, float | None]:
        """The number by which it multiplies each register, None where it does anything else."""
        eyes = {name: torch.eye(*m.shape, dtype=m.dtype) for name, m in self.parts.items() if m.shape[0] == m.shape[1]}
        alike = {name for name, eye in eyes.items() if torch.equal(self.parts[name], self.parts[name][0, 0] * eye)}
        return {name: float(m[0, 0]) if name in alike else None for name, m in self.parts.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Form) or self.width != other.width or self.parts.keys() != other.parts.keys():
            return NotImplemented if not isinstance(other, Form) else False
        return all(torch.equal(m, other.parts[name]) for name, m in self.parts.items())

    def __hash__(self) -> int:
        return hash((self.width, frozenset(self.parts)))

    def __str__(self) -> str:
        return _words(self) or "0"


class Stream:
    """Named registers with their widths: `z = Stream(x=20, r=1)`; `z.x` is a register as a form."""

    def __init__(self, **widths: int) -> None:
        for name, width in widths.items():
            if isinstance(width, bool) or not isinstance(width, Integral) or width < 1:
                raise ValueError(f"register {name} must be at least 1 wide; got {width!r}")
            if hasattr(Stream, name) or name in ("widths", "rows", "width"):
                raise ValueError(f"a register must not have the name of an attribute of a stream; got {name}")
        if not widths:
            raise ValueError("a stream must have a register; got none")
        self.widths = {name: int(width) for name, width in widths.items()}
        ends = list(accumulate(self.widths.values()))
        self.rows = {name: slice(end - w, end) for (name, w), end in zip(self.widths.items(), ends, strict=True)}
        self.width: int = ends[-1]

    def __getattr__(self, name: str) -> Form:
        widths: dict[str, int] = self.__dict__.get("widths", {})
        if name not in widths:
            raise AttributeError(f"a register must be one of {', '.join(widths)}; got {name}")
        return Form(widths[name], {name: torch.eye(widths[name], dtype=torch.float64)})

    def zero(self, width: int) -> Form:
        """The form that is zero everywhere."""
        return Form(width, {})

    def matrix(self, form: Form) -> Float[Tensor, "width e"]:
        """The form as a matrix over the whole stream."""
        out = torch.zeros(form.width, self.width, dtype=torch.float64)
        for name, m in form.parts.items():
            if name not in self.widths:
                raise ValueError(f"a form must read registers of the stream, {', '.join(self.widths)}; got {name}")
            if m.shape[1] != self.widths[name]:
                raise ValueError(f"register {name} is {self.widths[name]} wide; the form {form} takes {m.shape[1]}")
            out[:, self.rows[name]] = m
        return out

    def of(self, form: Form, z: Float[Tensor, "b s e"]) -> Float[Tensor, "b s width"]:
        """The value of a form on a stream, from the registers it reads alone."""
        if list(form.multiples.values()) == [1.0]:
            return z[..., self.rows[next(iter(form.parts))]]
        out = z.new_zeros(*z.shape[:2], form.width)
        for name, m in form.parts.items():
            v, scalar = z[..., self.rows[name]], form.multiples[name]
            out = out + (scalar * v if scalar is not None else v @ m.to(z).mT)
        return out


def join(*forms: Form) -> Form:
    """Forms one under the other."""
    names = dict.fromkeys(name for f in forms for name in f.parts)
    parts = {}
    for name in names:
        wide = next(f.parts[name].shape[1] for f in forms if name in f.parts)
        rows = [f.parts.get(name, torch.zeros(f.width, wide, dtype=torch.float64)) for f in forms]
        parts[name] = torch.cat(rows)
    return Form(sum(f.width for f in forms), parts)


def _words(form: Form) -> str:
    """x, -x, 0.5 x + A y, (w, -one): as a person would write it."""
    terms = []
    for name, m in form.parts.items():
        if not m.any():
            continue
        ones = m.shape[0] == m.shape[1] and torch.equal(m, m[0, 0] * torch.eye(len(m), dtype=m.dtype))
        row = m.shape[0] == 1 and m.shape[1] > 1 and int((m != 0).sum()) == 1
        if ones:
            terms.append((float(m[0, 0]), name))
        elif row:
            at = int(m[0].abs().argmax())
            terms.append((float(m[0, at]), f"{name}[{at}]"))
        elif _blocks(form):
            return f"({', '.join(_words(form[rows]) or '0' for rows in _blocks(form))})"
        else:
            terms.append((1.0, f"A {name}"))
    text = ""
    for factor, name in terms:
        sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
        size = "" if abs(factor) == 1 else f"{abs(factor):.4g} "
        text += f"{sign}{size}{name}"
    return text


def _blocks(form: Form) -> list[slice]:
    """The rows of each register of a joined form, none if it is not a plain joining of registers."""
    used = {name: (m != 0).any(1) for name, m in form.parts.items() if m.any()}
    if len(used) < 2 or int(torch.stack([u.long() for u in used.values()]).sum(0).max()) > 1:
        return []
    spans = []
    for u in used.values():
        at = u.nonzero()[:, 0].tolist()
        spans.append(slice(at[0], at[-1] + 1))
    return sorted(spans, key=lambda s: s.start)


def form_json(form: Form | None) -> Any:
    """A form as plain numbers."""
    if form is None:
        return None
    return {"width": form.width, "parts": {name: m.tolist() for name, m in form.parts.items()}}


def form_from_json(data: Any) -> Form:
    """The form that `form_json` wrote down."""
    parts = {name: torch.tensor(m, dtype=torch.float64) for name, m in data["parts"].items()}
    return Form(int(data["width"]), parts)
