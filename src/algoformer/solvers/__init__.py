"""The algorithms that people designed, each behind the interface that a transformer has."""

from algoformer.solvers.closed import Averaging, Lasso, LeastSquares, NearestNeighbours, Ridge
from algoformer.solvers.gradient import (
    GradientDescent,
    GradientDescentPlusPlus,
    HeavyBall,
    Nesterov,
    PreconditionedGradientDescent,
)
from algoformer.solvers.krylov import BFGS, LBFGS, ConjugateGradient
from algoformer.solvers.logistic import DampedNewton, LogisticGradientDescent
from algoformer.solvers.network import NetworkGradientDescent
from algoformer.solvers.newton import Newton
from algoformer.solvers.online import OnlineGradientDescent
from algoformer.solvers.reductions import ExpectedLinks, Features, Links, Windows

__all__ = [
    "BFGS",
    "LBFGS",
    "Averaging",
    "ConjugateGradient",
    "DampedNewton",
    "ExpectedLinks",
    "Features",
    "GradientDescent",
    "GradientDescentPlusPlus",
    "HeavyBall",
    "Lasso",
    "LeastSquares",
    "Links",
    "LogisticGradientDescent",
    "NearestNeighbours",
    "Nesterov",
    "NetworkGradientDescent",
    "Newton",
    "OnlineGradientDescent",
    "PreconditionedGradientDescent",
    "Ridge",
    "Windows",
]
