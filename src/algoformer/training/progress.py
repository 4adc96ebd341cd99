"""What a run shows while it goes: a bar on standard error, curves for TensorBoard."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from algoformer.training.loop import Progress

QUIET = 20  # seconds between two lines where no terminal draws the bar


class Bar:
    """Loss, size, steps a second and the time to go: `with Bar(config.steps) as bar: train(..., progress=bar)`.

    Where standard error is no terminal, a line now and then.
    """

    def __init__(self, steps: int | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        self.display = Display(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            TextColumn("to go"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.line = self.display.add_task("", total=steps, told="the first steps")
        self.drawn = self.display.console.is_terminal
        self.last = time.monotonic()

    def __call__(self, p: Progress) -> None:
        size = " ".join(f"{name} {value}" for name, value in p.size._asdict().items() if value is not None)
        told = f"loss {p.loss:.4g}  {size}  {p.rate:.1f} steps/s"
        self.display.update(self.line, completed=p.step, total=p.steps, told=told)
        if not self.drawn and time.monotonic() - self.last > QUIET:
            self.last = time.monotonic()
            print(f"algoformer: {p.step:,} of {p.steps:,} steps, {told}, {p.eta / 60:.0f} min to go", file=sys.stderr)

    def __enter__(self) -> Bar:
        if self.drawn:
            self.display.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.drawn:
            self.display.stop()


class TensorBoard:
    """The numbers of the log as TensorBoard's scalars, in a folder."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("TensorBoard must be installed to log for it: pip install tensorboard") from error
        self.writer: Any = SummaryWriter(str(folder))

    def __call__(self, p: Progress) -> None:
        for name, value in {**p.row, "rate": p.rate}.items():
            if name != "step":
                self.writer.add_scalar(name, value, p.step)
        self.writer.flush()
