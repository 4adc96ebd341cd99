"""Ahn et al. 2023, Figures 1 and 2: three layers with B = 0 learn preconditioned gradient descent.

Sigma^1/2 A_i Sigma^1/2 approaches a multiple of I while A_i itself does not, and the loss is said to converge to 0. The
exact optimum is drawn in: it is 0.1336 at d = 5, n = 20, which is 2.7 % of E y^2 and not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algoformer.analysis import distance_to_identity, whitened
from algoformer.experiments.drawing import COLOURS, axes, heat, key, legend
from algoformer.experiments.experiment import Claim, Site, assumed, coded, stated
from algoformer.experiments.linear import lbfgs
from algoformer.tasks import Spectrum
from algoformer.theory import layered_optimum, matrix_layers, sampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "Figures 1, 2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """L-BFGS on one fixed batch; a new basis of Sigma for each seed."""

    n: int = stated(20)
    layers: int = stated(3)
    eigenvalues: tuple[float, ...] = stated((1.0, 1.0, 0.25, 0.0625, 1.0))
    batch: int = coded(20_000)
    iterations: int = coded(2000)
    init: float = coded(1e-4)
    block: int = assumed(10)


PAPER = Config()
GPU = replace(PAPER, iterations=300)
CPU = replace(PAPER, batch=5000, iterations=120)
SMOKE = replace(PAPER, batch=300, iterations=20)


@dataclass(frozen=True, kw_only=True)
class Result:
    """At some iterations: population loss over d, the two distances of every layer; and the final layers, whitened."""

    iterations: list[int]
    loss: list[float]
    whitened: list[list[float]]
    raw: list[list[float]]
    layers: list[list[list[float]]]
    optimum: float
    steps: list[float]


def run(config: Config, site: Site) -> Result:
    """Minimise the loss of the batch from a small random start."""
    d, g = len(config.eigenvalues), site.generator()
    sigma = Spectrum(eigenvalues=config.eigenvalues).fixed(d, g).matrix
    best = layered_optimum(d, config.n, config.layers)
    at: list[int] = []
    loss: list[float] = []
    near: list[list[float]] = []
    raw: list[list[float]] = []

    def batch_loss(A: Tensor) -> Tensor:
        same = torch.Generator().manual_seed(site.seed)
        return sampled(A, config.n, sigma, samples=config.batch, generator=same)[0]

    def observe(step: int, value: float, A: Tensor) -> None:
        at.append(step)
        loss.append(float(matrix_layers(A, config.n, sigma)) / d)
        near.append(distance_to_identity(whitened(A, sigma)).tolist())
        raw.append(distance_to_identity(A).tolist())

    start = config.init * torch.randn(config.layers, d, d, generator=g, dtype=torch.float64)
    A = lbfgs(batch_loss, start, iterations=config.iterations, observe=observe, block=config.block)
    return Result(
        iterations=at,
        loss=loss,
        whitened=near,
        raw=raw,
        layers=whitened(A, sigma).tolist(),
        optimum=float(best.loss) / d,
        steps=[float(a) for a in best.a],
    )


def claims(result: Result) -> list[Claim]:
    """What the captions say, with the loss beside its exact optimum."""
    able = (result.loss[-1],)
    return [
        Claim(
            text="every Sigma^1/2 A_i Sigma^1/2 is a multiple of I: distance below 0.1",
            source=SOURCE,
            measured=max(result.whitened[-1]),
            sense="<",
            bound=0.1,
            errors=able,
        ),
        Claim(
            text="no A_i is: distance above 0.5, so it is not plain gradient descent",
            source=SOURCE,
            measured=min(result.raw[-1]),
            sense=">",
            bound=0.5,
            errors=able,
        ),
        Claim(
            text="the loss converges to almost 0: below 1 % of E y^2",
            source=SOURCE,
            measured=result.loss[-1],
            sense="<",
            bound=0.01,
            errors=able,
        ),
        Claim(
            text="the exact optimum is below 1 % of E y^2",
            source="ours",
            measured=result.optimum,
            sense="<",
            bound=0.01,
            exact=True,
        ),
        Claim(
            text="training reaches the exact optimum to 5 %",
            source="ours",
            measured=result.loss[-1] / result.optimum - 1,
            sense="<",
            bound=0.05,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """Distances and loss over iterations, above the learned layers."""
    count = len(result.layers)
    fig, panels = axes(3.4 * (count + 1) + 1, 6.4, columns=count + 1, rows=2)
    for i in range(count):
        panels[i].plot(result.iterations, [row[i] for row in result.whitened], color=COLOURS[0], label="whitened")
        panels[i].plot(result.iterations, [row[i] for row in result.raw], color=COLOURS[1], label="A itself")
        panels[i].set(title=f"distance of A_{i} from a I", xlabel="iteration", ylim=(0, 1))
        heat(panels[count + 1 + i], result.layers[i], symmetric=True)
        panels[count + 1 + i].set(title=f"whitened A_{i}, learned")
    panels[count].semilogy(result.iterations, result.loss, color=COLOURS[2], label="population loss")
    panels[count].axhline(result.optimum, color="#888888", linestyle=":", label="exact optimum")
    panels[count].set(title="loss / E y²", xlabel="iteration")
    key(panels[count])
    last = panels[-1]
    last.bar(range(count), result.steps, color="#888888", width=0.6)
    learned = sorted(sum(row[j] for j, row in enumerate(layer)) / len(layer) for layer in result.layers)
    last.plot(range(count), learned, "o", color=COLOURS[0])
    last.set(title="scales: exact (bars), learned", xticks=range(count))
    legend(fig, panels[0])
    return fig
