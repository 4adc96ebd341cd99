"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import uuid4


def folder_at(name: str, path: str | Path) -> Path:
    """Hold a path to a folder that can be written to, or to a place where one can be made."""
    folder = Path(path)
    first = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    within = "" if first == folder else f"{folder} in "
    if first.exists() and not first.is_dir():
        raise ValueError(f"{name} must be a folder; got {within}the file {first}")
    if first.exists() and not os.access(first, os.W_OK):
        raise ValueError(f"{name} must be a folder that can be written to; got {within}{first}")
    return folder


def file_at(name: str, path: str | Path) -> Path:
    """Hold a path to a file, or to a place where one can be made."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{name} must be a file; got the folder {file}")
    folder_at(f"the place of {name}", file.parent)
    return file


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; what stood there before stays until then."""
    draft = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        put(draft, data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)


def settle(draft: Path, home: Path) -> None:
    """Give a folder that is complete its name; where another process was quicker, that one's stays."""
    try:
        draft.replace(home)
    except OSError:
        if not home.is_dir():
            raise
        shutil.rmtree(draft)


def put(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
