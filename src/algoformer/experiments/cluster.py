"""Runs spread over the machines of a Ray cluster (the extra `sweep`).

The machines need not share a disk. A run works in a temporary folder of the machine it lands on: the models that were
kept for its seed and the answers of models come with it, and its result and what it adds to both come back to the
machine that asked.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from algoformer.checks import one_of
from algoformer.experiments.runs import Outcome, Run, attempt
from algoformer.experiments.trained import kept
from algoformer.files import replace_file, settle

Files = dict[str, bytes]  # by their paths in the folder of results


class Cluster:
    """One Ray task a run, with one core and, where the device is "cuda", one GPU.

    It joins the cluster of RAY_ADDRESS or the one that runs on this machine, and else starts one here and stops it at
    the end. `jobs` (None: as many as there is room for) are the runs at a time. Ray tries nothing again by itself.
    """

    def __init__(self, device: str, jobs: int | None) -> None:
        one_of("device", device, ("cpu", "cuda"))  # which GPU is for Ray to say
        try:
            import ray
        except ImportError as error:
            raise ImportError("on='ray' needs Ray, which is not installed: pip install 'algoformer[sweep]'") from error
        self.ray: Any = ray
        self.device, self.jobs = device, jobs
        self.token = uuid.uuid4().hex  # tells the folders of this cluster's runs from those of others
        self.ours = False
        self.sent: dict[Path, Any] = {}
        self.going: dict[Any, Run] = {}

    def __enter__(self) -> Self:
        self.ours = not self.ray.is_initialized()
        if self.ours:
            answered(os.environ.get("RAY_ADDRESS", ""))
            self.ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        return self

    def __exit__(self, *error: object) -> None:
        for ref in self.going:
            self.ray.cancel(ref, force=True)
        if self.ours:
            self.ray.shutdown()

    def room(self) -> int:
        """The number of jobs, or of the cluster's cores or GPUs: it may grow and shrink meanwhile."""
        kind = "GPU" if self.device == "cuda" else "CPU"
        there = int(self.ray.cluster_resources().get(kind, 0))
        if there == 0 and not self.going:  # Ray would wait for one without a word
            raise ValueError(f"the Ray cluster must have a {kind} for device {self.device!r}; got none")
        return min(there, self.jobs or there)

    def start(self, run: Run) -> None:
        """A Ray task, which is given what is stored for it."""
        given = _stored(run)
        for place in given:
            if place not in self.sent:
                self.sent[place] = self.ray.put(packed(place, run.out))
        task = self.ray.remote(_remote).options(
            name=f"{run.name}-{run.seed}", num_cpus=1, num_gpus=int(self.device == "cuda"), max_retries=0
        )
        ref = task.remote(run, self.device, self.token, [self.sent[place] for place in given])
        self.going[ref] = run

    def ended(self) -> list[tuple[Run, Outcome]]:
        """What came back is kept; a task whose worker or machine is gone has died."""
        found = []
        for ref in self.ray.wait(list(self.going))[0]:
            run = self.going.pop(ref)
            try:
                outcome, files = self.ray.get(ref)
            except self.ray.exceptions.RayError as error:
                found.append((run, run.ended("failed", f"{type(error).__name__}: {error}")))
            else:
                found.append((run, keep(run, outcome, files)))
        return found


def answered(address: str) -> None:
    """Hold an address that names a port to one at which something answers; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ConnectionError(f"RAY_ADDRESS must be that of a Ray cluster; got {address}: {error}") from error


def work(run: Run, device: str, folder: Path, given: Iterable[Files]) -> tuple[Outcome, Files]:
    """Carry out a run in a folder of its own, with what is stored for it: its outcome, its result, and what it adds.

    Only the folder of one that is killed stays, and there it can go on.
    """
    import torch

    torch.set_num_threads(1)  # the core that was asked for
    here, known = replace(run, out=folder), set[str]()
    for files in given:
        unpack(files, folder)
        known |= files.keys()
    try:
        outcome = attempt(here, device)
        made = {} if outcome.status != "made" else {_path(here.file, folder): here.file.read_bytes()}
        for place in _stored(here):
            made |= packed(place, folder)
        return outcome, {path: data for path, data in made.items() if path not in known}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(run: Run, outcome: Outcome, files: Files) -> Outcome:
    """Put what a run made into the folder of results: answers and models, each whole or not at all, then the result."""
    result = _path(run.file, run.out)
    if outcome.status == "made" and result not in files:
        return run.ended("failed", f"its result must be {result}, and was not: every machine needs the same algoformer")
    for path in files:
        if path.startswith("answers/"):
            (run.out / "answers").mkdir(parents=True, exist_ok=True)
            replace_file(run.out / path, files[path])
    for name in sorted({Path(path).parts[1] for path in files if path.startswith("models/")}):
        home = run.out / "models" / name
        draft, prefix = home.with_name(f"{name}.{os.getpid()}.tmp"), _path(home, run.out) + "/"
        unpack({path.removeprefix(prefix): data for path, data in files.items() if path.startswith(prefix)}, draft)
        settle(draft, home)
    if outcome.status == "made":
        run.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(run.file, files[result])
    return outcome


def packed(place: Path, root: Path) -> Files:
    """A file, or the files of a folder, by their paths from the root."""
    files = [place] if place.is_file() else (file for file in sorted(place.rglob("*")) if file.is_file())
    return {_path(file, root): file.read_bytes() for file in files}


def unpack(files: Files, folder: Path) -> None:
    """Write files into a folder."""
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def _stored(run: Run) -> list[Path]:
    """The models of a run's seed, and all answers."""
    return [*kept(run.out / "models", run.seed), *sorted((run.out / "answers").glob("*.safetensors"))]


def _path(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def _remote(run: Run, device: str, token: str, given: list[Any]) -> tuple[Outcome, Files]:
    import ray

    folder = Path(tempfile.gettempdir()) / f"algoformer-{token}-{run.file.stem}"
    return work(run, device, folder, map(ray.get, given))
