"""HTML from sections, tables and matplotlib figures; readable on a phone, dark and light."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algoformer.experiments.drawing import COLOURS, INK, axes, key, legend
from algoformer.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "INK",
    "Section",
    "axes",
    "figure",
    "key",
    "legend",
    "markdown_table",
    "page",
    "save",
    "show",
    "table",
]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d5dae0; --soft: #57606a; --card: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #9aa4af; --card: #161b22 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 54rem; background: var(--paper); color: var(--ink);
  font: 17px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif }
h1 { line-height: 1.2; margin: .5rem 0 }
h2 { margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line) }
p.lead { font-size: 1.15rem; color: var(--soft); margin-top: 0 } code { background: var(--card); padding: .1em .3em;
  overflow-wrap: anywhere }
figure { margin: 1.2rem 0; overflow-x: auto } figure svg { width: 100%; min-width: 32rem; height: auto }
figcaption { color: var(--soft); font-size: .92rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .92rem; min-width: 60% }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 600 }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem }
"""


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph of plain text, and blocks of HTML from `table` and `figure`."""

    title: str
    text: str
    blocks: Sequence[str] = ()
    anchor: str = ""


def page(title: str, lead: str, sections: Sequence[Section], footer: str, head: str = "") -> str:
    """The whole page; `head` is more for its head, such as a style or a script."""
    body = "".join(_section(s) for s in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>{head}</head>'
        f'<body><h1>{escape(title)}</h1><p class="lead">{_inline(lead)}</p>{body}<footer>{_inline(footer)}</footer>'
        "</body></html>\n"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; numbers are shown to three digits."""
    kinds = [" class=n" if any(not isinstance(row[i], str) for row in rows) else "" for i in range(len(columns))]

    def line(tag: str, values: Sequence[Any]) -> str:
        cells = (f"<{tag}{kind}>{escape(show(v))}</{tag}>" for kind, v in zip(kinds, values, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    head, body = line("th", columns), "".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of a page in Markdown."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def figure(fig: Figure, caption: str) -> str:
    """A matplotlib figure as inline SVG; its text takes the colour of the page."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):  # letters, to be found and read aloud
        fig.savefig(out, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    svg = re.sub(r"^.*?(?=<svg)", "", out.getvalue(), flags=re.S).replace(INK, "currentColor")
    prefix = f"f{zlib.crc32(caption.encode()):x}-"  # ids of several figures on one page must not meet
    svg = re.sub(r'(id="|href="#|url\(#)', lambda m: m.group(1) + prefix, svg)
    return (
        f'<figure role="img" aria-label="{escape(caption)}">{svg}<figcaption>{_inline(caption)}</figcaption></figure>'
    )


def save(fig: Figure, path: Path) -> None:
    """A matplotlib figure as a file whose name says of what kind, whole or not at all."""
    out = io.BytesIO()
    fig.savefig(out, format=path.suffix.removeprefix("."), dpi=160, bbox_inches="tight")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, out.getvalue())


def show(value: Any) -> str:
    """A value as a person reads it."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _section(section: Section) -> str:
    anchor = f' id="{escape(section.anchor)}"' if section.anchor else ""
    text = f"<p>{_inline(section.text)}</p>" if section.text else ""
    return f"<section><h2{anchor}>{escape(section.title)}</h2>{text}{''.join(section.blocks)}</section>"


def _inline(text: str) -> str:
    """Escaped text with `code` marked."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
