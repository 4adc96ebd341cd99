"""Programs as text that a person can hold against a theorem."""

from __future__ import annotations

from itertools import groupby
from typing import Literal

from algoformer.constructions.encoder import Code, Fill, Link, LogCount, Spread, Unit
from algoformer.constructions.instructions import groups
from algoformer.constructions.lowering import Attention, Block, compile
from algoformer.constructions.program import Program
from algoformer.prompt import Prompt


def listing(program: Program) -> str:
    """Registers, tokens, instructions and reading of a program."""
    return "\n".join([*_head(program), *_body(program, {}), *_foot(program)])


def show(program: Program, attention: Attention | None = None, *, heads: Literal[2, 4] = 2, masked: bool = True) -> str:
    """The listing; with an attention, also the heads and the feed-forward width of every layer."""
    if attention is None:
        return listing(program)
    model = compile(program, attention, heads=heads, masked=masked)
    blocks = {
        (section, number): block
        for section in ("pre", "loop", "post")
        for number, block in enumerate(getattr(model, section), 1)
    }
    sizes = {place: _size(block) for place, block in blocks.items()}
    total = sum(p.numel() for p in model.parameters())
    counts = [
        f"{section} {len(found)} x {max(b.heads for b in found)}"
        for section in ("pre", "loop", "post")
        if (found := [b for (s, _), b in blocks.items() if s == section])
    ]
    kind = attention if masked or attention != "linear" else "bare linear"
    summary = f"{kind} attention: layers x heads {', '.join(counts)}; width {program.stream.width}; {total} weights"
    budget = [
        f"error of {mac.target} {'not bounded a priori' if bound is None else f'at most {bound:.1e} a pass'}: {mac}"
        for mac, bound in model.budget
    ]
    return "\n".join([*_head(program), *_body(program, sizes), *_foot(program), summary, *budget])


def _head(program: Program) -> list[str]:
    z = program.stream
    widths = ", ".join(f"{name} {width}" for name, width in z.widths.items())
    lines = [program.name, f"registers ({z.width})  {widths}"]
    for g in program.encoder.groups:
        span = "" if g.track == "blank" or (g.start, g.stop) == (0, None) else f"[{g.start or ''}:{g.stop or ''}]"
        filled = ", ".join(f"{register} = {_fill(fill)}" for register, fill in g.fill.items())
        lines.append(f"tokens {g.name:<9} {g.track}{span}: {filled}")
    if program.causal:
        lines.append("causal, tokens of one position together")
    return lines


def _body(program: Program, sizes: dict[tuple[str, int], str]) -> list[str]:
    lines = []
    loops = [layer for body in program.bodies for layer in body]
    for section, layers in (("pre", program.pre), ("loop", loops), ("post", program.post)):
        numbered = enumerate(layers, 1)
        for layer, same in groupby(numbered, key=lambda pair: pair[1]):
            at = [number for number, _ in same]
            span = f"{at[0]}" if len(at) == 1 else f"{at[0]} to {at[-1]}"
            size = sizes.get((section, at[0]), "")
            lines.append(f"{section} {span}{f'  ({size})' if size else ''}")
            lines += [f"    {'attend' if i.attends else 'token '}  {i}" for i in layer]
    return lines


def _foot(program: Program) -> list[str]:
    where = " ".join(groups(program.at))
    lines = [f"read {program.read} at {'the first of ' if program.first else ''}{where} after {program.steps} steps"]
    if program.kind is Prompt:
        once = "one query" if program.answers == 1 else f"{_most(program)} queries"
        lines.append(f"answers {once} and {program.labels} label{'s' if program.labels > 1 else ''} at once")
    limits = [f"|{name}| <= {bound:.4g}" for name, bound in program.bounds.items()]
    limits += [f"at most {program.examples} examples"] if program.examples is not None else []
    if (gram := program.gram) is not None:
        limits.append(
            f"eigenvalues of the {'mean' if gram.mean else 'sum'} of {gram.register} {gram.register}' "
            f"<= {gram.most:.4g}"
        )
    return [*lines, f"declared for {', '.join(limits)}"] if limits else lines


def _most(program: Program) -> str:
    """How many queries a prompt may have: as many as their codes can count."""
    asked = [g for g in program.encoder.groups if g.track == "queries"]
    counts = [2**f.bits - f.shift for g in asked for f in g.fill.values() if isinstance(f, Code)]
    return f"at most {min(counts)}" if counts else "any number of"


def _fill(fill: Fill) -> str:
    if isinstance(fill, Code):
        shift = f" {fill.shift:+d}" if fill.shift else ""
        return f"{'key' if fill.key else 'query'} code(position{shift})"
    names = {Unit: "unit vector", Link: "link", LogCount: "log n", Spread: "coordinate of the query"}
    return names.get(type(fill), f"{fill:g}" if isinstance(fill, int | float) else str(fill))


def _size(block: Block) -> str:
    parts = [f"{block.heads} head{'s' if block.heads != 1 else ''}"] if block.heads else []
    parts += [f"feed-forward {block.hidden}"] if block.hidden else []
    return ", ".join(parts)
