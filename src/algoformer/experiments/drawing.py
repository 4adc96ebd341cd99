"""The look of every figure: colours, axes, keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# One hue a family of algorithms, told apart in print and by colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
INK = "#010101"  # near-black that a page turns into the colour of its text


def axes(width: float = 7.2, height: float = 4.0, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Any]]:
    """An empty figure in the style of the package, and its axes row by row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK,
        "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "grid.alpha": 0.25, "grid.color": "#888888", "legend.frameon": False, "lines.linewidth": 1.8,
        "svg.fonttype": "none",
    }  # fmt: skip
    with rc_context(style):
        fig = Figure(figsize=(width, height), layout="constrained")
        return fig, list(fig.subplots(rows, columns, squeeze=False).flat)


def panels(count: int, each: float = 3.8, height: float = 3.6, beside: float = 0.0) -> tuple[Figure, list[Any]]:
    """An empty figure of so many panels, in two rows where there are more than three, with room for a key beside."""
    rows = 1 if count <= 3 else 2
    columns = -(-count // rows)
    fig, found = axes(each * columns + beside, height * rows, columns, rows)
    for spare in found[count:]:
        spare.remove()
    return fig, found[:count]


def label_rows(found: Sequence[Any], text: str) -> None:
    """What the y-axis says, at the first panel of every row."""
    for ax in found:
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(text)


def counted(ax: Any) -> None:
    """A logarithmic x-axis of counts: 1, 2 and 5 of every decade, as whole numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def whole_numbers(ax: Any) -> None:
    """No tick of the x-axis between whole numbers."""
    ax.xaxis.get_major_locator().set_params(integer=True)


def above(ax: Any, least: float) -> None:
    """A y-axis that begins at `least` where lines go deeper: they leave the panel there."""
    if ax.get_ylim()[0] < least:
        ax.set_ylim(bottom=least)
        ax.annotate(
            f"below {least:g}: not drawn", (0.02, 0.02), xycoords="axes fraction", color=INK, fontsize=7, alpha=0.7
        )


def one_scale(found: Sequence[Any]) -> None:
    """The same y-axis in every panel, so that heights can be compared across them."""
    for other in found[1:]:
        other.sharey(found[0])


def key(ax: Any, **where: Any) -> None:
    """The key of one panel, within it."""
    ax.legend(frameon=False, labelcolor=INK, fontsize=8, **where)


def legend(fig: Figure, ax: Any) -> None:
    """The key of one panel, beside the figure."""
    fig.legend(*ax.get_legend_handles_labels(), loc="outside right center", frameon=False, labelcolor=INK, fontsize=9)


def heat(ax: Any, values: Any, *, symmetric: bool = False, label: str = "") -> Any:
    """A matrix as colours, with its scale beside it."""
    grid = [list(map(float, row)) for row in values]
    largest = max((abs(v) for row in grid for v in row), default=1.0)
    limits = {"vmin": -largest, "vmax": largest} if symmetric else {}
    image = ax.imshow(grid, cmap="RdBu_r" if symmetric else "viridis", aspect="auto", **limits)
    ax.grid(False)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85)
    bar.set_label(label, color=INK)
    bar.ax.tick_params(colors=INK)
    bar.outline.set_visible(False)
    return image
