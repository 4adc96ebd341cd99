import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from scipy.special import expit
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from algoformer import Algorithm, Diverged, InContextClassifier, InContextRegressor, On, pretrained, solvers
from algoformer.constructions import compile, least_squares
from algoformer.models import AlgoFormer, AlgoFormerConfig
from algoformer.solvers import ConjugateGradient, Features, GradientDescent, LeastSquares, LogisticGradientDescent

FOLDS = KFold(5, shuffle=True, random_state=0)


class Nearby(solvers.Ridge):
    """A method that was trained with contexts of 20."""

    context = 20


@pytest.mark.parametrize(
    "estimator",
    [
        InContextRegressor(),
        InContextRegressor(method=LeastSquares()),
        InContextRegressor(standardize=False),
        InContextClassifier(),
        InContextClassifier(method=LogisticGradientDescent(mu=0.01, steps=300)),
        InContextRegressor(method=Nearby(strength=1.0)),
        InContextClassifier(method=Nearby(strength=1.0)),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_estimator_passes_every_check_of_scikit_learn(estimator):
    results = check_estimator(estimator, on_fail="raise")
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= {"check_array_api_input"}  # off by default


def test_regressor_matches_linear_regression_on_diabetes():
    X, y = load_diabetes(return_X_y=True)
    mine = cross_val_score(InContextRegressor(), X, y, cv=FOLDS).mean()
    theirs = cross_val_score(make_pipeline(StandardScaler(), LinearRegression()), X, y, cv=FOLDS).mean()
    assert abs(mine - theirs) <= 0.005


def test_classifier_matches_logistic_regression_on_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    mine = cross_val_score(InContextClassifier(ridge=1.0), X, y, cv=FOLDS).mean()
    theirs = cross_val_score(make_pipeline(StandardScaler(), LogisticRegression(C=1.0)), X, y, cv=FOLDS).mean()
    assert abs(mine - theirs) <= 0.01


def test_regressor_with_ridge_is_ridge():
    X, y = make_regression(60, 8, n_targets=2, noise=5.0, random_state=0)
    model = InContextRegressor(ridge=3.0).fit(X, y)
    scaled = make_pipeline(StandardScaler(), Ridge(alpha=3.0)).fit(X, y)
    np.testing.assert_allclose(model.predict(X), scaled.predict(X), rtol=1e-9)
    plain = Ridge(alpha=3.0, fit_intercept=False).fit(3 * X + 1, y)
    mine = InContextRegressor(ridge=3.0, standardize=False).fit(3 * X + 1, y)
    np.testing.assert_allclose(mine.predict(X), plain.predict(X), rtol=1e-9)
    X[:, 0] = X[:, 1] + 1e-2 * X[:, 0]  # hardly to be told from another, and by default enough steps to do so
    exact = make_pipeline(StandardScaler(), Ridge(alpha=1e-3)).fit(X, y)
    np.testing.assert_allclose(InContextRegressor().fit(X, y).predict(X), exact.predict(X), rtol=1e-7)


def test_classifier_is_scikit_learns_optimum_with_a_constant_feature():
    X, y = load_breast_cancer(return_X_y=True)
    x = np.hstack([StandardScaler().fit_transform(X), np.full((len(X), 1), 10.0)])
    theirs = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-12, solver="newton-cholesky").fit(x, y)
    mine = InContextClassifier(ridge=0.5).fit(X, y)
    np.testing.assert_allclose(mine.decision_function(X), theirs.decision_function(x), atol=1e-8)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(x), atol=1e-9)


def test_classifier_of_three_classes_takes_each_against_the_rest():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    mine = cross_val_score(InContextClassifier(), X, names, cv=folds).mean()
    each = OneVsRestClassifier(LogisticRegression(C=1.0))
    theirs = cross_val_score(make_pipeline(StandardScaler(), each), X, names, cv=folds).mean()
    assert abs(mine - theirs) <= 0.01
    model = InContextClassifier().fit(X, names)
    shares = expit(model.decision_function(X))
    assert shares.shape == (150, 3)
    np.testing.assert_allclose(model.predict_proba(X), shares / shares.sum(1, keepdims=True))
    assert set(model.predict(X)) == set(names)


def test_probabilities_stay_numbers_where_every_margin_is_far_below_0():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.integers(0, 3, 60)
    model = InContextClassifier().fit(X, y)
    at_0 = model.decision_function(np.zeros((1, 3)))
    far = 2000 * np.linalg.solve((model.decision_function(np.eye(3)) - at_0).T, -np.ones(3))[None]
    margins = model.decision_function(far)
    assert margins.max() < -1000
    shares = np.exp(margins - margins.max())  # the sigmoid is the exponential there
    np.testing.assert_allclose(model.predict_proba(far), shares / shares.sum(), rtol=1e-9)
    two = InContextClassifier().fit(X, y > 0)
    p = two.predict_proba(1e3 * X)
    np.testing.assert_allclose(p[:, 0], expit(-two.decision_function(1e3 * X)), rtol=1e-9)


