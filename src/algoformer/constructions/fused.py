"""Pre, loop and post as one looped layer (AlgoFormer, section 2.2).

Statement.  A program whose three parts are one layer each runs as a looped one-layer transformer: T + 2 passes of a
            layer that holds the heads of all three. The paper claims four heads for parts of one head each, the fourth
            to select.
Proof.      A clock in the stream counts down from T + 1. Three registers say which part is not on; the feed-forward
            sets them from the clock, relu(2 - clock) and |clock - 1|, exact on integers. A head whose part is not on is
            silenced on the query side (all attention to the dump, or -B under the ReLU); a neuron gets -B. What is off
            adds exactly 0. []

Three heads suffice for parts of one head, then: the selection is done by the feed-forward layer, not by a head. A part
of linear attention cannot be silenced in its scores, which are a product of two linear forms.
"""

from __future__ import annotations

from dataclasses import replace

from algoformer.constructions.encoder import Encoder, Group
from algoformer.constructions.instructions import Instruction, Leaky, Linear
from algoformer.constructions.program import Program
from algoformer.constructions.stream import Form, Stream


def fuse(program: Program) -> Program:
    """The program as a loop of one layer, of `steps` + 2 passes; read after the last."""
    parts = {"pre": program.pre, "loop": program.loop, "post": program.post}
    for name, layers in parts.items():
        if len(layers) != 1:
            raise ValueError(f"only parts of one layer can be fused; {name} of {program.name} has {len(layers)}")
    names = [n for n in program.stream.widths if program.encoder.constant(n) == frozenset(program.encoder.names)]
    if not names:
        raise ValueError(f"{program.name} must have a register that holds 1 on every token; got none")
    z = Stream(**program.stream.widths, clock=1, no_pre=1, no_loop=1, no_post=1)
    one = getattr(z, names[0])
    body = [step for name, layers in parts.items() for i in layers[0] for step in _gated(i, getattr(z, f"no_{name}"))]
    body += [
        Linear(into=z.clock, value=z.clock - one),
        Linear(into=z.no_pre, value=one),
        Leaky(into=z.no_loop, value=2.0 * one - z.clock, slope=0.0),
        Leaky(into=z.no_post, value=z.clock - one, slope=-1.0),
    ]
    start = {"clock": float(program.steps + 1), "no_pre": 0.0, "no_loop": 1.0, "no_post": 1.0}
    groups = tuple(Group(g.name, g.track, {**g.fill, **start}, g.start, g.stop) for g in program.encoder.groups)
    return replace(
        program,
        name=f"{program.name}, fused",
        stream=z,
        encoder=Encoder(groups, program.encoder.kind, program.encoder.interleaved),
        pre=(),
        loop=sorted(body, key=lambda i: not i.attends),
        post=(),
        steps=program.steps + 2,
        settled=1,
    )


def _gated(i: Instruction, off: Form) -> list[Instruction]:
    """The instruction as one that only adds, and nothing while `off` is positive."""
    block = off if i.block is None else i.block + off
    if i.attends or i.add:
        return [replace(i, block=block, add=True)]
    removed = Linear(into=i.into, value=-i.into, block=block, add=True)
    return [replace(i, block=block, add=True), removed]
