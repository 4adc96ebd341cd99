"""Results and unfinished work on their way from one machine to another, in a few files of a bounded size.

What is small goes first: the ledger, results and answers. Then go the checkpoints of unfinished runs, then models, as
many as fit; what does not is named.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import shutil
import tarfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from algoformer.experiments.ledger import FILE, append
from algoformer.experiments.registry import EXPERIMENTS
from algoformer.files import replace_file
from algoformer.training import checkpoint

PART = 15 * 2**20  # bytes of a file
MOST = 60 * 2**20  # bytes in all
EVERY = 60.0  # seconds between two packages of work that goes on
NAME = re.compile(r"results-([0-9a-f]{16})-(\d+)-of-(\d+)\.part")


@dataclass(frozen=True)
class Packed:
    """The files that were written, and the paths for which there was no room."""

    files: list[Path]
    left: list[Path]


def pack(out: str | Path, folder: str | Path, *, since: float = 0.0, most: int = MOST) -> Packed:
    """Write what a folder of results holds into a few files: all that is unfinished, and what is newer than `since`."""
    root, left = Path(out), []
    room = most - most % tarfile.RECORDSIZE - 2 * tarfile.BLOCKSIZE  # whole records end with two blocks
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for unit in _units(root, since):
            files = [unit] if unit.is_file() else sorted(p for p in unit.rglob("*") if p.is_file())
            size = sum(3 + math.ceil(file.stat().st_size / tarfile.BLOCKSIZE) for file in files) * tarfile.BLOCKSIZE
            if size > room:
                left.append(unit)
                continue
            room -= size
            for file in files:
                tar.add(file, file.relative_to(root).as_posix())
    whole = data.getvalue()
    parts = [whole[i : i + PART] for i in range(0, len(whole), PART)]
    digest, target = hashlib.sha256(whole).hexdigest()[:16], Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    names = [target / f"results-{digest}-{i}-of-{len(parts)}.part" for i in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        replace_file(name, part)
    return Packed(names, left)


class Packing:
    """Packs while work goes on, and when it ends: a machine that goes without a word takes only its last minute along.

    The folder holds one package, the last; `made` says what is in it. Work that is refused is not packed.
    """

    def __init__(self, out: str | Path, folder: str | Path, *, since: float = 0.0, every: float = EVERY) -> None:
        self.out, self.folder, self.since, self.every = out, folder, since, every
        self.made = Packed([], [])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._meanwhile, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        if kind is None or not issubclass(kind, Exception):  # an interrupt is none
            self._pack()

    def _meanwhile(self) -> None:
        while not self._ended.wait(self.every):
            with suppress(OSError):  # a file went while it was read; the next package is whole
                self._pack()

    def _pack(self) -> None:
        made = pack(self.out, self.folder, since=self.since)
        for old in set(self.made.files) - set(made.files):
            old.unlink()
        self.made = made


def unpack(folder: str | Path, out: str | Path) -> list[str]:
    """Put every package of a folder into a folder of results, the oldest first; the paths of what they brought.

    Lines of the ledger are added to those there, and of an unfinished training the further state stays, none once its
    model is there. A package that is not whole is an error, after all others are put.
    """
    found: dict[str, list[re.Match[str]]] = {}
    for match in filter(None, (NAME.fullmatch(p.name) for p in sorted(Path(folder).iterdir()))):
        found.setdefault(match[1], []).append(match)
    if not found:
        raise ValueError(f"{folder} must hold the parts of a package; got none")
    packages, torn = [], []
    for parts in found.values():
        try:
            packages.append(_whole(Path(folder), sorted(parts, key=lambda match: int(match[2]))))
        except ValueError as error:
            torn.append(error)
    names = [name for whole in sorted(packages, key=_changed) for name in _put(whole, Path(out))]
    if torn:
        raise torn[0]
    return list(dict.fromkeys(names))


def _whole(folder: Path, parts: list[re.Match[str]]) -> bytes:
    """The package of these parts, every byte as it was written."""
    if [int(match[2]) for match in parts] != list(range(int(parts[0][3]))):
        raise ValueError(f"{folder} must hold {parts[0][3]} parts; got {', '.join(match[0] for match in parts)}")
    whole = b"".join((folder / match[0]).read_bytes() for match in parts)
    if hashlib.sha256(whole).hexdigest()[:16] != parts[0][1]:
        raise ValueError(f"the parts in {folder} must be as they were written; their hash is another")
    return whole


def _changed(whole: bytes) -> float:
    """When what is in a package was last changed; unlike the times of its parts, that travels with it."""
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        return max((member.mtime for member in tar), default=0.0)


def _put(whole: bytes, root: Path) -> list[str]:
    """Put one package; the paths of what it brought."""
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        members = tar.getmembers()
        if any(".." in Path(m.name).parts for m in members):
            raise ValueError("the paths of a package must lie inside of it; got one that leads outside")
        for place in {Path(*Path(m.name).parts[:3]) for m in members if m.name.startswith("unfinished/")}:
            mine = [m for m in members if Path(m.name).is_relative_to(place)]
            if _furthest(m.name for m in mine) < _whole_steps(root / place / "checkpoints"):
                members = [m for m in members if m not in mine]
            else:
                shutil.rmtree(root / place, ignore_errors=True)  # an older state of the same training
        if FILE in tar.getnames():
            known = set((root / FILE).read_bytes().splitlines(keepends=True) if (root / FILE).exists() else ())
            lines = tar.extractfile(FILE).read().splitlines(keepends=True)  # type: ignore[union-attr]
            append(root / FILE, b"".join(line for line in lines if line not in known))
        tar.extractall(root, [m for m in members if m.name != FILE], filter="data")
    for done in root.glob("*_*/*.json"):
        if done.parent.name in EXPERIMENTS:
            shutil.rmtree(root / "unfinished" / done.stem, ignore_errors=True)
    for place in root.glob("unfinished/*/*"):
        if (root / "models" / place.name).exists():
            shutil.rmtree(place)
    return [m.name for m in members]


def _furthest(paths: Iterable[str]) -> int:
    """The last step that has a checkpoint among these paths."""
    names = (checkpoint.NAME.fullmatch(part) for path in paths for part in Path(path).parts)
    return max((int(match[1]) for match in names if match), default=0)


def _whole_steps(folder: Path) -> int:
    """The last step of which a folder of checkpoints holds a whole one: a torn one is no further state."""
    try:
        found = checkpoint.latest(folder)
    except checkpoint.Torn:
        return 0
    return 0 if found is None else found[0]


def _units(root: Path, since: float) -> Iterator[Path]:
    """What goes or stays as a whole, the most wanted first."""

    def new(paths: Iterator[Path]) -> list[Path]:
        return sorted(p for p in paths if p.stat().st_mtime >= since)

    if (root / FILE).exists():
        yield root / FILE
    yield from new(p for p in root.glob("*_*/*.json") if p.parent.name in EXPERIMENTS)
    yield from new(root.glob("answers/*.safetensors"))
    yield from sorted(p for p in root.glob("unfinished/*/*") if p.is_dir())
    models = [p for p in root.glob("models/*") if p.suffix != ".tmp" and p.stat().st_mtime >= since]
    yield from sorted(models, key=lambda p: -p.stat().st_mtime)
