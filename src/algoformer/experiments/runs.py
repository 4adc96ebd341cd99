"""One run of one experiment: what it is, how it is carried out, and what became of it."""

from __future__ import annotations

import shutil
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from algoformer.experiments.clock import Clock
from algoformer.experiments.experiment import Missing, Site, preset
from algoformer.experiments.ledger import FILE, Ledger
from algoformer.experiments.registry import load
from algoformer.experiments.store import Store

Status = Literal["made", "kept", "untested", "stopped", "waiting", "failed"]
NO_CLOCK = Clock()


@dataclass(frozen=True)
class Run:
    """An experiment at a preset with a seed, and the folder of its results."""

    name: str
    preset: str
    seed: int
    out: Path

    @property
    def config(self) -> Any:
        """The config of its preset."""
        return preset(load(self.name), self.preset)

    @property
    def file(self) -> Path:
        """Where its result belongs."""
        return Store(self.out).file(self.name, self.config, self.seed)

    @property
    def finished(self) -> bool:
        """Is its result there?"""
        return Store(self.out).has(self.name, self.config, self.seed)

    def ended(self, status: Status, message: str = "") -> Outcome:
        """The outcome of this run."""
        return Outcome(self.name, self.seed, status, message)


@dataclass(frozen=True)
class Outcome:
    """What became of one run: made now, kept from before, not possible at this scale, or failed.

    One that was stopped in time goes on when it is asked for again; one that waits was not begun.
    """

    experiment: str
    seed: int
    status: Status
    message: str = ""


class Pool(Protocol):
    """Where several runs go at once, and one that dies takes no other along."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None:
        """Stop the runs that are still going."""

    def room(self) -> int:
        """How many runs may go at once."""

    def start(self, run: Run) -> None:
        """Begin a run and do not wait for it."""

    def ended(self) -> list[tuple[Run, Outcome]]:
        """Wait until a run has ended; all that have. One that died has failed."""


def attempt(run: Run, device: str, clock: Clock = NO_CLOCK, at_once: int = 1) -> Outcome:
    """Carry out a run, one of so many on its device, and tell how it ended."""
    from algoformer.training import OutOfTime

    if clock.over:
        return run.ended("waiting", "there was no time left")
    try:
        carry_out(run, device, clock, at_once)
    except Missing as missing:
        return run.ended("untested", str(missing))
    except OutOfTime as stop:
        return run.ended("stopped", str(stop))
    except Exception as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return run.ended("failed", f"{what}\n{traceback.format_exc(limit=-3).rstrip()}")
    return run.ended("made")


def carry_out(run: Run, device: str, clock: Clock = NO_CLOCK, at_once: int = 1) -> None:
    """Keep the result of a run. What it leaves on the way stays until it is finished, so that it can go on."""
    from algoformer.provenance import provenance
    from algoformer.training import OutOfTime

    folder, origin = run.out / "unfinished" / run.file.stem, provenance(device)
    ledger = Ledger(
        run.out / FILE, run.name, run.seed, run.file.stem, run.preset, origin["device"], at_once, origin["commit"],
        origin["versions"]["torch"],
    )  # fmt: skip
    site = Site(
        seed=run.seed, device=device, models=run.out / "models", answers=run.out / "answers", folder=folder,
        clock=clock, ledger=ledger,
    )  # fmt: skip
    begin = time.perf_counter()
    with ledger.entry("experiment") as entry:
        try:
            result = load(run.name).run(run.config, site)
        except (Missing, OutOfTime) as end:
            entry.outcome = "untested" if isinstance(end, Missing) else "stopped"
            raise
    seconds = time.perf_counter() - begin
    about = {**origin, "seconds": round(seconds, 3), "preset": run.preset}
    Store(run.out).write(run.name, run.config, run.seed, result, about)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.exists() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()
