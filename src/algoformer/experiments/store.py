"""Results on disk: one JSON file a run, at an address that says what it is the result of.

The address is a hash of (experiment, revision, config, seed). Commit, versions, device and seconds are recorded and not
hashed. Files are written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from algoformer.checks import number
from algoformer.experiments.registry import EXPERIMENTS, load
from algoformer.files import replace_file


@dataclass(frozen=True, kw_only=True)
class Record:
    """A stored result with what it is the result of; `current` where its revision is that of the code."""

    experiment: str
    revision: int
    config: Any
    seed: int
    result: Any
    provenance: dict[str, Any]
    file: Path
    current: bool


def address(experiment: str, revision: int, config: Any, seed: int) -> str:
    """The hash of what a result is the result of."""
    told = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    text = json.dumps([experiment, revision, told, seed], sort_keys=True, default=number)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Store:
    """A folder of results: `folder/experiment/address.json`."""

    folder: Path

    def file(self, experiment: str, config: Any, seed: int) -> Path:
        """Where the result of a run belongs."""
        return self.folder / experiment / f"{address(experiment, load(experiment).REVISION, config, seed)}.json"

    def has(self, experiment: str, config: Any, seed: int) -> bool:
        """Is this run finished? A broken file is not a result."""
        file = self.file(experiment, config, seed)
        if not file.exists():
            return False
        try:
            _judged(_read(file))
        except ValueError:
            return False
        return True

    def write(self, experiment: str, config: Any, seed: int, result: Any, provenance: dict[str, Any]) -> Path:
        """Keep a result."""
        file = self.file(experiment, config, seed)
        document = {
            "experiment": experiment,
            "revision": load(experiment).REVISION,
            "config": asdict(config),
            "seed": seed,
            "result": asdict(result),
            "provenance": provenance,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(document, separators=(",", ":"), default=number).encode() + b"\n")
        return file

    def records(self) -> tuple[list[Record], dict[Path, str]]:
        """Every result, in the order of the experiments; and the broken files, each with what is wrong."""
        found, broken = [], {}
        for file in self._files():
            try:
                found.append(_judged(_read(file)))
            except ValueError as error:
                broken[file] = str(error)
        order = {name: i for i, name in enumerate(EXPERIMENTS)}
        return sorted(found, key=lambda r: (order[r.experiment], r.seed, r.file.name)), broken

    def _files(self) -> Iterator[Path]:
        for folder in sorted(p for p in self.folder.glob("*") if p.is_dir() and p.name in EXPERIMENTS):
            yield from sorted(folder.glob("*.json"))


def _read(file: Path) -> Record:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        name, revision, seed = document["experiment"], document["revision"], document["seed"]
        raw, numbers, provenance = document["config"], document["result"], dict(document["provenance"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"it must be a result in JSON; got {type(error).__name__}: {error}") from error
    if name != file.parent.name or address(name, revision, raw, seed) != file.stem:
        raise ValueError("it must lie at the address of its experiment, revision, config and seed")
    experiment = load(name)
    current = revision == experiment.REVISION
    if not current:  # its fields may be those of another Config
        return Record(
            experiment=name, revision=revision, config=raw, seed=seed, result=numbers, provenance=provenance,
            file=file, current=False,
        )  # fmt: skip
    return Record(
        experiment=name, revision=revision, config=_made(experiment.Config, _tuples(raw)), seed=seed,
        result=_made(experiment.Result, numbers), provenance=provenance, file=file, current=True,
    )  # fmt: skip


def _judged(record: Record) -> Record:
    """A record whose numbers make claims, as those of an experiment do."""
    if record.current:
        try:
            load(record.experiment).claims(record.result)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"its numbers must make claims; got {type(error).__name__}: {error}") from error
    return record


def _made(kind: Any, values: dict[str, Any]) -> Any:
    known = {f.name for f in fields(kind)}
    if not isinstance(values, dict) or values.keys() != known:
        got = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise ValueError(f"it must have the fields {', '.join(sorted(known))}; got {got}")
    return kind(**values)


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value
