"""Where a number comes from: commit, versions, device."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def provenance(device: str = "cpu") -> dict[str, Any]:
    """What to write beside a published figure."""
    import torch

    return {
        "commit": _commit(),
        "versions": {name: _version(name) for name in ("algoformer", "torch", "numpy", "scipy", "scikit-learn")},
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{platform.machine()} CPU",
        "threads": torch.get_num_threads(),
    }


def _commit() -> str:
    """The commit of the package, and + where its code is not that of the commit; unknown where it is installed."""
    try:
        git = ["git", "-C", str(Path(__file__).parent)]
        own = [
            *git,
            "ls-files",
            "--error-unmatch",
            Path(__file__).name,
        ]  # not the repository that an environment lies in
        subprocess.run(own, capture_output=True, check=True)
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
