"""Measure what the cards of shipped models (but translators) say; with --ship, ship the model of a run.

python -m algoformer.bench.zoo linear-regression-d20
python -m algoformer.bench.zoo a-new-name --ship FOLDER
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from algoformer import solvers
from algoformer.checks import known, refusals, whole
from algoformer.estimators import InContextRegressor
from algoformer.files import settle
from algoformer.tasks import (
    Autoregression,
    ChainOfThought,
    Conditioned,
    LinearRegression,
    OtherCovariance,
    Representation,
    ScaledInputs,
)
from algoformer.training import load, represented
from algoformer.training.codec import decode, encode
from algoformer.training.evaluation import evaluate, final
from algoformer.training.folders import recipe_of
from algoformer.zoo import HOME, NAMES, TRANSLATORS, about, pretrained

Numbers = LinearRegression | Representation | Autoregression | ChainOfThought  # the tasks of shipped models
FOLDS = KFold(5, shuffle=True, random_state=0)
SHOWN = 64  # prompts of the error that is recorded beside a model


def ship(folder: str | Path, name: str) -> Path:
    """Put the model of a run's folder among those that are shipped, in float16; its card is for a person to write."""
    home = HOME / name
    if not re.fullmatch("[a-z0-9-]+", name):
        raise ValueError(f"the name of a model must be of a-z, 0-9 and -; got {name!r}")
    if home.exists():
        raise ValueError(f"a model that is to be shipped must have a new name; got {name!r}")
    model = load(folder).half()
    task: Any = recipe_of(folder)[1]
    with tempfile.TemporaryDirectory(dir=HOME) as around:
        draft = Path(around) / name
        model.save_pretrained(draft)
        (draft / "README.md").unlink(missing_ok=True)  # the Hub's, with no word of this model
        facts = {
            "sha256": hashlib.sha256((draft / "model.safetensors").read_bytes()).hexdigest(),
            "context": task.n,
            "task": encode(task, defaults=False),
            "error": {"prompts": SHOWN, "relative": relative(model.float(), task, SHOWN)},
        }
        (draft / "about.json").write_text(json.dumps(facts, indent=1))
        settle(draft, home)
    return home


def relative(model: Any, task: Any, prompts: int) -> float:
    """The error before noise at the last asked position, or chain, over that of the zero predictor there."""
    found = evaluate(model, task, prompts=prompts, batch=64, clean=True)
    return final(task, found.mean[-1]) / final(task, found.zeros)


