"""Distributions over in-context problems."""

from algoformer.tasks.covariance import Conditioned, Covariance, Given, HalfAndHalf, Isotropic, Spectrum, Subspace
from algoformer.tasks.linear import LinearRegression
from algoformer.tasks.pairs import Pairs, Regression

__all__ = [
    "Conditioned",
    "Covariance",
    "Given",
    "HalfAndHalf",
    "Isotropic",
    "LinearRegression",
    "Pairs",
    "Regression",
    "Spectrum",
    "Subspace",
]
