"""What the cards of the shipped models of numbers say.

python -m algoformer.bench.zoo linear-regression-d20
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import replace
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
from algoformer.tasks import Conditioned, LinearRegression, OtherCovariance, ScaledInputs
from algoformer.training.codec import decode
from algoformer.training.evaluation import evaluate
from algoformer.zoo import NAMES, about, pretrained

SIZES = (64, 1), (1, 64)  # prompts and queries
FOLDS = KFold(5, shuffle=True, random_state=0)


def relative(model: Any, task: Any, prompts: int) -> float:
    """The error at the last asked position over that of the zero predictor there."""
    found = evaluate(model, task, prompts=prompts, batch=64)
    return found.mean[-1][-1] / found.zeros[-1]


def outside(model: Any, task: LinearRegression, prompts: int) -> dict[str, float]:
    """Errors beside the training distribution: other numbers of examples, fewer features, other inputs."""
    dense = {n: replace(task, n=n) for n in (10, 20, 30, 60, 100)}
    cases: dict[str, Any] = {
        "as trained": task,
        **{f"{n} examples": other for n, other in dense.items()},
        **{f"{d} features": replace(task, active=d) for d in (5, 10)},
        **{f"inputs times {s:g}": ScaledInputs(task, scale=s) for s in (0.5, 2.0)},
        "condition number 10": OtherCovariance(task, covariance=Conditioned(kappa=10.0)),
    }
    return {name: relative(model, case, prompts) for name, case in cases.items()}


def diabetes(model: Any) -> dict[str, float]:
    """R² on the diabetes data in 5 folds: the model, ridge on the same contexts, and ridge on all rows."""
    X, y = load_diabetes(return_X_y=True)

    class Small(solvers.Ridge):
        context = model.context

    methods = {"the model": model, "ridge on the same contexts": Small(strength=1.0)}
    estimators: dict[str, Any] = {k: InContextRegressor(method=v, random_state=0) for k, v in methods.items()}
    estimators["ridge on all rows"] = make_pipeline(StandardScaler(), Ridge(alpha=1.0))
    return {name: float(np.mean(cross_val_score(e, X, y, cv=FOLDS))) for name, e in estimators.items()}


@torch.no_grad()
def speed(model: Any, task: LinearRegression) -> dict[str, float]:
    """Seconds for 64 prompts with examples of their own, and for one with 64 queries: the best of three.

    Float32 and all loops, or bfloat16 and three quarters of them; beside it the error of the 64 prompts.
    """
    found = {"threads": float(torch.get_num_threads())}
    own, one = (replace(task, dense=False, queries=q).sample(b, torch.Generator().manual_seed(0)) for b, q in SIZES)
    for dtype, loops in ((torch.float32, model.steps), (torch.bfloat16, 3 * model.steps // 4)):
        it = copy.deepcopy(model).to(dtype)
        for name, asked in (("64 prompts", own), ("64 queries of one", one)):
            taken, prompt = [], asked.prompt.to(dtype=dtype)
            for _ in range(3):
                begin = time.perf_counter()
                answer = it(prompt, loops)
                taken.append(time.perf_counter() - begin)
            found[f"{name}, {dtype}, {loops} loops"] = min(taken)
            if asked is own:
                found[f"error, {dtype}"] = float((answer - own.target).square().mean() / own.target.square().mean())
    return found


def main() -> None:
    """Print the facts of a card."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="algoformer.bench.zoo", description=__doc__, formatter_class=form)
    parser.add_argument("name", metavar="NAME", help="a shipped model of numbers")
    parser.add_argument("--prompts", type=int, default=1280, help="on which its errors are measured (1280)")
    a = parser.parse_args()
    with refusals(parser):
        whole("prompts", a.prompts, 1)
        known("a pretrained model of numbers", a.name, [name for name in NAMES if "task" in about(name)])
    model, task = pretrained(a.name), decode(about(a.name)["task"])
    facts = {
        "seconds": speed(model, task),
        "outside": outside(model, task, a.prompts),
        "diabetes": diabetes(model),
    }
    print(json.dumps({name: {k: float(f"{v:.4g}") for k, v in part.items()} for name, part in facts.items()}, indent=1))


if __name__ == "__main__":
    main()
