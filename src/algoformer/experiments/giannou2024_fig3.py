"""Giannou et al. 2024, Figures 3 and 4: outputs as one coordinate of the query is swept, near and far.

Inside the range of training the model is said to lie between order 2 and order 3, from the authors' start, a multiple
of S; from a multiple of I, which is ours, the iteration is sooner there. Outside it "does not actually learn the
underlying linear function". That is a matter of the mask: where the query is a key, as in the authors' code, the output
is a polynomial of degree 3^L in it, clipped; where it is hidden from the keys, the output is a straight line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from algoformer.algorithm import Algorithm
from algoformer.analysis import sweep
from algoformer.experiments.answers import kept
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import ABLE, Claim, Knob, Site, assumed, coded, stated
from algoformer.experiments.lsa import EACH, MEDIUM, SMALL, TINY, Attention
from algoformer.prompt import Prompt
from algoformer.solvers import Newton
from algoformer.task import Sample
from algoformer.tasks import LinearRegression
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 3
SOURCE = "Figures 3, 4"


@dataclass(frozen=True, kw_only=True)
class Config(Attention):
    """Prompts that share w and the query."""

    kappa: float = assumed(10.0)
    points: int = coded(100)
    far: float = stated(100.0)
    batch_of_prompts: int = stated(5000)
    orders: tuple[int, ...] = stated((2, 3))

    @property
    def masked(self) -> Config:
        """The query hidden from the keys, for the deepest model: unclipped sums grow past all bounds, means do not.

        Without norm they are still large on rare prompts, which a robust loss lets pass.
        """
        robust = 10.0 if self.robust is None and not self.norm else self.robust
        return replace(self, hidden=True, clip=None, mean=True, robust=robust)

    def recipes(self) -> Iterator[Recipe]:
        yield from super().recipes()
        yield self.masked.recipe(max(self.layers), self.task(self.kappa))


PAPER = Config()
GPU = Config(**MEDIUM)
CPU = Config(**(SMALL | {"hidden": False, "clip": 10.0}), kappa=1.0, far=17.0, batch_of_prompts=500, points=81)
SMOKE = Config(**TINY, kappa=1.0, far=17.0, batch_of_prompts=16, points=17)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Mean outputs over prompts along the sweep, by layers or steps; the truth; how linear each output is; and the same
    of the deepest model with the query hidden from the keys. `newton` starts from a multiple of S, `sooner` of I.
    """

    layers: list[int]
    values: list[float]
    inside: float
    truth: list[float]
    attention: list[list[float]]
    newton: dict[str, list[list[float]]]
    sooner: dict[str, list[list[float]]]
    linearity: list[float]
    error: list[float]
    masked: list[float]
    masked_linearity: float
    masked_error: float


def run(config: Config, site: Site) -> Result:
    """The same sweep through every model and iteration."""
    task = config.task(config.kappa)
    g = torch.Generator().manual_seed(10**6 + site.seed)
    plain, target = _drawn(task, config.batch_of_prompts, g)
    w = torch.randn(config.d, 1, generator=g)
    query = plain.queries[:1].expand(config.batch_of_prompts, -1, -1)
    prompt = Prompt(plain.x, plain.x @ w, query)
    values = torch.linspace(-config.far, config.far, config.points)
    bound = float(plain.x[..., 0].abs().flatten().quantile(0.99))
    truth = (query[0, 0] @ w - query[0, 0, 0] * w[0] + values * w[0]).tolist()

    def swept(setting: Config, layers: int) -> tuple[list[float], float, float]:
        def make() -> dict[str, torch.Tensor]:
            model = setting.model(layers, task, site)
            line, straight = _swept(model, prompt.to(device=site.device), values)
            with torch.no_grad():
                answers = model.predict(plain.to(device=site.device)).cpu()
            error = (answers - target).square().mean() / target.square().mean()
            return {"line": torch.tensor(line), "straight": torch.tensor(straight), "error": error}

        sizes = config.batch_of_prompts, EACH, config.points, round(1000 * config.far)
        found = kept("sweep", setting.recipe(layers, task), sizes, site, make)
        return found["line"].tolist(), found["straight"].item(), found["error"].item()

    found = [swept(config, layers) for layers in config.layers]
    masked = swept(config.masked, max(config.layers))
    exactly = prompt.to(dtype=torch.float64)
    newton, sooner = (
        {
            str(order): [_swept(Newton(start=start, order=order, steps=t), exactly, values)[0] for t in config.layers]
            for order in config.orders
        }
        for start in ("S", "I")
    )
    return Result(
        layers=list(config.layers), values=values.tolist(), inside=bound, truth=truth, newton=newton, sooner=sooner,
        attention=[line for line, _, _ in found], linearity=[straight for _, straight, _ in found],
        error=[error for _, _, error in found], masked=masked[0], masked_linearity=masked[1], masked_error=masked[2],
    )  # fmt: skip


def _drawn(task: LinearRegression, count: int, g: torch.Generator) -> tuple[Prompt, torch.Tensor]:
    """Prompts and their answers; every `EACH` have a covariance of their own, so that x has all scales of training."""
    samples: list[Sample[Any]] = [task.sample(min(EACH, count - begin), g) for begin in range(0, count, EACH)]
    parts = [[s.prompt.x, s.prompt.y, s.prompt.queries, s.target] for s in samples]
    x, y, queries, target = (torch.cat(part) for part in zip(*parts, strict=True))
    return Prompt(x, y, queries), target


