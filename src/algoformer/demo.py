"""The tour in small: minutes on two cores, a table in the terminal and a page with pictures at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from algoformer import claims
from algoformer.algorithm import Algorithm, On
from algoformer.analysis import dissect, distance_to_identity, readings
from algoformer.claims.ledger import label
from algoformer.constructions.catalogue import CATALOGUE
from algoformer.files import folder_at, replace_file
from algoformer.models import LinearTransformer, LinearTransformerConfig
from algoformer.provenance import provenance
from algoformer.report.dissection import draw
from algoformer.report.page import COLOURS, Section, axes, figure, key, legend, page, save, table
from algoformer.solvers import (
    ConjugateGradient,
    Features,
    GradientDescent,
    LeastSquares,
    NearestNeighbours,
    Nesterov,
    Newton,
    Ridge,
)
from algoformer.tasks import HalfAndHalf, LinearRegression, NumberWords, Representation
from algoformer.tasks.number_words import number
from algoformer.theory import layered_optimum, looped_optimum
from algoformer.training import TrainConfig, preset, represented, train
from algoformer.training.codec import model_of
from algoformer.zoo import pretrained

Progress = Callable[[int, int, str], None]
HELD_OUT = {"valid": "values never seen", "structural": "combinations never seen"}


@dataclass(frozen=True)
class Chapter:
    """A picture and a table, with the words around them."""

    name: str
    title: str
    text: str
    picture: Figure
    caption: str
    columns: list[str]
    rows: list[list[Any]]

    @property
    def section(self) -> Section:
        """The chapter on the page."""
        return Section(self.title, self.text, [figure(self.picture, self.caption), table(self.columns, self.rows)])


@dataclass(frozen=True)
class Result:
    """Where the page is, and what it says."""

    page: Path
    chapters: list[Chapter]

    @property
    def numbers(self) -> dict[str, Any]:
        """All tables by the name of their chapter, with where they come from."""
        tables = {c.name: [dict(zip(c.columns, row, strict=True)) for row in c.rows] for c in self.chapters}
        return tables | {"provenance": provenance()}


def run(out: Path, *, seed: int = 0, progress: Progress | None = None) -> Result:
    """Write `out`/index.html and a picture for each chapter, and give what they show."""
    folder_at("out", out).mkdir(parents=True, exist_ok=True)
    report = progress or (lambda done, total, what: None)
    chapters: list[Chapter] = []
    told = [c for c in CHAPTERS if c[1] is not _translated or find_spec("tokenizers")]
    for i, (what, chapter) in enumerate(told):
        report(i, len(told), what)
        chapters.append(chapter(torch.Generator().manual_seed(seed)))
        save(chapters[-1].picture, out / f"{chapters[-1].name}.png")
    report(len(told), len(told), "done")
    origin = provenance()
    html = page(
        "Algorithms in context",
        "Every solver here sees a prompt of examples and answers a query, as a transformer would: a first state, a "
        "step, a reading. This page was made by `algoformer demo`.",
        [c.section for c in chapters],
        f"Seed {seed}, commit {origin['commit']}, torch {origin['versions']['torch']}, {origin['device']}.",
    )
    target = out / "index.html"
    replace_file(target, html.encode())
    return Result(target, chapters)


def _race(g: torch.Generator) -> Chapter:
    racers: dict[str, Algorithm[Any, Any]] = {
        "gradient descent": GradientDescent(),
        "Nesterov": Nesterov(),
        "conjugate gradients": ConjugateGradient(),
        "Newton, from S": Newton(),
        "Newton, from I": Newton(start="I"),
        "Newton of order 3, from I": Newton(start="I", order=3),
    }
    problems = {
        "isotropic inputs": LinearRegression(),
        "condition number 100": LinearRegression(covariance=HalfAndHalf()),
    }
    fig, panels = axes(10.5, 3.9, columns=2)
    steps: dict[str, list[str]] = {name: [] for name in racers}
    for ax, (title, task) in zip(panels, problems.items(), strict=True):
        sample = task.sample(256, g, torch.float64)
        for (name, racer), colour in zip(racers.items(), COLOURS, strict=False):
            error = _error(racer.trace(sample.prompt, 60), sample.target, sample.target)
            ax.semilogy(error.clamp(min=1e-16), color=colour, label=name)
            steps[name] += [_first(error, eps) for eps in (1e-2, 1e-6)]
        ax.set(title=title, xlabel="step", ylim=(1e-13, 3), xlim=(0, 60))
    panels[0].set_ylabel("error / zero predictor's")
    legend(fig, panels[0])
    return Chapter(
        "race",
        "A race, step by step",
        "256 noiseless linear problems with 40 examples in 20 dimensions. First-order methods need steps in proportion "
        "to the condition number or its root, Newton's iteration in proportion to its logarithm (Fu et al. 2024; "
        "Giannou et al. 2024).",
        fig,
        "Squared error after each step, relative to the zero predictor; mean over 256 prompts.",
        ["steps to", "1e-2, isotropic", "1e-6, isotropic", "1e-2, condition 100", "1e-6, condition 100"],
        [[name, *found] for name, found in steps.items()],
    )


def _contexts(g: torch.Generator) -> Chapter:
    noise = 0.5
    sample = LinearRegression(n=40, noise=noise, dense=True).sample(256, g, torch.float64)
    racers: dict[str, Algorithm[Any, Any]] = {
        "ridge (Bayes)": Ridge(strength=noise**2),
        "least squares": LeastSquares(),
        "Newton, 12 steps": Newton(steps=12),
        "gradient descent, 12 steps": GradientDescent(steps=12),
        "3 nearest neighbours": NearestNeighbours(),
    }
    fig, (ax,) = axes(8.6, 4.0)
    rows: list[list[Any]] = []
    for (name, racer), colour in zip(racers.items(), COLOURS, strict=False):
        answers = racer.predict(sample.prompt)
        error = (answers - sample.truth.clean).square().mean((0, 2)) / sample.truth.clean.square().mean()
        ax.plot(error, color=colour, label=name)
        rows.append([name, *(float(error[n]) for n in (5, 10, 20, 40))])
    ax.set(xlabel="examples in the prompt", ylabel="error / zero predictor's", ylim=(0, 2), xlim=(0, 40))
    legend(fig, ax)
    return Chapter(
        "context",
        "How much context is enough",
        f"Solvers asked at every prefix of a prompt with label noise {noise}: one `Dense` prompt, 41 answers. Least "
        "squares suffers most where there are as many examples as dimensions; an iteration stopped early is a kind of "
        "ridge.",
        fig,
        "Error of the clean label against the number of examples; mean over 256 prompts.",
        ["error with", "5 examples", "10", "20", "40"],
        rows,
    )


def _built(g: torch.Generator) -> Chapter:
    shown = {
        "descent-step": ("softmax", "softmax, 4 heads"),
        "newton": ("softmax", "relu"),
        "chain-of-thought": ("softmax", "relu"),
    }
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    rows: list[list[Any]] = []
    colours = iter(COLOURS)
    for name, lowerings in shown.items():
        construction = CATALOGUE[name]
        prompt = next(iter(construction.prompts.values()))(16, g)
        algorithm: Any = construction.algorithm
        wanted = algorithm().trace(prompt, 30)
        labels = prompt.y if hasattr(prompt, "y") else prompt.chains
        scale = labels.abs().flatten(1).amax(1)
        for lowering in lowerings:
            colour, apart = next(colours), {}
            for dtype in (torch.float64, torch.float32):
                with torch.no_grad():
                    got = construction.compile(lowering, dtype).trace(prompt.to(dtype=dtype), 30).double()
                apart[dtype] = ((got - wanted).abs().amax((2, 3)) / scale).amax(1)
            left.semilogy(apart[torch.float64].clamp(min=1e-17), color=colour, label=f"{name}, {lowering}")
            left.semilogy(apart[torch.float32], color=colour, linestyle=":")
            rows.append([f"{name}, {lowering}", construction.source, *(float(a.max()) for a in apart.values())])
    left.set(xlabel="step", ylabel="distance from the algorithm", xlim=(0, 30), title="float64 (lines), float32 (dots)")
    right.imshow(_attention(), cmap="magma", aspect="equal")
    right.set(title="copy labels: who attends to whom", xlabel="key token", ylabel="query token")
    right.grid(False)
    legend(fig, left)
    return Chapter(
        "built",
        "Transformers built from weights",
        "Programs over named registers, compiled to ordinary transformer layers, run on top of the algorithms they are "
        "made for: the distance stays at the accuracy of their attention, step after step. On the right, the layer of "
        "the compiled Newton transformer that copies each label to its example: hard attention by binary codes. "
        "`algoformer show newton --attention softmax` prints the program.",
        fig,
        "Largest distance between compiled transformer and algorithm over 16 prompts, relative to their largest label.",
        ["construction", "source", "float64", "float32"],
        rows,
    )


def _attention() -> Tensor:
    """The attention of the layer with which the Newton transformer attaches labels to examples, on a short prompt."""
    model = CATALOGUE["newton"].compile("softmax")
    p = LinearRegression(d=20, n=8).sample(1, torch.Generator().manual_seed(0), torch.float64).prompt
    state = model.init(p)
    with torch.no_grad():
        block: Any = model.post[0]
        weights: Tensor = block.weights(*state)[0, 0]
    return weights


def _trained(g: torch.Generator) -> Chapter:
    d, n, layers = 5, 20, 3
    task = LinearRegression(d=d, n=n)
    model = LinearTransformer(LinearTransformerConfig(features=d, layers=layers), g)
    config = TrainConfig(
        steps=600, batch=500, lr=0.02, warmup=20, loss="rao-blackwell", log_every=10, betas=(0.9, 0.9), precision="fp32"
    )
    curve: list[tuple[int, float]] = []
    train(model, task, config, progress=lambda p: curve.append((p.step, p.loss / d)))
    best = float(layered_optimum(d, n, layers).loss) / d
    sample = task.sample(2000, g)
    with torch.no_grad():
        mine = _error(model.trace(sample.prompt), sample.target, sample.target)
    rivals: dict[str, Algorithm[Any, Any]] = {
        "gradient descent, best step": GradientDescent(eta=float(looped_optimum(d, n, layers).a)),
        "Newton, from I": Newton(start="I"),
    }
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    left.semilogy(*zip(*curve, strict=True), color=COLOURS[0], label="the trained model")
    left.axhline(best, color=COLOURS[6], linestyle="--", label="exact optimum of its kind")
    left.set(xlabel="training step", ylabel="error / zero predictor's", title="training")
    right.semilogy(mine, "o-", color=COLOURS[0])
    for (name, rival), colour in zip(rivals.items(), COLOURS[1:], strict=False):
        right.semilogy(_error(rival.trace(sample.prompt, layers), sample.target, sample.target), color=colour)
        left.plot([], [], color=colour, label=name)
    right.set(xlabel="layer or step", title="error layer by layer", xticks=range(layers + 1))
    legend(fig, left)
    spread = distance_to_identity(model.A.detach())
    steps = model.A.detach().diagonal(dim1=1, dim2=2).mean(1)
    exact = [float(a) for a in layered_optimum(d, n, layers).a]
    rows: list[list[Any]] = [
        [f"layer {i + 1}", float(steps[i]), float(spread[i]), min(exact, key=lambda a, i=i: abs(a - float(steps[i])))]  # type: ignore[misc]
        for i in range(layers)
    ]
    return Chapter(
        "trained",
        "One trained, and taken apart",
        f"A linear transformer of {layers} layers, trained here from scratch in seconds. Its matrices have become "
        "multiples of the identity: it runs gradient descent, with a step size of its own in every layer. Those are "
        "the inverse zeros of an orthogonal polynomial, which theory computes (Ahn et al. 2023, Theorem 4).",
        fig,
        "Left, the training loss and the exact optimum; right, errors on 2,000 fresh prompts, layer by layer.",
        ["A of", "step size learned", "distance from a multiple of I", "exact step size"],
        rows,
    )


def _shipped(g: torch.Generator) -> Chapter:
    model = pretrained("linear-regression-d20")
    sample = LinearRegression(dense=True).sample(48, g)
    loops = range(31)
    found = dissect(model, sample.prompt, sample.target, steps=loops)
    rows = [[t, *found.rows()[t]] for t in (2, 5, 10, 15, 20)]
    return Chapter(
        "shipped",
        "One trained on a GPU: what does it run?",
        "An AlgoFormer that learned linear regression from 1.5 million prompts comes with the package: "
        '`algoformer.pretrained("linear-regression-d20")`. After each loop its errors are held against those of known '
        "algorithms, prefix by prefix (Fu et al. 2024). Steps are chosen on half of the prompts, likeness is reported "
        "on the other half, and an algorithm is named only where its lead is more than chance. I marks Newton's "
        "iteration from a multiple of the identity, of which k steps are 2^k of gradient descent.",
        draw(found, trained=model.steps),
        "The error at 40 examples; the number of steps whose errors are most alike; and how far from alike they are. "
        "Of Newton's iteration the start is drawn that is the match most often. "
        f"Dotted: the {model.steps} loops of training. 48 prompts.",
        ["loops", *(f"{name} (likeness)" for name in found.matches), "most like"],
        rows,
    )


def _represented(g: torch.Generator) -> Chapter:
    model, task = pretrained("representation-d20"), Representation()
    sample = task.sample(64, g)
    target, prompt, loops = sample.target, sample.prompt.to(dtype=torch.float64), list(range(model.steps + 1))
    solvers = {"Newton": Newton(), "gradient descent": GradientDescent(), "conjugate gradients": ConjugateGradient()}
    runs: dict[str, tuple[Algorithm[Any, Any], Any]] = {"the trained transformer": (model, sample.prompt)}
    runs |= {f"{name} on phi(x)": (On(solver, Features(task.phi)), prompt) for name, solver in solvers.items()}
    with torch.no_grad():
        errors = {name: _error(readings(one, asked, loops), target, target) for name, (one, asked) in runs.items()}
    alone = float(_error(LeastSquares().trace(prompt), target, target)[-1])
    taken = represented(model, task, 64, steps=5)
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    for (name, error), colour in zip(errors.items(), COLOURS, strict=False):
        left.semilogy(error.clamp(min=1e-9), "o-" if colour == COLOURS[0] else "-", color=colour, ms=3, label=name)
    left.set(xlabel="loop or step", ylabel="error / zero predictor's", title="at 40 examples", xticks=loops[::5])
    key(left)
    right.plot(taken.model, "o-", color=COLOURS[0], ms=3, label="trained")
    right.plot(taken.untrained, "o-", color="#888888", ms=3, label="untrained")
    right.set(xlabel="loops done", ylabel="R²", title="how much of phi(x) a loop is given", ylim=(0.5, 1.0))
    key(right)
    rows: list[list[Any]] = [[t, *(f"{float(error[t]):.1e}" for error in errors.values())] for t in (1, 2, 5, 10, 20)]
    return Chapter(
        "represented",
        "A representation, and a regression on it",
        "Labels may be linear in a representation phi(x) that never changes (Gao et al. 2024). An AlgoFormer trained "
        'so comes with the package, `algoformer.pretrained("representation-d20")`: its pre-transformer is to compute '
        "phi(x), its loop to regress on it. Loop for step it keeps up with conjugate gradients on phi(x), which are "
        f"told what phi is, until it stays at 1e-3; least squares on x alone is at {alone:.2g}.",
        fig,
        "Left, errors by loop, 64 prompts; right, R² of linear probes for phi(x) from what each loop takes in at the "
        "tokens of x, fitted on 64 prompts and judged on 64 others.",
        ["loops or steps", *errors],
        rows,
    )


def _translated(g: torch.Generator) -> Chapter:
    recipe = preset("numbers")
    task = NumberWords(mask="prefix", size=4000)
    curve: list[tuple[int, float]] = []
    config = replace(recipe.train, steps=100, warmup=20, log_every=5)
    train(model_of(recipe.model, g), task, config, progress=lambda p: curve.append((p.step, p.loss)))
    shipped = pretrained("numbers-de-en")
    loops = list(range(2 * shipped.model.steps + 1))
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    left.plot(*zip(*curve, strict=True), color=COLOURS[0])
    left.set(xlabel="training step", ylabel="nats per token", title="the start of training", ylim=(0, None))
    for (split, name), colour in zip(HELD_OUT.items(), COLOURS, strict=False):
        lines = task.lines(split)
        source, target = lines.source[:100], lines.target[:100]
        same = [[a == b for a, b in zip(shipped(source, steps=t), target, strict=True)] for t in loops]
        right.plot(loops, [sum(row) / len(row) for row in same], "o-", color=colour, label=name)
    right.axvline(shipped.model.steps, color="#888888", linestyle=":", label="loops in training")
    right.set(xlabel="loops", ylabel="exact translations", title="the model that is shipped", ylim=(-0.02, 1.02))
    legend(fig, right)
    asked = [number(n, "de") for n in (47, 21304, 999_999)] + [
        "fünf vor halb vier",
        "der dritte Mai achtzehnhundertvier",
    ]
    return Chapter(
        "translated",
        "The same model on text",
        "German number words into English ones: an AlgoFormer of three layers on tokens, trained in minutes on a CPU "
        "and shipped with the package. No sentence it was trained on holds 47 or eight other combinations of tens and "
        "units. `algoformer translate numbers-de-en` asks it.",
        fig,
        "Left, the start of such a training, here; right, 100 held-out sentences of each kind, translated greedily. "
        "This text is so easy that one loop is enough; more do no harm.",
        ["German", "English"],
        [list(row) for row in zip(asked, shipped(asked), strict=True)],
    )


def _exact(g: torch.Generator) -> Chapter:
    d, n = 5, 20
    depths = range(1, 7)
    looped = [float(looped_optimum(d, n, depth)[1]) / d for depth in depths]
    layered = [float(layered_optimum(d, n, depth)[1]) / d for depth in depths]
    sample = LinearRegression(d=d, n=n).sample(20_000, g, torch.float64)
    scale = sample.target.square().mean()
    sampled = []
    for depth in depths:
        a, _ = looped_optimum(d, n, depth)
        answer = GradientDescent(eta=float(a), steps=depth).predict(sample.prompt)
        sampled.append(float((answer - sample.target).square().mean() / scale))
    fig, (ax,) = axes(8.6, 4.0)
    ax.semilogy(depths, looped, color=COLOURS[0], label="best looped linear transformer, exact")
    ax.semilogy(depths, layered, color=COLOURS[1], label="best layered one, exact")
    ax.semilogy(depths, sampled, "o", color=COLOURS[0], label="the looped one on 20,000 prompts")
    ax.set(xlabel="layers or loops", ylabel="error / zero predictor's")
    legend(fig, ax)
    rows: list[list[Any]] = [list(row) for row in zip(depths, looped, layered, sampled, strict=True)]
    return Chapter(
        "exact",
        "Theory that computes",
        f"The best that a linear transformer can do with {n} examples in {d} dimensions is the minimum of a polynomial "
        "in moments of Wishart matrices. It is computed exactly, not sampled: the looped optimum is not the layered "
        "one, and neither is almost 0 at three layers, as Ahn et al. 2023 say of training in section 5.3.",
        fig,
        "Exact optima of looped and layered linear transformers, and a check by sampling.",
        ["layers", "looped", "layered", "looped, sampled"],
        rows,
    )


def _ledger(g: torch.Generator) -> Chapter:
    cheap = [c.id for c in claims.claims().values() if c.cheap]
    shown = [i for i in ("ahn.lemma-2", "gatmiry.lemma-4.1", "gatmiry.theorem-3.4", "fu.initialisation") if i in cheap]
    rows = [[row.id, row.statement, row.label] for row in claims.verify(shown)]
    record = claims.recorded()
    counts = Counter(label(claims.Verdict(r["verdict"]), claims.Kind(r["kind"])) for r in record.values())
    fig, (ax,) = axes(8.6, 2.6)
    ax.barh([name for name, _ in counts.most_common()], sorted(counts.values(), reverse=True), color=COLOURS[0])
    ax.invert_yaxis()
    ax.set(xlabel="claims on record")
    return Chapter(
        "ledger",
        "What the papers say, checked",
        f"{len(record)} published statements and findings of our own are on record, each with a measurement that can "
        "fail. A few were measured again for this page; `algoformer verify` does all of them.",
        fig,
        "Verdicts on record.",
        ["claim", "statement", "verdict"],
        rows,
    )


CHAPTERS: list[tuple[str, Callable[[torch.Generator], Chapter]]] = [
    ("racing the solvers", _race),
    ("growing the context", _contexts),
    ("building transformers", _built),
    ("training one", _trained),
    ("asking what one runs", _shipped),
    ("asking what one has learned", _represented),
    ("translating", _translated),
    ("computing optima", _exact),
    ("checking claims", _ledger),
]


def _error(trace: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    return (trace - target).square().mean((1, 2, 3)) / scale.square().mean()


def _first(error: Tensor, eps: float) -> str:
    below = (error < eps).nonzero()
    return str(int(below[0])) if len(below) else f"> {len(error) - 1}"
