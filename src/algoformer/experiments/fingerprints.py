"""Fingerprints of the smoke runs: a change that moves numbers must raise REVISION."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("fingerprints.json")
CLOSE = 1e-3  # relative: another machine rounds otherwise, and training makes more of it
ROUNDING = 1e-12  # a number below is one in itself, and any other machine has another


def fingerprint(result: Any) -> dict[str, list[float]]:
    """How many numbers each field holds, their mean, and the mean of their sizes."""
    made = {}
    for name, value in asdict(result).items():
        finite = [v for v in numbers(value) if math.isfinite(v)]
        count = max(len(finite), 1)
        made[name] = [float(len(finite)), sum(finite) / count, sum(map(abs, finite)) / count]
    return made


def moved(before: dict[str, list[float]], now: dict[str, list[float]]) -> list[str]:
    """The fields whose numbers are not the same."""
    if before.keys() != now.keys():
        return sorted(before.keys() ^ now.keys())

    def same(a: list[float], b: list[float]) -> bool:
        least = max(CLOSE * max(a[2], b[2]), ROUNDING)
        return a[0] == b[0] and all(abs(x - y) <= least for x, y in zip(a[1:], b[1:], strict=True))

    return [name for name in now if not same(before[name], now[name])]


def recorded() -> dict[str, dict[str, Any]]:
    """{experiment: {"revision", "numbers"}}."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def record(name: str, revision: int, numbers: dict[str, list[float]]) -> None:
    """Keep the fingerprint of a smoke run."""
    known = recorded() | {name: {"revision": revision, "numbers": numbers}}
    FILE.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def numbers(value: Any) -> Iterator[float]:
    """Every number that dictionaries and lists hold, in the order of their keys."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from numbers(value[key])
    elif isinstance(value, list | tuple):
        for v in value:
            yield from numbers(v)
    elif isinstance(value, int | float):
        yield float(value)
