"""In-context solvers as scikit-learn estimators: `fit` remembers the context, `predict` asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from algoformer.algorithm import Algorithm, On
from algoformer.checks import real, whole
from algoformer.prompt import Prompt
from algoformer.solvers import DampedNewton, Newton

Numbers = NDArray[np.float64]


class InContextRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression by any Algorithm: the training set is its prompt, the rows to predict are its queries.

    Parameters
    ----------
    method : Algorithm or None
        Who answers; None is `Newton` from M₀ = I/λmax with the given ridge.
    steps : int or None
        How many steps it takes; None is the method's own number, 50 for Newton.
    ridge : float
        Penalty on the squared weights beside the sum of squared errors; used by method None.
    standardize : bool
        Bring features and targets to mean 0 and variance 1 first. Without it there is no intercept.
    subsets : int
        A method that was trained with contexts of a certain size is asked with so many random contexts of that size
        where the training set is larger; its answers are averaged.
    random_state : int, RandomState or None
        Draws these contexts, when it is fitted.
    """

    def __init__(
        self,
        method: Algorithm[Any, Any] | None = None,
        steps: int | None = None,
        ridge: float = 1e-3,
        standardize: bool = True,
        subsets: int = 16,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.steps = steps
        self.ridge = ridge
        self.standardize = standardize
        self.subsets = subsets
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> InContextRegressor:
        """Remember the context."""
        _check(self)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, np.float64)
        self.flat_ = y.ndim == 1
        self.features_ = _scaler(self).fit(X)
        self.targets_ = _scaler(self).fit(_columns(y))
        self.x_, self.y_ = self.features_.transform(X), self.targets_.transform(_columns(y))
        own = Newton(steps=50, start="I", ridge=float(self.ridge))
        self.method_ = own if self.method is None else self.method
        self.contexts_ = _contexts(self)
        return self

    def predict(self, X: Any) -> Numbers:
        """Ask for the labels of the rows of X."""
        check_is_fitted(self)
        queries = self.features_.transform(validate_data(self, X, dtype=np.float64, reset=False))
        answer: Numbers = self.targets_.inverse_transform(_averaged(self, queries))
        return answer[:, 0] if self.flat_ else answer


class InContextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification by any Algorithm that takes labels -1 and +1 and answers with margins; one against the rest.

    Parameters
    ----------
    method : Algorithm or None
        Who answers; None is `DampedNewton` with backtracking on the logistic loss, with a constant feature of 10 whose
        weight is the intercept, hardly penalised. A method of your own has none, unless a feature is constant and
        `standardize` off.
    steps : int or None
        How many steps it takes; None is the method's own number, 30 for DampedNewton.
    ridge : float
        Penalty on half the squared weights beside the sum of logistic losses, scikit-learn's 1/C; used by method None.
    standardize : bool
        Bring features to mean 0 and variance 1 first.
    subsets, random_state
        As for `InContextRegressor`: how many random contexts a method is asked with that was trained with smaller ones;
        its margins are averaged.
    """

    def __init__(
        self,
        method: Algorithm[Any, Any] | None = None,
        steps: int | None = None,
        ridge: float = 1.0,
        standardize: bool = True,
        subsets: int = 16,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.steps = steps
        self.ridge = ridge
        self.standardize = standardize
        self.subsets = subsets
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> InContextClassifier:
        """Remember the context."""
        _check(self)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.labels_ = LabelBinarizer(neg_label=-1, pos_label=1).fit(y)
        self.classes_ = self.labels_.classes_
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least 2 classes; got 1 class: {self.classes_}")
        self.features_ = _scaler(self).fit(X)
        self.constant_ = self.method is None  # has the context a feature for the intercept?
        self.x_, self.y_ = self._inputs(X), self.labels_.transform(y).astype(np.float64)
        own = DampedNewton(mu=float(self.ridge) / len(X), steps=30, damping="backtracking")
        self.method_ = own if self.method is None else self.method
        self.contexts_ = _contexts(self)
        return self

    def decision_function(self, X: Any) -> Numbers:
        """The margin of each class, of the second alone where there are two."""
        check_is_fitted(self)
        queries = self._inputs(validate_data(self, X, dtype=np.float64, reset=False))
        margins = _averaged(self, queries)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X: Any) -> Numbers:
        """The sigmoid of each margin, normalised to sum to 1 over the classes."""
        margins = torch.from_numpy(self.decision_function(X))
        if margins.ndim == 1:
            shares = torch.stack([-margins, margins], 1).sigmoid()
        else:
            shares = torch.nn.functional.logsigmoid(margins).softmax(1)
        found: Numbers = shares.numpy()
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest margin."""
        margins = self.decision_function(X)
        best = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        answer: NDArray[Any] = self.classes_[best]
        return answer

    def _inputs(self, X: Numbers) -> Numbers:
        x: Numbers = self.features_.transform(X)
        return np.hstack([x, np.full((len(x), 1), 10.0)]) if self.constant_ else x


