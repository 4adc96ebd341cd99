"""What a run shows while it goes: a bar on standard error, curves for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from algoformer.training.loop import Progress


class Bar:
    """Loss, size, steps a second and the time to go: `with Bar() as bar: train(..., progress=bar)`."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        self.display = Display(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[size]}  {task.fields[rate]} steps/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.line: Any = None

    def __call__(self, p: Progress) -> None:
        size = " ".join(f"{name} {value}" for name, value in p.size._asdict().items() if value is not None)
        fields: dict[str, Any] = {"loss": f"{p.loss:.4g}", "size": size, "rate": f"{p.rate:.1f}"}
        if self.line is None:
            self.line = self.display.add_task("", total=p.steps, **fields)
        self.display.update(self.line, completed=p.step, **fields)

    def __enter__(self) -> Bar:
        self.display.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
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
