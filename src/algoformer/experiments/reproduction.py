"""Run experiments: finished work is never repeated, several runs go at once, and one that dies takes no other along."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from algoformer.checks import one_of, whole
from algoformer.experiments.clock import Clock
from algoformer.experiments.registry import ALSO, EXPERIMENTS
from algoformer.experiments.runs import Outcome, Pool, Run, attempt
from algoformer.experiments.store import Store
from algoformer.files import folder_at

TRIES = 3  # a run that dies is tried twice more

Progress = Callable[[int, int, str], None]
Finished = Callable[[Run, Outcome], None]


@dataclass(frozen=True)
class Reproduction:
    """The outcomes of all runs, and result files that are broken, each with what is wrong."""

    outcomes: list[Outcome]
    broken: dict[Path, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Did no run fail, and is every file whole?"""
        return not self.broken and all(o.status != "failed" for o in self.outcomes)

    @property
    def unfinished(self) -> list[Outcome]:
        """The runs for which the minutes were too few."""
        return [o for o in self.outcomes if o.status in ("stopped", "waiting")]


def reproduce(
    names: Sequence[str],
    *,
    preset: str = "cpu",
    seeds: int = 3,
    device: str = "cpu",
    jobs: int | None = None,
    on: str | None = None,
    minutes: float | None = None,
    more: float = 0.0,
    out: str | Path = "results",
    progress: Progress | None = None,
) -> Reproduction:
    """Run the named experiments (all, if there is no name) with seeds 0 .. seeds - 1. Results go to `out`.

    At most `jobs` go at once: on this machine (None: one after the other; `device="cuda"` takes its GPUs in turn), or
    with `on="ray"` on a Ray cluster (None: as many as it has room for).

    After `minutes` what is going is written down and stopped, and nothing new is begun; the same call goes on and ends
    with the same numbers. A training whose checkpoint is too large to travel is begun only if it can end on this
    machine, which stays for `more` minutes after them.
    """
    clock = Clock.of(minutes, more)
    whole("seeds", seeds, least=1)
    if jobs is not None:
        whole("jobs", jobs, least=1)
    folder_at("out", out)  # what cannot be kept is not run
    wanted = dict.fromkeys(ALSO.get(name, name) for name in names or EXPERIMENTS)
    asked = [Run(name, preset, seed, Path(out)) for name in wanted for seed in range(seeds)]
    outcomes = {run: run.ended("kept") for run in asked if run.finished}
    Path(out).mkdir(parents=True, exist_ok=True)
    kept, rest = len(outcomes), [run for run in asked if run not in outcomes]
    pool = _pool(on, device, jobs, clock)
    tell = progress or (lambda done, total, what: None)
    tell(0, len(rest), "")

    def finished(run: Run, outcome: Outcome) -> None:
        outcomes[run] = outcome
        tell(len(outcomes) - kept, len(rest), f"{run.name}, seed {run.seed}: {outcome.status}")

    if pool is None:
        for run in rest:
            finished(run, attempt(run, device, clock))
    elif rest:
        with pool:
            spread(rest, pool, finished)
    return Reproduction([outcomes[run] for run in asked], Store(Path(out)).records()[1])


def spread(runs: Sequence[Run], pool: Pool, finished: Finished) -> None:
    """Several runs at once; one that fails is tried twice more, after those that wait."""
    waiting, tries, going = deque(runs), Counter[Run](), 0
    while waiting or going:
        while waiting and going < pool.room():
            run = waiting.popleft()
            pool.start(run)
            tries[run] += 1
            going += 1
        for run, outcome in pool.ended():
            going -= 1
            if outcome.status != "failed":
                finished(run, outcome)
            elif tries[run] < TRIES:
                waiting.append(run)
            else:
                what, newline, where = outcome.message.partition("\n")
                finished(run, replace(outcome, message=f"{what} ({TRIES} tries){newline}{where}"))


def _pool(on: str | None, device: str, jobs: int | None, clock: Clock) -> Pool | None:
    """None: one after the other, in this process."""
    if on is not None:
        one_of("on", on, ("ray",))
        if clock.deadline is not None:
            raise ValueError("minutes must be left out on a Ray cluster, whose runs have no deadline; got both")
        from algoformer.experiments.cluster import Cluster

        return Cluster(device, jobs)
    from algoformer.training import device_named

    device_named(device)
    if jobs is None or jobs == 1:
        return None
    from algoformer.experiments.processes import Processes

    return Processes(device, jobs, clock)
