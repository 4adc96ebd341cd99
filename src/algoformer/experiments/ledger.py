"""The ledger of runs: a line when a run begins and one when it ends, whatever its end.

Lines are appended in one write each, so that several processes may share a file, and a run that was killed is seen: it
has begun and not ended.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FILE = "runs.jsonl"


@dataclass
class Entry:
    """One run: of an experiment as a whole (no `key`), or one training within it.

    `steps` of `of` were done when it ended, the first `begun` of them in earlier runs. `outcome` is finished, stopped
    (it can go on), stuck, diverged, untested (it needs what is not there) or failed, and killed where no end was told.
    Of `at_once` runs that share its device, its minutes are longer than alone.
    """

    id: str
    at: str
    experiment: str
    seed: int
    config: str
    preset: str
    purpose: str
    device: str
    key: str = ""
    begun: int = 0
    steps: int = 0
    of: int = 0
    minutes: float = 0.0
    outcome: str = "killed"
    at_once: int = 1
    commit: str = ""  # of the code, and the version of torch; entries before these were told have none
    torch: str = ""


@dataclass(frozen=True)
class Ledger:
    """Where the runs of one experiment with one seed are told."""

    file: Path
    experiment: str
    seed: int
    config: str
    preset: str
    device: str
    at_once: int = 1
    commit: str = ""
    torch: str = ""

    @contextmanager
    def entry(self, purpose: str, **about: Any) -> Iterator[Entry]:
        """A run that begins now. What its body does not say of the outcome, its end does."""
        now, begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.perf_counter()
        mine = {k: v for k, v in asdict(self).items() if k != "file"}
        e = Entry(id=uuid.uuid4().hex[:12], at=now, purpose=purpose, outcome="", **mine, **about)
        self._append({k: v for k, v in asdict(e).items() if k not in ("minutes", "outcome")})
        try:
            yield e
            e.outcome = e.outcome or "finished"
        except BaseException as error:
            e.outcome = e.outcome or ("failed" if isinstance(error, Exception) else "stopped")
            raise
        finally:
            e.minutes = round((time.perf_counter() - begin) / 60, 3)
            told = ("id", "begun", "steps", "of", "minutes", "outcome")
            self._append({k: v for k, v in asdict(e).items() if k in told})

    def _append(self, row: dict[str, Any]) -> None:
        append(self.file, json.dumps(row, separators=(",", ":")).encode() + b"\n")


def append(file: Path, lines: bytes) -> None:
    """Add whole lines in one write, or none, and wait until they are on the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if (written := os.write(handle, lines)) < len(lines):
            os.ftruncate(handle, os.fstat(handle).st_size - written)  # or the next line would be glued to this one
            raise OSError(f"{file} must have room for {len(lines)} bytes; {written} were written: is the disk full?")
        os.fsync(handle)
    finally:
        os.close(handle)


def entries(file: Path) -> list[Entry]:
    """All runs that were begun, in the order in which they were, on whatever machine."""
    found: dict[str, dict[str, Any]] = {}
    known = {f.name for f in fields(Entry)}
    for number, line in enumerate(file.read_text().splitlines() if file.exists() else (), 1):
        try:
            row = json.loads(line)
            found.setdefault(row["id"], {}).update({k: v for k, v in row.items() if k in known})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"line {number} of {file} must be a run in JSON; got {line[:60]!r}") from error
    try:
        return sorted((Entry(**row) for row in found.values()), key=lambda e: e.at)
    except TypeError as error:
        raise ValueError(f"every run in {file} must have begun; {error}") from error