def test_a_construction_that_needs_as_many_examples_as_features_is_a_method():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    y = X @ [1.0, -2.0, 0.5]
    model = InContextRegressor(method=compile(least_squares(3, scale=1e-4, steps=40))).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-6)
    with pytest.raises(ValueError, match="steps must be at most the 0 that LeastSquares has; got 3"):
        InContextRegressor(method=LeastSquares(), steps=3).fit(X, y)


def test_estimators_take_frames_and_check_their_columns():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    targets = pd.DataFrame({"a": y, "b": -y})
    model = InContextRegressor().fit(X, targets)
    assert list(model.feature_names_in_) == list(X.columns)
    np.testing.assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[X.columns[::-1]])


def test_regressor_works_in_a_pipeline_and_a_grid_search():
    X, y = make_regression(80, 4, noise=3.0, random_state=1)
    grid = GridSearchCV(
        make_pipeline(PolynomialFeatures(2), InContextRegressor()),
        {
            "incontextregressor__ridge": [0.1, 10.0],
            "incontextregressor__method": [None, ConjugateGradient(steps=8), GradientDescent(steps=50)],
        },
        cv=3,
    ).fit(X, y)
    assert grid.best_score_ > 0.95
    assert clone(grid.best_estimator_).get_params()


def test_steps_are_the_methods_steps():
    X, y = make_regression(50, 6, random_state=2)
    one, many = (InContextRegressor(method=GradientDescent(), steps=s).fit(X, y).score(X, y) for s in (1, 400))
    assert one < many
    assert many == pytest.approx(1.0)
    own = InContextRegressor(method=GradientDescent(steps=7)).fit(X, y).predict(X)
    np.testing.assert_array_equal(own, InContextRegressor(method=GradientDescent(), steps=7).fit(X, y).predict(X))


def test_a_module_is_asked_in_its_own_precision():
    class Scaled(torch.nn.Module, Algorithm):
        steps = limit = 0

        def __init__(self):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(()))

        def init(self, p):
            assert p.x.dtype == torch.float32
            return LeastSquares().predict(p)

        def step(self, p, s, t):
            return s

        def read(self, p, s):
            return s * self.gain

    X, y = make_regression(50, 3, random_state=3)
    np.testing.assert_allclose(InContextRegressor(method=Scaled()).fit(X, y).predict(X), y, rtol=1e-3)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (InContextRegressor(method="newton"), "method must be an Algorithm or None; got 'newton'"),
        (InContextRegressor(steps=-3), "steps must be at least 0; got -3"),
        (InContextRegressor(ridge=0.0), "ridge must be above 0; got 0"),
        (InContextClassifier(ridge=-1.0), "ridge must be above 0; got -1"),
        (InContextRegressor(subsets=0), "subsets must be at least 1; got 0"),
        (InContextClassifier(subsets=0), "subsets must be at least 1; got 0"),
        (InContextRegressor(standardize="yes"), "standardize must be True or False; got 'yes'"),
    ],
)
def test_bad_parameters_are_refused_at_fit(estimator, message):
    with pytest.raises((ValueError, TypeError), match=message):
        estimator.fit([[0.0], [1.0]], [0, 1])


def test_sparse_input_is_refused():
    with pytest.raises(TypeError, match="Sparse data was passed"):
        InContextRegressor().fit(scipy.sparse.csr_matrix(np.eye(4)), [0.0, 1.0, 2.0, 3.0])


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="y must have at least 2 classes; got 1 class: \\[1\\]"):
        InContextClassifier().fit([[0.0], [1.0]], [1, 1])


def test_a_diverging_method_is_an_error_that_names_it():
    X, y = make_regression(50, 3, random_state=4)
    with pytest.raises(Diverged, match="GradientDescent is not finite from step"):
        InContextRegressor(method=GradientDescent(eta=1e6, steps=200)).fit(X, y).predict(X)


def test_a_method_made_for_small_contexts_is_averaged_over_random_ones():
    X, y = load_diabetes(return_X_y=True)
    one = InContextRegressor(method=Nearby(strength=1.0), subsets=5, random_state=3).fit(X[:60], y[:60])
    assert one.contexts_.shape == (5, 20)
    assert all(len(set(rows)) == 20 for rows in one.contexts_.tolist())
    x, t = StandardScaler().fit(X[:60]), StandardScaler().fit(y[:60, None])
    parts = [
        Ridge(alpha=1.0, fit_intercept=False)
        .fit(x.transform(X[rows]), t.transform(y[rows, None])[:, 0])
        .predict(x.transform(X[60:70]))
        for rows in one.contexts_
    ]
    wanted = t.inverse_transform(np.mean(parts, axis=0)[:, None])[:, 0]
    np.testing.assert_allclose(one.predict(X[60:70]), wanted, rtol=1e-9)
    again = InContextRegressor(method=Nearby(strength=1.0), subsets=5, random_state=3).fit(X[:60], y[:60])
    np.testing.assert_array_equal(again.predict(X[60:70]), one.predict(X[60:70]))
    few = InContextRegressor(method=Nearby(strength=1.0)).fit(X[:20], y[:20])
    assert few.contexts_.shape == (1, 20)


