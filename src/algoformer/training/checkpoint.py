"""Checkpoints: safetensors and JSON in one folder a step, written whole or not at all, read without running code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from algoformer.checks import number
from algoformer.files import put, sync

SHARD = 14 * 2**20  # bytes of tensors in a file
TEXT = 64 * 2**20  # bytes that state.json may have
NAME = re.compile(r"step-(\d{8,})")
DTYPES = {
    str(v).removeprefix("torch."): v for v in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
}


class Torn(ValueError):
    """A checkpoint that is not whole, or not one."""


def write(folder: Path, step: int, tree: Any, keep: int) -> Path:
    """Write a tree of numbers, strings and tensors as the checkpoint of a step; then drop all but `keep` up to it.

    The files are complete and on the disk before the folder gets its name, so that whatever happens meanwhile the
    checkpoints before it stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:08d}"
    draft = folder / f".{final.name}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir()
        tensors: dict[str, Tensor] = {}
        body: dict[str, Any] = {"tree": _flat(tree, tensors), "tensors": {}, "files": {}}
        for number, shard in enumerate(_shards(tensors, body["tensors"])):
            name = f"shard-{number:04d}.safetensors"
            data = save(shard)
            body["files"][name] = hashlib.sha256(data).hexdigest()
            put(draft / name, data)
        text = json.dumps(body, sort_keys=True)
        put(draft / "state.json", json.dumps({"sha256": _digest(text), "state": body}, sort_keys=True).encode())
        sync(draft)
        shutil.rmtree(final, ignore_errors=True)  # only a torn one can be in the way
        draft.rename(final)
        sync(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    drop(folder, step, keep)
    for left in folder.glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)
    return final


def drop(folder: Path, step: int, keep: int) -> None:
    """Drop all checkpoints but the last `keep` up to a step: later ones are torn, or the run had gone on from them."""
    there = list(steps(folder))
    kept = [s for s in there if s <= step][-keep:]
    for old in set(there) - set(kept):
        shutil.rmtree(folder / f"step-{old:08d}", ignore_errors=True)


def steps(folder: Path) -> Iterator[int]:
    """The steps that have a checkpoint, in order."""
    found = (NAME.fullmatch(entry.name) for entry in folder.iterdir()) if folder.is_dir() else ()
    yield from sorted(int(match[1]) for match in found if match)


def read(folder: Path) -> Any:
    """The tree in one checkpoint folder; raises `Torn` unless every byte is as it was written."""
    try:
        file = folder / "state.json"
        if file.stat().st_size > TEXT:
            raise Torn(f"{file} must have at most {TEXT} bytes; got {file.stat().st_size}")
        whole = json.loads(file.read_bytes())
        body = whole["state"]
        if whole["sha256"] != _digest(json.dumps(body, sort_keys=True)):
            raise Torn(f"{file} must be as it was written; its checksum differs")
        parts: dict[str, Tensor] = {}
        for name, digest in body["files"].items():
            if not re.fullmatch(r"shard-\d{4}\.safetensors", name):
                raise Torn(f"a shard must be called shard-0000.safetensors and so on; got {name!r}")
            data = (folder / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != digest:
                raise Torn(f"{folder / name} must be as it was written; its checksum differs")
            parts |= load(data)
        tensors = {
            name: torch.cat([parts[f"{name}#{i}"] for i in range(about["parts"])])
            .to(DTYPES[about["dtype"]])
            .reshape(about["shape"])
            for name, about in body["tensors"].items()
        }
        return _deep(body["tree"], tensors)
    except (OSError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError, SafetensorError) as error:
        raise Torn(f"{folder} must hold a whole checkpoint; {type(error).__name__}: {error}") from error
    except ValueError as error:
        raise error if isinstance(error, Torn) else Torn(f"{folder} must hold a whole checkpoint; {error}") from error


def latest(folder: Path) -> tuple[int, Any, list[str]] | None:
    """The last checkpoint that is whole, and what was wrong with later ones; None where there is no checkpoint."""
    wrong: list[str] = []
    for step in reversed(list(steps(folder))):
        try:
            return step, read(folder / f"step-{step:08d}"), wrong
        except Torn as error:
            wrong.append(str(error))
    if wrong:
        raise Torn(f"{folder} must hold a whole checkpoint; {wrong[0]}")
    return None


def _flat(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        name = str(len(tensors))
        tensors[name] = tree.detach()
        return {"tensor": name}
    if isinstance(tree, dict):
        return {"dict": [[_flat(k, tensors), _flat(v, tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        return {type(tree).__name__: [_flat(v, tensors) for v in tree]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Real):
        return number(tree)
    raise TypeError(f"a checkpoint holds numbers, strings, lists, dicts and tensors; got {type(tree).__name__}")


def _deep(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {_deep(k, tensors): _deep(v, tensors) for k, v in value}
    return (tuple if kind == "tuple" else list)(_deep(v, tensors) for v in value)


def _shards(tensors: dict[str, Tensor], index: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise TypeError(f"a checkpoint holds tensors of {', '.join(DTYPES)}; got {tensor.dtype}")
        pieces = torch.split(tensor.cpu().flatten(), SHARD // tensor.element_size())
        index[name] = {"shape": list(tensor.shape), "dtype": dtype, "parts": len(pieces)}
        for i, piece in enumerate(pieces):
            if shard and size + piece.nbytes > SHARD:
                yield shard
                shard, size = {}, 0
            shard[f"{name}#{i}"] = piece.clone()
            size += piece.nbytes
    if shard:
        yield shard


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