def by_loop(model: Any, task: Any, prompts: int) -> dict[str, float]:
    """The same after a quarter of its loops, a half, three quarters, all, and more than in training; the oracle's."""
    loops = [model.steps * quarters // 4 for quarters in (1, 2, 3, 4, 6, 12)]
    found = evaluate(model, task, prompts=prompts, batch=64, steps=loops, clean=True)
    zero = final(task, found.zeros)
    errors = {str(t): final(task, line) / zero for t, line in zip(loops, found.mean, strict=True)}
    return errors | {"the oracle": relative(task.oracle, task, prompts)}


def by_state(model: Any, task: ChainOfThought, prompts: int) -> dict[str, float]:
    """The same at each state of the last chain; and the oracle's."""
    made: dict[str, float] = {}
    for name, algorithm in {"": model, ", the oracle": task.oracle}.items():
        found = evaluate(algorithm, task, prompts=prompts, batch=64, clean=True)
        pairs = zip(found.mean[-1][-task.layers :], found.zeros[-task.layers :], strict=True)
        made |= {f"state {i}{name}": error / zero for i, (error, zero) in enumerate(pairs, 1)}
    return made


def outside(model: Any, task: Numbers, prompts: int) -> dict[str, float]:
    """Errors beside the training distribution, and the oracle's: other lengths, inputs, series, networks."""
    counts: tuple[int, ...] = (10, 20, 30, 60, 100)
    if isinstance(task, ChainOfThought):
        counts = tuple(n for n in (1, 5, 10, 15) if n < task.n)  # it has no positions for more than it was trained with
    cases: dict[str, Any] = {f"{n} examples": replace(task, n=n) for n in counts}
    if isinstance(task, ChainOfThought):
        cases |= {f"slope {s:g}": replace(task, slope=s) for s in (0.1, 0.3)}
        cases["chains of half as many states"] = replace(task, layers=task.layers // 2)
    elif isinstance(task, Autoregression):
        cases |= {f"noise {s:g}": replace(task, noise=s) for s in (0.5, 2.0)}
        cases |= {f"A times {s:g}": replace(task, scale=s * task.scale) for s in (0.5, 1.5)}
    else:
        cases |= {f"{d} features": replace(task, active=d) for d in (5, 10)}
        cases |= {f"inputs times {s:g}": ScaledInputs(task, scale=s) for s in (0.5, 2.0)}
        cases["condition number 10"] = OtherCovariance(task, covariance=Conditioned(kappa=10.0))
        cases |= {f"noise {s:g}": replace(task, noise=s) for s in (0.3, 1.0)}
    if isinstance(task, Representation | Autoregression):
        cases["another phi"] = replace(task, seed=task.seed + 1)
    found = {name: relative(model, case, prompts) for name, case in cases.items()}
    return found | {f"{name}, the oracle": relative(case.oracle, case, prompts) for name, case in cases.items()}


def diabetes(model: Any) -> dict[str, float]:
    """R² on the diabetes data in 5 folds: the model, with half its loops too; ridge on its contexts and on all rows."""
    X, y = load_diabetes(return_X_y=True)

    class Small(solvers.Ridge):
        context = model.context

    methods = {
        "the model": (model, None),
        "half of its loops": (model, model.steps // 2),
        "ridge on the same contexts": (Small(strength=1.0), None),
    }
    estimators: dict[str, Any] = {
        name: InContextRegressor(method=method, steps=t, random_state=0) for name, (method, t) in methods.items()
    }
    estimators["ridge on all rows"] = make_pipeline(StandardScaler(), Ridge(alpha=1.0))
    return {name: float(np.mean(cross_val_score(e, X, y, cv=FOLDS))) for name, e in estimators.items()}


def of_phi(model: Any, task: Representation | Autoregression) -> dict[str, float]:
    """R² of linear probes for phi: from its inputs, and from what no loop, one and all of them gave."""
    found = represented(model, task)
    made = {"from the inputs": found.inputs}
    for name, scores in (("trained", found.model), ("untrained", found.untrained)):
        made |= {f"{name}, {t} loops": scores[t] for t in (0, 1, len(scores) - 1)}
    return made


@torch.no_grad()
def speed(model: Any, task: Numbers) -> dict[str, float]:
    """Seconds for 64 prompts with examples of their own, and for one with 64 queries: the best of three.

    Float32 and all loops, or bfloat16 and three quarters of them; beside it the error of the 64 prompts.
    """
    found = {"threads": float(torch.get_num_threads())}
    drawn: dict[str, tuple[int, Numbers]]
    if isinstance(task, ChainOfThought):
        drawn = {"64 prompts": (64, replace(task, dense=False, known=task.layers))}
    elif isinstance(task, Autoregression):
        drawn = {"64 prompts": (64, replace(task, every=False))}
    else:
        single = replace(task, dense=False, queries=1)
        drawn = {"64 prompts": (64, single), "64 queries of one": (1, replace(single, queries=64))}
    cases: dict[str, Any] = {name: t.sample(b, torch.Generator().manual_seed(0)) for name, (b, t) in drawn.items()}
    for dtype, loops in ((torch.float32, model.steps), (torch.bfloat16, 3 * model.steps // 4)):
        it = copy.deepcopy(model).to(dtype)
        for name, asked in cases.items():
            taken, prompt = [], asked.prompt.to(dtype=dtype)
            for _ in range(3):
                begin = time.perf_counter()
                answer = it(prompt, loops)
                taken.append(time.perf_counter() - begin)
            found[f"{name}, {dtype}, {loops} loops"] = min(taken)
            if name == "64 prompts":
                clean = asked.truth.clean
                found[f"error, {dtype}"] = float((answer - clean).square().mean() / clean.square().mean())
    return found


def main() -> None:
    """Print the facts of a card."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="algoformer.bench.zoo", description=__doc__, formatter_class=form)
    parser.add_argument("name", metavar="NAME", help="a shipped model, but no translator; with --ship, a new one")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--prompts", type=int, default=1280, help="how many to measure its errors on (1280)")
    either.add_argument("--ship", metavar="FOLDER", help="a run whose model is to be shipped as NAME")
    a = parser.parse_args()
    with refusals(parser):
        whole("prompts", a.prompts, 1)
        if a.ship:
            print(f"{ship(a.ship, a.name)} is whole but for its card, README.md")
            return
        known("a pretrained model of numbers", a.name, [name for name in NAMES if name not in TRANSLATORS])
    model, task = pretrained(a.name), decode(about(a.name)["task"])
    facts = {
        "loops": by_loop(model, task, a.prompts),
        "outside": outside(model, task, a.prompts),
        "seconds": speed(model, task),
    }
    if isinstance(task, LinearRegression):
        facts["diabetes"] = diabetes(model)
    elif isinstance(task, ChainOfThought):
        facts["states"] = by_state(model, task, a.prompts)
    else:
        facts["phi"] = of_phi(model, task)
    print(json.dumps({name: {k: float(f"{v:.4g}") for k, v in part.items()} for name, part in facts.items()}, indent=1))


if __name__ == "__main__":
    main()