def test_a_classifier_averages_the_margins_of_random_contexts():
    X, y = load_iris(return_X_y=True)
    one = InContextClassifier(method=Nearby(strength=1.0), subsets=5, random_state=3).fit(X, y)
    assert one.contexts_.shape == (5, 20)
    x = StandardScaler().fit_transform(X)
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    parts = [Ridge(alpha=1.0, fit_intercept=False).fit(x[rows], signs[rows]).predict(x) for rows in one.contexts_]
    np.testing.assert_allclose(one.decision_function(X), np.mean(parts, axis=0), rtol=1e-9)
    few = InContextClassifier(method=Nearby(strength=1.0)).fit(X[40:60], y[40:60])
    assert few.contexts_.shape == (1, 20)


def test_a_shipped_model_classifies_within_the_contexts_it_was_trained_with():
    X, y = load_breast_cancer(return_X_y=True)
    model = pretrained("linear-regression-d20")
    fitted = InContextClassifier(method=model, subsets=2, random_state=0).fit(X[:300, :10], y[:300])
    assert fitted.contexts_.shape == (2, 40)
    assert fitted.score(X[300:400, :10], y[300:400]) > 0.8
    with pytest.raises(ValueError, match="at most 20 features; got 30"):
        InContextClassifier(method=model).fit(X, y)


def test_a_model_on_features_is_asked_as_the_model_itself_is():
    X, y = load_diabetes(return_X_y=True)
    model = pretrained("linear-regression-d20")
    flip = Features(torch.neg)
    plain, on, twice = (
        InContextRegressor(method, subsets=2, random_state=0)
        for method in (model, On(model, flip), On(On(model, flip), flip))
    )
    assert on.fit(X[:300], y[:300]).contexts_.shape == (2, 40)
    np.testing.assert_allclose(on.predict(X[300:320]), plain.fit(-X[:300], y[:300]).predict(-X[300:320]), rtol=1e-5)
    same = plain.fit(X[:300], y[:300]).predict(X[300:320])
    np.testing.assert_array_equal(twice.fit(X[:300], y[:300]).predict(X[300:320]), same)


def test_a_trained_model_takes_fewer_features_and_refuses_more_at_fit():
    model = AlgoFormer(AlgoFormerConfig(features=4, width=16, heads=2, loops=2, positions=64))
    X, y = load_diabetes(return_X_y=True)
    fitted = InContextRegressor(method=model).fit(X[:20, :3], y[:20])
    assert fitted.predict(X[20:25, :3]).shape == (5,)
    with pytest.raises(ValueError, match="at most 4 features; got 10"):
        InContextRegressor(method=model).fit(X[:20], y[:20])


def test_parameters_may_be_numbers_of_numpy():
    X, y = make_regression(40, 3, random_state=5)
    grid = {"steps": np.arange(1, 4), "ridge": np.float32([0.5, 2.0]), "subsets": [np.int64(5)]}
    found = GridSearchCV(InContextRegressor(), grid, cv=3).fit(X, y)
    plain = GridSearchCV(InContextRegressor(), {"steps": [1, 2, 3], "ridge": [0.5, 2.0], "subsets": [5]}, cv=3).fit(
        X, y
    )
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    method = solvers.Newton(steps=np.int64(5), ridge=np.float64(0.5))
    assert method == solvers.Newton(steps=5, ridge=0.5) and hash(method) == hash(solvers.Newton(steps=5, ridge=0.5))
    np.testing.assert_array_equal(
        InContextRegressor(method=method).fit(X, y).predict(X),
        InContextRegressor(method=solvers.Newton(steps=5, ridge=0.5)).fit(X, y).predict(X),
    )
    for wrong in (True, np.True_, np.float64(3.0), np.array([3])):
        with pytest.raises(TypeError, match="steps must be an integer"):
            InContextRegressor(steps=wrong).fit(X, y)
    with pytest.raises(TypeError, match="ridge must be a number"):
        InContextRegressor(ridge=np.True_).fit(X, y)


@pytest.mark.parametrize("estimator", [InContextRegressor(), InContextClassifier()], ids=repr)
def test_what_others_are_set_to_give_changes_nothing(estimator):
    X, y = load_iris(return_X_y=True, as_frame=True)
    wanted = clone(estimator).fit(X, y).predict(X)
    with config_context(transform_output="pandas"):
        np.testing.assert_array_equal(clone(estimator).fit(X, y).predict(X), wanted)


def test_an_estimator_answers_by_the_method_it_was_fitted_with():
    X, y = load_iris(return_X_y=True)
    for estimator in (InContextRegressor(), InContextClassifier()):
        wanted = estimator.fit(X, y).predict(X)
        np.testing.assert_array_equal(estimator.set_params(method=GradientDescent(steps=1)).predict(X), wanted)


def test_a_method_that_counts_as_false_is_a_method():
    class Empty(LeastSquares):
        def __len__(self):
            return 0

    X, y = load_diabetes(return_X_y=True)
    wanted = InContextRegressor(method=LeastSquares(), ridge=1e3).fit(X, y).predict(X)
    np.testing.assert_allclose(InContextRegressor(method=Empty(), ridge=1e3).fit(X, y).predict(X), wanted)
