"""The command line. Modules load when their command runs, so that --help is quick."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import algoformer
from algoformer.checks import one_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


class _Commands(TyperGroup):
    """Commands in the order they are written; a user's error is one line and exit code 2, unless --debug."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError, ArithmeticError, OSError, ImportError, NotImplementedError) as error:
            if ctx.params.get("debug"):
                raise
            print(f"algoformer: {error}", file=sys.stderr)
            raise typer.Exit(2) from error


def _version(wanted: bool) -> None:
    if wanted:
        print(algoformer.__version__)
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    help="Transformers that run algorithms in context: build them, train them, dissect them, solve with them.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Options before the command."""


@app.command(name="list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="tasks, shifts or solvers; everything if left out.")] = None,
    as_json: Json = False,
) -> None:
    """What there is: tasks, their shifts and solvers, each with its formula."""
    kinds = {"tasks": _tasks, "shifts": _shifts, "solvers": _solvers}
    if kind is not None:
        one_of("the kind", kind, list(kinds))
    found = {name: entries() for name, entries in kinds.items() if kind in (None, name)}
    if as_json:
        return _print_json(found)
    for name, entries in found.items():
        _print_table(name, ["name", "what it is"], [list(entry) for entry in entries.items()])


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The seed of the problems.")] = 0,
    as_json: Json = False,
) -> None:
    """The tour in small: race the solvers, print a table, write a page with pictures. Under a minute on two cores."""
    from algoformer.demo import run

    result = run(out, seed=seed, progress=_progress())
    if as_json:
        return _print_json(result.numbers)
    for chapter in result.chapters:
        _print_table(chapter.title, chapter.columns, chapter.rows)
    _console().print(f"The page with the pictures: [bold]{result.page}[/]")


@app.command()
def bench(
    what: Annotated[
        list[str] | None, typer.Argument(help="Which benchmarks; all that need no GPU if left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Every speed figure that we claim, as ratios measured side by side in one run."""
    from dataclasses import asdict

    from algoformer.bench import BENCHMARKS, load
    from algoformer.provenance import provenance

    tables = []
    for name in what or BENCHMARKS:
        for table in load(name)():
            tables.append(asdict(table))
            if not as_json:
                _print_table(table.title, table.columns, table.rows)
                for note in table.notes:
                    _console().print(f"[dim]{note}[/]")
    if as_json:
        _print_json({"tables": tables, "provenance": provenance()})


def main() -> None:
    """The console script."""
    app()


def _tasks() -> dict[str, str]:
    from algoformer import tasks
    from algoformer.task import Task

    return _described(tasks, lambda v: issubclass(v, Task) and not issubclass(v, tasks.Shift))


def _shifts() -> dict[str, str]:
    from algoformer import tasks

    return _described(tasks, lambda v: issubclass(v, tasks.Shift) and v is not tasks.Shift)


def _solvers() -> dict[str, str]:
    from algoformer import solvers
    from algoformer.algorithm import Algorithm

    return _described(solvers, lambda v: issubclass(v, Algorithm))


def _described(module: Any, wanted: Callable[[type], bool]) -> dict[str, str]:
    """The concrete classes of a module with the first line of their docstrings."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {
        name: (v.__doc__ or "").strip().split("\n")[0]
        for name, v in found.items()
        if isinstance(v, type) and wanted(v) and not isabstract(v)
    }


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


def _print_table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    from rich.markup import escape

    from algoformer.report.page import show

    table = _table(title, columns)
    for row in rows:
        table.add_row(*(escape(show(value)) for value in row))
    _console().print(table)


def _table(title: str, columns: list[str]) -> RichTable:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 or column == "what it is" else "right", overflow="fold")
    return table


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _progress() -> Any:
    """A callback (done, total, what) that draws a bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    line = bar.add_task("", total=None)

    def report(done: int, total: int, what: str) -> None:
        if done == 0:
            bar.start()
        bar.update(line, completed=done, total=total, description=what)
        if done == total:
            bar.stop()

    return report
