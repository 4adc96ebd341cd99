"""What commands print: tables that fit with numbers whole, one JSON document, progress on standard error."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

QUIET = 20  # seconds between two lines of progress where no terminal draws it


def print_json(document: Any) -> None:
    """One document on standard output."""
    print(json.dumps(_finite(document), indent=2, allow_nan=False))


def _finite(document: Any) -> Any:
    """A document with null for numbers that JSON does not know."""
    if isinstance(document, dict):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def print_path(words: str, path: Path) -> None:
    """A path after some words, never broken."""
    from rich.text import Text

    console().print(words, Text(str(path), "bold"), soft_wrap=True)


def print_table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table as wide as the window; headings break first, then whatever is too wide, and nothing is cut.

    Where not even pieces of words would fit, each row is a list of its cells.
    """
    from rich import box
    from rich.table import Table

    from algoformer.report.page import show

    screen, all_cells = console(), [[show(row[i]) for row in rows] for i in range(len(columns))]
    uncut = [any(c) and not any(" " in cell.replace(" (", "(") for cell in c) for c in all_cells]  # names and numbers
    parts = list(zip(columns, all_cells, uncut, strict=True))
    natural = [max(map(len, [column, *cells])) for column, cells, _ in parts]
    least = [max(map(len, [*column.split(), *cells])) if one else _longest(cells) for column, cells, one in parts]
    room = screen.width - 3 * len(columns)
    if sum(least) > room:
        return _print_lists(screen, title, columns, list(zip(*all_cells, strict=True)))
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)
    for i, (column, _, one) in enumerate(parts):
        words = all(isinstance(row[i], str) and not row[i].strip("> ").isdigit() for row in rows)
        narrow = one and sum(natural) > room
        head = textwrap.fill(column, least[i], break_long_words=False) if narrow else column
        table.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=one)
    for row in zip(*all_cells, strict=True):
        table.add_row(*row)
    screen.print(table)


def _longest(cells: list[str]) -> int:
    """What a column of words needs: its longest word, of which the end may fold."""
    return min(max((len(word) for cell in cells for word in cell.split()), default=0), 8)


def _print_lists(screen: Console, title: str, columns: list[str], rows: list[tuple[str, ...]]) -> None:
    from rich.padding import Padding

    screen.print(title, style="bold")
    for row in rows:
        screen.print()
        for column, cell in zip(columns, row, strict=True):
            screen.print(Padding(f"{column}: {cell}" if column else cell, (0, 0, 0, 2), expand=False), overflow="fold")
    screen.print()


def console() -> Console:
    """Standard output, where names and paths come out as they are."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def progress() -> Any:
    """A callback (done, total, what) that draws a bar on standard error, or writes a line now and then into a file."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    line, quiet, told = bar.add_task("", total=None), not sys.stderr.isatty(), time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal told
        if quiet:
            if time.monotonic() - told > QUIET:
                told = time.monotonic()
                print(f"algoformer: {done} of {total}, {what}", file=sys.stderr)
            return
        if done == 0:
            bar.start()
        bar.update(line, completed=done, total=total, description=what)
        if done == total:
            bar.stop()

    return report
