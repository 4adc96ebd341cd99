"""The training loop: one for every model, on a CPU, a GPU or several processes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from algoformer.checks import real, whole
from algoformer.files import folder_at, replace_file
from algoformer.models import LinearTransformer, Model
from algoformer.models.model import load_weights
from algoformer.prompt import Text
from algoformer.task import Task
from algoformer.tasks import LinearRegression, Parallel
from algoformer.training import checkpoint
from algoformer.training.codec import config_in, decode, encode
from algoformer.training.config import TrainConfig
from algoformer.training.curriculum import Curriculum
from algoformer.training.data import Data, Size, resized, seed_of
from algoformer.training.step import Step, apart, compiled, plain, settings

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

FREE = {"train": ("checkpoint_every", "keep")}  # may differ when a run goes on
MOVED = FREE | {"task": ("data",)}  # of text, whose tokens are compared
MANY = 3  # fields of another config that are told with their values
LARGEST = 1e6  # times its first loss: a run that is worse than that has diverged


class Progress(NamedTuple):
    """Where a run stands: the mean loss of the last steps, steps a second, and the seconds still to go."""

    step: int
    steps: int
    loss: float
    rate: float
    eta: float
    size: Size
    row: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished (or, with `until`, paused) run. The model that was passed in holds the weights.

    `reached` says at which step each size of the curriculum was reached; `stuck`, that the full size was not reached
    by half the steps.
    """

    variant: str
    step: int
    loss: float
    stuck: bool
    reached: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    first_step: float = 0.0


class TrainingDiverged(ArithmeticError):
    """The loss or the gradient is no longer finite, or the loss has exploded."""


class Interrupted(KeyboardInterrupt):
    """A run stopped by a signal after it had written a checkpoint."""


class OutOfTime(Exception):  # a fact, not an error: the run goes on when it is called again
    """A run that came to its deadline and wrote a checkpoint."""


class Watch(NamedTuple):
    """What to measure of a model while it is trained: every so many steps, and at the end. It must draw nothing random.

    The model is shown as it will be evaluated: averaged weights if there are any, float32, no kernels. What `look`
    gives is an "error" event of the log.
    """

    every: int
    look: Callable[[Model], dict[str, float]]


def train(
    model: Model,
    task: Task[Any],
    config: TrainConfig,
    folder: str | Path | None = None,
    *,
    until: int | None = None,
    deadline: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    watch: Watch | None = None,
) -> Result:
    """Train a model in place on fresh prompts of a task.

    With a folder the run logs to log.jsonl, writes checkpoints, goes on from the last one if there is one, and at its
    end saves the model in the Hugging Face manner. `until` stops at an earlier step, to be continued. At the `deadline`
    (as `time.time` counts) the run writes one checkpoint, drops those before it, and raises `OutOfTime`.
    """
    for name, value, kind in (("model", model, Model), ("task", task, Task), ("config", config, TrainConfig)):
        if not isinstance(value, kind):
            got = value.__name__ if isinstance(value, type) else type(value).__name__
            raise TypeError(f"{name} must be a {kind.__name__}; got {'the class ' * isinstance(value, type)}{got}")
    if until is not None:
        whole("until", until)
    if watch is not None:
        whole("watch.every", watch.every, 1)
    if deadline is not None:
        real("deadline", deadline)
    try:
        run = _Run(model, task, config, None if folder is None else folder_at("folder", folder), progress, watch)
        with run.opened():
            try:
                return run.go(until, deadline)
            finally:
                model.eval()
    finally:
        apart(model)


def hold(model: Model, task: Task[Any], config: TrainConfig) -> None:
    """Refuse what `train` refuses before any work."""
    try:
        _Run(model, task, config, None, None, None)
    finally:
        apart(model)


