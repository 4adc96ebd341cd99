"""Results and unfinished work on their way from one machine to another, in a few files of a bounded size.

What is small goes first: the ledger, results and answers. Then go the checkpoints of unfinished runs, then models, as
many as fit; what does not is named.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from algoformer.experiments.ledger import FILE, append
from algoformer.experiments.registry import EXPERIMENTS

PART = 15 * 2**20  # bytes of a file
MOST = 48 * 2**20  # bytes in all
NAME = re.compile(r"results-([0-9a-f]{16})-(\d+)-of-(\d+)\.part")


@dataclass(frozen=True)
class Packed:
    """The files that were written, and the paths for which there was no room."""

    files: list[Path]
    left: list[Path]


def pack(out: str | Path, folder: str | Path, *, since: float = 0.0, most: int = MOST) -> Packed:
    """Write what a folder of results holds into a few files: all that is unfinished, and what is newer than `since`."""
    root, room, left = Path(out), most, []
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for unit in _units(root, since):
            files = [unit] if unit.is_file() else sorted(p for p in unit.rglob("*") if p.is_file())
            size = sum(file.stat().st_size + 1536 for file in files)
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
        name.write_bytes(part)
    return Packed(names, left)


def unpack(folder: str | Path, out: str | Path) -> list[str]:
    """Put what was packed into a folder of results; its paths. Lines of the ledger are added to those there."""
    parts = {match: p.read_bytes() for p in sorted(Path(folder).iterdir()) if (match := NAME.fullmatch(p.name))}
    digests = {match[1] for match in parts}
    if len(digests) != 1:
        raise ValueError(f"{folder} must hold the parts of one package; got {len(digests)}")
    order = sorted(parts, key=lambda match: int(match[2]))
    if [int(match[2]) for match in order] != list(range(int(order[0][3]))):
        raise ValueError(f"{folder} must hold {order[0][3]} parts; got {', '.join(match[0] for match in order)}")
    whole = b"".join(parts[match] for match in order)
    if hashlib.sha256(whole).hexdigest()[:16] not in digests:
        raise ValueError(f"the parts in {folder} must be as they were written; their hash is another")
    root = Path(out)
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        names = tar.getnames()
        if FILE in names:
            known = (root / FILE).read_bytes().splitlines(keepends=True) if (root / FILE).exists() else []
            lines = tar.extractfile(FILE).read().splitlines(keepends=True)  # type: ignore[union-attr]
            append(root / FILE, b"".join(line for line in lines if line not in set(known)))
        for place in {Path(*Path(n).parts[:3]) for n in names if n.startswith("unfinished/")}:
            shutil.rmtree(root / place, ignore_errors=True)  # an older state of the same training
        tar.extractall(root, [m for m in tar.getmembers() if m.name != FILE], filter="data")
    for done in (Path(n).stem for n in names if Path(n).parts[0] in EXPERIMENTS):
        shutil.rmtree(root / "unfinished" / done, ignore_errors=True)
    return names


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
