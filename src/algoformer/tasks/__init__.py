"""Distributions over in-context problems: tasks, the covariances of their inputs, and their shifts."""

from algoformer.tasks.autoregression import Autoregression
from algoformer.tasks.chain_of_thought import ChainOfThought
from algoformer.tasks.classic import DecisionTree, Quadratic, ReluNetwork, SparseLinear, TanhNetwork
from algoformer.tasks.covariance import Conditioned, Covariance, Given, HalfAndHalf, Isotropic, Spectrum, Subspace
from algoformer.tasks.linear import LinearRegression
from algoformer.tasks.logistic import LogisticRegression
from algoformer.tasks.network import LeakyNetwork, leaky, unleaky
from algoformer.tasks.number_words import NumberWords
from algoformer.tasks.pairs import Pairs, Regression
from algoformer.tasks.representation import Representation
from algoformer.tasks.shifts import (
    HalfSubspace,
    OrthogonalQuery,
    OtherCovariance,
    OtherNoise,
    Quadrants,
    RepeatedQuery,
    ScaledInputs,
    ScaledLabels,
    Shift,
)
from algoformer.tasks.translation import Parallel, Translation

__all__ = [
    "Autoregression",
    "ChainOfThought",
    "Conditioned",
    "Covariance",
    "DecisionTree",
    "Given",
    "HalfAndHalf",
    "HalfSubspace",
    "Isotropic",
    "LeakyNetwork",
    "LinearRegression",
    "LogisticRegression",
    "NumberWords",
    "OrthogonalQuery",
    "OtherCovariance",
    "OtherNoise",
    "Pairs",
    "Parallel",
    "Quadrants",
    "Quadratic",
    "Regression",
    "ReluNetwork",
    "RepeatedQuery",
    "Representation",
    "ScaledInputs",
    "ScaledLabels",
    "Shift",
    "SparseLinear",
    "Spectrum",
    "Subspace",
    "TanhNetwork",
    "Translation",
    "leaky",
    "unleaky",
]