class _Run:
    def __init__(
        self,
        model: Model,
        task: Task[Any],
        config: TrainConfig,
        folder: Path | None,
        progress: Callable[[Progress], None] | None,
        watch: Watch | None,
    ) -> None:
        self.born = time.perf_counter()
        self.model, self.task, self.config, self.folder = model, task, config, folder
        self.progress, self.watch = progress, watch
        weight = next(model.parameters())
        self.device = weight.device
        together = dist.is_available() and dist.is_initialized()
        self.rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
        self.step = Step(model, task, config, self.device)
        self.data = Data(task, config, self.device, weight.dtype, rank=self.rank, world=world, padded=self.step.graphs)
        self.curriculum = Curriculum(task, config, model.steps)
        self.done, self.stuck, self.first_loss = 0, False, 0.0
        self.loss = float("nan")
        layers = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        self.drops = bool(getattr(model.config, "dropout", 0.0)) or any(m.p > 0 for m in layers)
        self.pending: list[list[float]] = []  # (loss, gradient norm) of the steps since the last line of the log
        self.saved: int | None = None
        self._fits(task)
        if world > 1:
            for v in (*model.state_dict().values(), *self.step.averages):
                dist.broadcast(v, 0)

    def go(self, until: int | None, deadline: float | None) -> Result:
        c, watch = self.config, self.watch
        end = c.steps if until is None else min(until, c.steps)
        self.model.train()
        history = torch.zeros(
            min(c.log_every, c.steps), 2, device=self.device, dtype=next(self.model.parameters()).dtype
        )
        filled = 0
        self.tick = time.perf_counter(), self.done
        first = 0.0
        with (
            _signals() as stop,
            settings(self.step.precision, c.deterministic, self.device),
            compiled(self.model, self.step.fast, self.kernels),
        ):
            while self.done < end:
                if (event := self.curriculum.note(self.done)) is not None:
                    self._log(event)
                size = self.curriculum.size(self.done)
                with self._dropout():
                    history[filled].copy_(self.step(self.done, self.data.batch(self.done, size), size.loops))
                filled, self.done = filled + 1, self.done + 1
                if not first:
                    self._wait()
                    first = time.perf_counter() - self.born
                line = self.done % c.log_every == 0 or self.done == c.steps
                save = self.folder is not None and (self.done % c.checkpoint_every == 0 or self.done == end)
                look = watch is not None and (self.done % watch.every == 0 or self.done == c.steps)
                asked, late = self._any(stop.is_set(), deadline is not None and time.time() > deadline)
                halt = asked or late
                if line or save or look or halt or self.done == end:
                    self._take(history[:filled])
                    filled = 0
                if line:
                    self._line(size)
                if 2 * self.done == c.steps + c.steps % 2 and not self.curriculum.full(self.done):
                    self.stuck = True
                    self._log({"step": self.done, "event": "stuck"})
                if look:
                    self._look()
                if save or (halt and self.folder is not None):
                    self._save()
                if line or look or save:
                    self.tick = time.perf_counter(), self.done  # the rate is that of steps alone
                if asked and self.done < end:
                    raise Interrupted(f"stopped at step {self.done} of {c.steps}; {self._left}")
                if late and self.done < end:
                    if self.rank == 0 and self.folder is not None:  # it may have to travel
                        checkpoint.drop(self.folder / "checkpoints", self.done, keep=1)
                    raise OutOfTime(f"stopped in time at step {self.done} of {c.steps}; {self._left}")
        self._wait()
        self._finite()
        self._finish()
        if any(self._any(stop.is_set())):  # whoever called may have more to do, and is to stop too
            raise Interrupted(f"stopped after step {self.done}, to which this run was to go")
        return Result(
            variant=self.model.variant,
            step=self.done,
            loss=self.loss,
            stuck=self.stuck,
            reached=self.curriculum.reached,
            seconds=time.perf_counter() - self.born,
            first_step=first,
        )

    @property
    def _left(self) -> str:
        """What is left of a run that stops."""
        return "nothing is kept without a folder" if self.folder is None else "run again to go on"

    def _fits(self, task: Task[Any]) -> None:
        """Try one batch at the full size, before any work can be lost."""
        generator = torch.Generator(self.device).manual_seed(0)
        sample = task.sample(2, generator, next(self.model.parameters()).dtype)
        with torch.no_grad():
            q = self.model.prepare(sample.prompt)
            answer = self.model.read(q, self.model.init(q)).reshape(sample.prompt.asked)
        self.kernels = self.config.kernels and self.model.fusible(q)
        if isinstance(sample.prompt, Text):
            self._fits_text(task)
        elif self.config.smoothing:
            raise ValueError(f"smoothing must be 0 where numbers are asked; got {self.config.smoothing}")
        elif answer.shape != sample.target.shape:
            raise ValueError(f"the task's answers must be {tuple(answer.shape)}; got {tuple(sample.target.shape)}")
        elif 0 in answer.shape:
            raise ValueError(f"the task must ask at least one answer; got none of {type(task).__name__}")
        if task.shares and self.config.ahead > 1:
            raise ValueError(
                f"ahead must be 1 where the prompts of a draw share a covariance, or many steps would have the same; "
                f"got {self.config.ahead}"
            )
        dims, examples = (None if r is None else r.stop for r in (self.config.dims, self.config.examples))
        if (dims, examples) != (None, None):
            for size in (Size(dims, examples, 0), self.curriculum.size(0)):  # the largest and the first
                resized(task, size)
        if self.config.loss == "rao-blackwell":
            exact = isinstance(self.model, LinearTransformer) and self.model.bilinear
            if not exact or not isinstance(task, LinearRegression) or task.noise or task.k > 1 or task.dense:
                raise ValueError(
                    "rao-blackwell needs a LinearTransformer of the form eq9 or eq13, and one linear function a prompt "
                    f"without noise, not dense; got {self.model.variant} and {task}"
                )

    def _fits_text(self, task: Any) -> None:
        c, positions = self.config, self.model.config.positions
        if not isinstance(task, Parallel):
            raise TypeError(f"a task of text must be a Parallel; got {type(task).__name__}")
        if c.loss != "window" or c.robust is not None or c.pool is not None or c.ahead > 1:
            raise ValueError("loss must be window, robust and pool None, and ahead 1, on text; got another")
        if c.loops is not None and c.loops.every is None:
            raise ValueError(f"a ramp of loops must go by the clock (every) on text; got {c.loops}")
        if positions and task.longest > positions:
            raise ValueError(f"positions must be at least the {task.longest} tokens of a text; got {positions}")

    def _take(self, rows: Tensor) -> None:
        """Bring the losses of the last steps to the host, and stop if they are sick."""
        new = rows.tolist()
        for i, (loss, norm) in enumerate(new):
            self.first_loss = self.first_loss or abs(loss)
            finite = loss - loss == 0 and norm - norm == 0
            if not finite or abs(loss) > LARGEST * self.first_loss:
                step = self.done - len(new) + i
                self._drawn_well(step)
                raise self._diverged(f"the loss is {loss:g}, the gradient's norm {norm:g} at step {step}")
        self.pending += new

    def _diverged(self, what: str) -> TrainingDiverged:
        last = "no checkpoint was written" if self.saved is None else f"the last good checkpoint is {self.saved}"
        return TrainingDiverged(
            f"{what}; {last}. "
            "Try a smaller lr, a longer warmup, a smaller clip, precision fp32 or, for linear attention, robust"
        )

    def _drawn_well(self, step: int) -> None:
        """Refuse a task whose own numbers are sick: it is not the training that diverged."""
        drawn = self.data.batch(step, self.curriculum.size(step)).tensors()
        if not all(bool(v.isfinite().all()) for v in drawn):
            raise ValueError(f"the prompts and answers of a task must be finite; those of step {step} are not")

    def _line(self, size: Size) -> None:
        """One line of the log; here alone the curriculum may move on, so that a resumed run moves at the same steps."""
        now, (then, before) = time.perf_counter(), self.tick
        rate = (self.done - before) / max(now - then, 1e-9)
        losses = [row[0] for row in self.pending]
        self.loss = sum(losses) / len(losses)
        norm = sum(row[1] for row in self.pending) / len(self.pending)
        row = {"step": self.done, "loss": self.loss, "gradient": norm, "lr": self.config.rate(self.done - 1)}
        row |= {name: value for name, value in size._asdict().items() if value is not None}
        self._log(row)
        self.curriculum.observe(self.done, losses)
        self.pending = []
        if self.rank == 0 and self.folder is not None:
            with (self.folder / "timing.jsonl").open("a") as file:
                print(json.dumps({"step": self.done, "time": time.time(), "rate": rate}), file=file)
        if self.progress is not None and self.rank == 0:
            left = (self.config.steps - self.done) / rate
            self.progress(Progress(self.done, self.config.steps, self.loss, rate, left, size, row))

    def _look(self) -> None:
        """Measure the model as it would be if training ended here."""
        weights = [v.detach().clone() for v in self.step.trained] if self.step.averages else []
        with plain(self.model), torch.no_grad():
            for v, average in zip(self.step.trained, self.step.averages, strict=False):
                v.copy_(average)
            self.model.eval()
            try:
                row = self.watch.look(self.model)  # type: ignore[union-attr]
            finally:
                self.model.train()
                for v, mine in zip(self.step.trained, weights, strict=False):
                    v.copy_(mine)
        self._log({"step": self.done, "event": "error", **row})

    def _log(self, row: dict[str, Any]) -> None:
        if self.folder is not None and self.rank == 0:
            with (self.folder / "log.jsonl").open("a") as file:
                print(json.dumps(row), file=file)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Go on from the folder, if there is one. No other process trains there until this run leaves it."""
        if self.folder is None:
            yield
            return
        folder, task = self.folder, self.task
        folder.mkdir(parents=True, exist_ok=True)
        parts = {"model": self.model.config, "task": task, "train": self.config}
        mine = {part: encode(value) for part, value in parts.items()}
        free = MOVED if isinstance(task, Parallel) else FREE
        file = folder / "config.json"
        if file.exists():
            saved = config_in(folder)
            if not all(isinstance(saved.get(part), dict) for part in mine):
                raise ValueError(f"{folder} must be empty or the folder of a run; its config.json is not a run's")
            saved = {p: encode(decode(saved[p], v)) for p, v in parts.items()}  # later fields have their defaults
            apart = [
                f"{part}.{name} must be {decode(theirs, value)} as in {folder}; got {decode(ours, value)}"
                for part, value in parts.items()
                for name, theirs, ours in _apart(saved[part], mine[part], free.get(part, ()))
            ]
            if len(apart) > MANY:
                apart = [*apart[:MANY], f"{len(apart) - MANY} more fields differ: the folder holds another run"]
            if apart:
                raise ValueError(", and ".join(apart))
            for name, data in task.files.items():
                if (folder / name).exists() and (folder / name).read_bytes() != data:
                    raise ValueError(f"{folder / name} must be the task's own; the data have changed")
        elif any(checkpoint.steps(folder / "checkpoints")):
            raise ValueError(f"{folder} must hold the config.json of its checkpoints; got none")
        with _alone(folder / "log.jsonl") if self.rank == 0 else nullcontext() as log:
            if self.rank == 0:
                replace_file(file, json.dumps(mine, indent=2).encode())
                self._keep(folder)
            found = checkpoint.latest(folder / "checkpoints")
            size = 0
            if found is not None:
                self.done, tree, wrong = found
                if wrong:
                    warnings.warn(f"going on from step {self.done}: {'; '.join(wrong)}", stacklevel=4)
                for name, v in self.model.state_dict().items():
                    if name in tree["weights"] and v.dtype != (kept := tree["weights"][name].dtype):
                        raise ValueError(f"{name} of the model must be {kept} as in {folder}; got {v.dtype}")
                load_weights(self.model, {k: v.to(self.device) for k, v in tree["weights"].items()}, str(folder))
                self.step.restore(tree["step"])
                self.curriculum.restore(tree["curriculum"])
                self.stuck, self.first_loss, self.loss = tree["stuck"], tree["first_loss"], tree["loss"]
                self.pending, size, self.saved = tree["pending"], tree["log"], self.done
            if log is not None:  # lines after the checkpoint will be written again
                log.truncate(min(size, log.seek(0, os.SEEK_END)))
            yield

    def _save(self) -> None:
        if self.saved == self.done:
            return
        self._finite()
        if self.rank == 0 and self.folder is not None:
            with (self.folder / "log.jsonl").open("ab") as log:
                os.fsync(log.fileno())
                size = log.tell()
            tree = {
                "weights": dict(self.model.state_dict()),
                "step": self.step.state(),
                "curriculum": self.curriculum.state(),
                "stuck": self.stuck,
                "first_loss": self.first_loss,
                "loss": self.loss,
                "pending": self.pending,
                "log": size,
            }
            checkpoint.write(self.folder / "checkpoints", self.done, tree, self.config.keep)
        self.saved = self.done

    def _finite(self) -> None:
        if not all(bool(v.isfinite().all()) for v in self.step.trained):
            raise self._diverged(f"the weights are no longer finite after step {self.done}")

    def _finish(self) -> None:
        """At the last step the averaged weights, if there are any, become the model's."""
        if self.done < self.config.steps:
            return
        with torch.no_grad():
            for v, average in zip(self.step.trained, self.step.averages, strict=False):
                v.copy_(average)
        if self.folder is not None and self.rank == 0:
            self.model.save_pretrained(self.folder / "model")
            self._keep(self.folder / "model")

    def _keep(self, folder: Path) -> None:
        """Write what the task wants beside its models."""
        for name, data in self.task.files.items():
            replace_file(folder / name, data)

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        """Dropout as a function of (seed, step) too; torch draws it from its own generator alone."""
        if not self.drops:
            yield
            return
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed_of("dropout", self.config.seed, self.done, self.rank))
            yield

    def _any(self, *facts: bool) -> tuple[bool, ...]:
        """Which of these hold in this process, or in another one at work on the run?"""
        if self.step.world == 1:
            return facts
        flags = torch.tensor(facts, dtype=torch.float32, device=self.device)
        dist.all_reduce(flags)
        return tuple(flag > 0 for flag in flags.tolist())

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _apart(saved: dict[str, Any], mine: dict[str, Any], free: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """The fields in which two configs differ, with both values; of two classes that is all there is to say."""
    names = sorted(mine.keys() | saved.keys()) if mine["class"] == saved["class"] else ["class"]
    for name in names:
        if name not in free and mine.get(name) != saved.get(name):
            yield name, saved.get(name), mine.get(name)


@contextmanager
def _alone(path: Path) -> Iterator[IO[bytes]]:
    """A file open at its end, under a lock that dies with this process; no lock where the system knows none."""
    with path.open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{path.parent} must not be in use; another process is training there") from None
            except OSError:  # not on this file system
                pass
        try:
            yield file
        finally:
            if fcntl is not None:  # children that were forked meanwhile must not hold on to it
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask for a stop after the step; a second one stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
