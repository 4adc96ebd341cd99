"""Compiled transformers on disk: the weights as safetensors, the program as JSON; nothing that runs on loading."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor

from algoformer.checks import number
from algoformer.constructions import encoder, instructions, logistic
from algoformer.constructions.encoder import Encoder, Group
from algoformer.constructions.instructions import Instruction, Table
from algoformer.constructions.lowering import Compiled, compile
from algoformer.constructions.program import Gram, Program
from algoformer.constructions.stream import Form, Stream, form_from_json, form_json
from algoformer.files import replace_file
from algoformer.prompt import Chains, Dense, Prompt, Series

Function = Callable[[Tensor], Tensor]

_KINDS = {kind.__name__: kind for kind in (Prompt, Dense, Series, Chains)}
_INSTRUCTIONS = {
    kind.__name__: kind
    for kind in vars(instructions).values()
    if isinstance(kind, type) and issubclass(kind, Instruction) and kind is not Instruction
}
_FILLS = {kind.__name__: kind for kind in (encoder.Code, encoder.Unit, encoder.Spread, encoder.Link, encoder.LogCount)}


def save(model: Compiled, folder: str | Path) -> None:
    """Write `weights.safetensors` and `program.json` into a folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    weights = {name: t.contiguous() for name, t in model.state_dict().items()}
    options = {name: getattr(model, name) for name in ("attention", "heads", "masked", "outside")}
    dtypes = {"dtype": model.compiled_for, "cast": model.dtype}
    document = {"program": program_json(model.program), "options": options} | {
        name: str(dtype).removeprefix("torch.") for name, dtype in dtypes.items()
    }
    text = json.dumps(document, indent=1, default=number).encode()
    replace_file(path / "weights.safetensors", serialised(weights))
    replace_file(path / "program.json", text)


def load(folder: str | Path, functions: Mapping[str, Function] | None = None) -> Compiled:
    """Read a transformer back; `functions` gives the tables of your own that its program names."""
    path = Path(folder)
    document = json.loads((path / "program.json").read_text())
    program = program_from_json(document["program"], functions or {})
    made_for = document["dtype"]
    model = compile(program, dtype=getattr(torch, made_for), **document["options"])
    model.to(getattr(torch, document.get("cast", made_for)))
    model.load_state_dict(load_file(path / "weights.safetensors"))
    return model


def program_json(program: Program) -> dict[str, Any]:
    """A program as plain data."""
    named: dict[str, Function] = {}
    for i in program.instructions:
        if isinstance(i, Table) and not _same(named.setdefault(i.name, i.function), i.function):
            raise ValueError(f"tables of different functions must have different names; two are called {i.name!r}")
    data: dict[str, Any] = {f.name: getattr(program, f.name) for f in fields(program)}
    for section in ("pre", "loop", "post"):
        data[section] = [[_instruction(i) for i in layer] for layer in data[section]]
    if program.passes is not None:
        data["passes"] = [[[_instruction(i) for i in layer] for layer in body] for body in program.bodies]
    tokens = program.encoder
    groups = [{**vars(g), "fill": {r: _fill(f) for r, f in g.fill.items()}} for g in tokens.groups]
    data["encoder"] = {"groups": groups, "kind": tokens.kind.__name__, "interleaved": tokens.interleaved}
    data |= {"stream": program.stream.widths, "read": form_json(program.read), "bounds": dict(program.bounds)}
    data["gram"] = None if program.gram is None else vars(program.gram)
    return data


def program_from_json(data: dict[str, Any], functions: Mapping[str, Function]) -> Program:
    """The program that `program_json` wrote down."""
    data = dict(data)
    z = Stream(**data.pop("stream"))

    def body(layers: Any) -> list[list[Instruction]]:
        return [[_instruction_from(i, functions) for i in layer] for layer in layers]

    tokens = data.pop("encoder")
    groups = tuple(Group(**{**g, "fill": {r: _fill_from(f) for r, f in g["fill"].items()}}) for g in tokens["groups"])
    gram = data.pop("gram")
    rest: dict[str, Any] = {section: body(data.pop(section)) for section in ("pre", "loop", "post")}
    return Program(
        stream=z,
        encoder=Encoder(groups, _KINDS[tokens["kind"]], tokens["interleaved"]),
        read=form_from_json(data.pop("read")),
        at=_names(data.pop("at")),
        gram=None if gram is None else Gram(**{**gram, "groups": _names(gram["groups"])}),
        passes=None if (passes := data.pop("passes")) is None else [body(one) for one in passes],
        **rest,
        **data,
    )


def _instruction(i: Instruction) -> dict[str, Any]:
    if isinstance(i, Table) and (ours := _ours(i.name)) is not None and not _same(ours, i.function):
        raise ValueError(f"a table of your own must have a name of its own to be saved; {i.name!r} is taken")
    data = {f.name: getattr(i, f.name) for f in fields(i) if f.name != "function"}
    plain = {name: form_json(v) if isinstance(v, Form) else v for name, v in data.items()}
    if plain.get("match") is not None:
        plain["match"] = [form_json(f) for f in plain["match"]]
    return {"instruction": type(i).__name__, **plain}


def _instruction_from(data: dict[str, Any], functions: Mapping[str, Function]) -> Instruction:
    data = dict(data)
    kind = _INSTRUCTIONS[data.pop("instruction")]
    values: dict[str, Any] = {
        name: form_from_json(v) if isinstance(v, dict) and "parts" in v else _names(v) for name, v in data.items()
    }
    if values.get("match") is not None:
        values["match"] = tuple(form_from_json(f) for f in values["match"])
    if kind is Table:
        values["function"] = _function(values["name"], functions)
    return kind(**values)


def _function(name: str, functions: Mapping[str, Function]) -> Function:
    function = functions.get(name) or _ours(name)
    if function is None:
        raise ValueError(f"functions must hold the table {name!r} of the program; got {', '.join(functions) or 'none'}")
    return function


def _ours(name: str) -> Function | None:
    """The function that a program of this package calls so."""
    if name.startswith("step size "):
        with suppress(ValueError):  # a name of one's own may begin so
            return partial(logistic._size, mu=float(name.removeprefix("step size ")))
    known = {"curvature": logistic._curvature, "centred sigmoid": logistic._centred, "square": logistic._square}
    return known.get(name)


def _same(one: Function, two: Function) -> bool:
    if isinstance(one, partial) and isinstance(two, partial):
        return (one.func, one.keywords) == (two.func, two.keywords)
    return one is two


def _fill(fill: Any) -> Any:
    return {"fill": type(fill).__name__, **vars(fill)} if is_dataclass(fill) else fill


def _fill_from(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    return _FILLS[data["fill"]](**{name: v for name, v in data.items() if name != "fill"})


def _names(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