def _swept(algorithm: Algorithm[object, object], prompt: Prompt, values: torch.Tensor) -> tuple[list[float], float]:
    """The mean output along the sweep, and the R² of a straight line through each prompt's outputs."""
    out = sweep(algorithm, prompt, values)[..., 0].double().cpu()
    v = values.double()
    design = torch.stack([torch.ones_like(v), v], 1)
    left = out.mT - design @ torch.linalg.lstsq(design, out.mT).solution
    spread = (out - out.mean(1, keepdim=True)).square().sum()
    return out.mean(0).tolist(), float(1 - left.square().sum() / spread) if spread else 1.0


def claims(result: Result) -> list[Claim]:
    """The two captions: between the orders at every depth, and off far outside."""
    errors = (result.error[-1],)
    near = [apart(result, line)[0] for line in result.attention]
    (low, slow), (high, quick) = ((order, _ratios(result, near, lines)) for order, lines in result.newton.items())
    return [
        Claim(
            text=f"inside the range of training it is nearer to the linear function than order {low}, at every depth "
            "(largest ratio of distances below 1)",
            source="Figure 3",
            measured=max(slow),
            sense="<",
            bound=1.0,
            errors=tuple(result.error),
        ),
        Claim(
            text=f"and not nearer than order {high}, at every depth (least ratio above 1)",
            source="Figure 3",
            measured=min(quick),
            sense=">",
            bound=1.0,
            errors=tuple(result.error),
        ),
        Claim(
            text=f"the deepest is also nearer than order {low} from a multiple of I",
            source="ours",
            measured=_ratios(result, near, result.sooner[low])[-1],
            sense="<",
            bound=1.0,
            errors=errors,
        ),
        Claim(
            text="far outside it does not follow the linear function: more than 10 % off",
            source="Figure 4",
            measured=apart(result, result.attention[-1])[1],
            sense=">",
            bound=0.1,
            errors=errors,
        ),
        Claim(
            text="with the query hidden from the keys the output is a straight line at any distance: R² above 0.999",
            source="ours",
            measured=result.masked_linearity,
            sense=">",
            bound=0.999,
            errors=(result.masked_error,),
        ),
    ]


def apart(result: Result, line: list[float]) -> tuple[float, float]:
    """The largest distance from the linear function over its largest value, inside the range of training, outside."""
    found = []
    for inside in (True, False):
        at = [i for i, v in enumerate(result.values) if (abs(v) <= result.inside) == inside]
        scale = max(abs(result.truth[i]) for i in at)
        found.append(max(abs(line[i] - result.truth[i]) for i in at) / scale)
    return found[0], found[1]


def _ratios(result: Result, near: list[float], lines: list[list[float]]) -> list[float]:
    """Distances inside the range of training over those of other outputs, by depth."""
    return [distance / apart(result, line)[0] for distance, line in zip(near, lines, strict=True)]


def plot(result: Result) -> Figure:
    """One column a depth: inside the range of training above, and the whole sweep below."""
    count = len(result.layers)
    fig, panels = axes(3.0 * count + 2, 6.0, columns=count, rows=2)
    for i, ax in enumerate(panels):
        column, far = i % count, i >= count
        layers, reach = result.layers[column], max(result.values) if far else result.inside
        ax.plot(result.values, result.truth, color="#888888", linestyle=":", label="the linear function")
        ax.plot(result.values, result.attention[column], color=COLOURS[0], label="linear attention")
        if layers == max(result.layers) and result.masked_error < ABLE:
            ax.plot(result.values, result.masked, "--", color=COLOURS[5], label="query hidden from the keys")
        for (order, lines), colour in zip(result.newton.items(), COLOURS[1:], strict=False):
            ax.plot(result.values, lines[column], color=colour, label=f"Newton of order {order}, from S")
            ax.plot(result.values, result.sooner[order][column], ":", color=colour, label=f"order {order}, from I")
        highest = 1.5 * max(abs(y) for v, y in zip(result.values, result.truth, strict=True) if abs(v) <= reach)
        ax.set(xlim=(-reach, reach), ylim=(-highest, highest))
        if far:
            for edge in (-result.inside, result.inside):
                ax.axvline(edge, color="#888888", linewidth=0.8, linestyle="--")
            ax.set_xlabel("query coordinate")
        else:
            ax.set_title(f"{layers} layers or steps" if layers > 1 else "1 layer or step")
    panels[0].set_ylabel("output, in the range of training")
    panels[count].set_ylabel("output, everywhere")
    legend(fig, panels[-1])
    return fig


def knob(result: Result) -> Knob:
    """Turn the depth."""
    lines = {"the linear function": [result.truth] * len(result.layers), "linear attention": result.attention}
    return Knob(
        label="layers or steps",
        values=result.layers,
        x=result.values,
        lines=lines | {f"Newton of order {order}, from S": rows for order, rows in result.newton.items()},
        xlabel="first coordinate of the query",
        ylabel="output",
        caption="With depth the outputs turn towards the linear function, inside the range of training at least.",
    )