def _check(estimator: InContextRegressor | InContextClassifier) -> None:
    if estimator.method is not None and not isinstance(estimator.method, Algorithm):
        raise TypeError(f"method must be an Algorithm or None; got {estimator.method!r}")
    if estimator.steps is not None:
        whole("steps", estimator.steps)
    real("ridge", estimator.ridge, above=0)
    if not isinstance(estimator.standardize, bool | np.bool_):
        raise TypeError(f"standardize must be True or False; got {estimator.standardize!r}")
    whole("subsets", estimator.subsets, 1)


def _scaler(estimator: InContextRegressor | InContextClassifier) -> StandardScaler:
    """Its own: arrays in and out, whatever others are set to give."""
    scaler = StandardScaler(with_mean=estimator.standardize, with_std=estimator.standardize)
    return scaler.set_output(transform="default")


def _columns(y: Numbers) -> Numbers:
    return y[:, None] if y.ndim == 1 else y


def _contexts(estimator: InContextRegressor | InContextClassifier) -> NDArray[np.intp]:
    """The rows of each context: all, or random ones where the method was trained with fewer."""
    x, y, method, steps = estimator.x_, estimator.y_, estimator.method_, estimator.steps
    if steps is not None and method.limit is not None and steps > method.limit:
        raise ValueError(f"steps must be at most the {method.limit} that {type(method).__name__} has; got {steps}")
    few = slice(x.shape[1])  # as many rows as features, which some constructions need
    _ask(method, x[few], y[few], x[:1], 0)  # a method that cannot take these says so now
    if method.context is None or method.context >= len(x):
        return np.arange(len(x))[None]
    draw = check_random_state(estimator.random_state)
    return np.stack([draw.permutation(len(x))[: method.context] for _ in range(estimator.subsets)])


def _averaged(estimator: InContextRegressor | InContextClassifier, queries: Numbers) -> Numbers:
    """The mean of what the method answers in each context."""
    x, y, steps = estimator.x_, estimator.y_, estimator.steps
    answers = [_ask(estimator.method_, x[rows], y[rows], queries, steps) for rows in estimator.contexts_]
    mean: Numbers = np.mean(answers, axis=0)
    return mean


def _ask(method: Algorithm[Any, Any], x: Numbers, y: Numbers, queries: Numbers, steps: int | None) -> Numbers:
    """One prompt, in the precision and on the device of the method's weights if it has any."""
    inner = method
    while isinstance(inner, On):
        inner = inner.solver
    weight = next(inner.parameters(), None) if isinstance(inner, torch.nn.Module) else None
    like = torch.zeros((), dtype=torch.float64) if weight is None else weight.detach()
    context, labels, asked = (torch.from_numpy(v).to(like)[None] for v in (x, y, queries))
    with torch.no_grad():
        answer: Numbers = method.predict(Prompt(context, labels, asked), steps)[0].double().cpu().numpy()
    return answer
