import pytest
import torch

from algoformer import On, Prompt, Series, solvers
from algoformer.prompt import Chains
from algoformer.testing import laws, regression

SOLVERS = [
    solvers.LeastSquares(),
    solvers.Ridge(strength=0.5),
    solvers.Averaging(),
    solvers.Lasso(strength=0.05, steps=30),
    solvers.GradientDescent(steps=7),
    solvers.GradientDescent(steps=7, eta=0.02, gradient="sum"),
    solvers.GradientDescent(steps=7, eta="2/(lmax+lmin)", gradient="sum"),
    solvers.GradientDescent(steps=7, form="spectral"),
    solvers.GradientDescent(steps=7, eta=0.02, gradient="sum", form="spectral"),
    solvers.GradientDescent(steps=7, eta="2/(lmax+lmin)", form="spectral"),
    solvers.PreconditionedGradientDescent(preconditioner=torch.diag(torch.tensor([0.5, 0.4, 0.3, 0.2])), steps=7),
    solvers.PreconditionedGradientDescent(preconditioner=torch.eye(4), eta="1/lmax", steps=7),
    solvers.HeavyBall(steps=7),
    solvers.Nesterov(steps=7),
    solvers.GradientDescentPlusPlus(eta=(0.5, 0.7), gamma=(0.1, 0.2)),
    solvers.ConjugateGradient(steps=3),
    solvers.BFGS(steps=3),
    solvers.BFGS(steps=5, search="unit"),
    solvers.LBFGS(steps=3, memory=2),
    solvers.LBFGS(steps=5, memory=2, search="unit"),
    solvers.Newton(steps=6),
    solvers.Newton(steps=6, order=4, start="I", ridge=0.3),
    solvers.Newton(steps=6, form="stream"),
    solvers.Newton(steps=6, form="stream", ridge=0.3, start="I"),
    solvers.Newton(steps=6, form="textbook"),
    solvers.Newton(steps=6, form="textbook", scale="optimal", order=3),
    solvers.Newton(steps=6, scale="frobenius"),
    solvers.NetworkGradientDescent(steps=5, hidden=3, eta=0.1),
    solvers.NetworkGradientDescent(steps=5, hidden=3, eta=0.1, unit="tanh"),
]
NAMED = [pytest.param(law, id=f"{i}-{type(s).__name__}-{law}") for i, s in enumerate(SOLVERS) for law in laws(s)]


@pytest.mark.parametrize("law", NAMED)
def test_solver_keeps_the_contract(law):
    law()


@pytest.mark.parametrize("law", laws(solvers.NearestNeighbours(neighbours=3)), ids=str)
def test_nearest_neighbours_keeps_the_contract(law):
    law()


@pytest.mark.parametrize("eta", ["kaczmarz", 0.05])
@pytest.mark.parametrize("steps", [None, 5])
def test_online_descent_keeps_the_contract_but_minds_the_order(eta, steps):
    for law in laws(solvers.OnlineGradientDescent(eta=eta, steps=steps), without=["permutation"]):
        law()


def signs(generator: torch.Generator, dtype: torch.dtype) -> Prompt:
    p = regression(generator, dtype)
    return Prompt(p.x, torch.where(p.y < 0, -1.0, 1.0).to(dtype), p.queries, p.seen)


@pytest.mark.parametrize(
    "solver",
    [
        solvers.DampedNewton(steps=5),
        solvers.DampedNewton(steps=3, damping="none"),
        solvers.LogisticGradientDescent(steps=9),
        solvers.LogisticGradientDescent(steps=9, eta=0.5),
    ],
    ids=repr,
)
def test_logistic_solver_keeps_the_contract(solver):
    for law in laws(solver, prompt=signs, without=["dense_is_predict_on_every_prefix"]):
        law()


def series(generator: torch.Generator, dtype: torch.dtype) -> Series:
    return Series(torch.randn(3, 12, 2, generator=generator, dtype=dtype))


def chains(generator: torch.Generator, dtype: torch.dtype) -> Chains:
    return Chains(
        torch.randn(3, 9, 4, 2, generator=generator, dtype=dtype),
        torch.randn(3, 2, 2, generator=generator, dtype=dtype),
    )


@pytest.mark.parametrize("solver", [solvers.LeastSquares(), solvers.GradientDescent(steps=6), solvers.Newton(steps=8)])
@pytest.mark.parametrize(
    ("reduction", "prompt"),
    [
        (solvers.Windows(q=2), series),
        (solvers.Links(slope=0.2), chains),
        (solvers.ExpectedLinks(slope=0.2, gain=0.5), chains),
        (solvers.Features(torch.tanh), regression),
    ],
)
def test_solver_on_a_reduction_keeps_the_contract(solver, reduction, prompt):
    for law in laws(On(solver, reduction), prompt=prompt):
        law()
