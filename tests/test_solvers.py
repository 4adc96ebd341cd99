import copy
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor

from algoformer import Dense, Diverged, Prompt, solvers
from algoformer.solvers import (
    BFGS,
    LBFGS,
    ConjugateGradient,
    DampedNewton,
    GradientDescent,
    HeavyBall,
    Nesterov,
    Newton,
)
from algoformer.tasks import LinearRegression
from problems import draw, steps_to

DOUBLE = torch.float64

# Closed forms against numpy, scipy and scikit-learn


@pytest.mark.parametrize(("d", "n"), [(20, 40), (20, 10), (20, 20), (3, 200)])
@pytest.mark.parametrize("skew", [False, True])
def test_least_squares_is_numpy_pinv_to_rounding_times_the_condition_number(d, n, skew):
    p, _, _ = draw(1, 16, d=d, n=n, k=2, noise=0.3, skew=skew)
    w = solvers.LeastSquares().init(p).w.numpy()
    for x, y, got in zip(p.x.numpy(), p.y.numpy(), w, strict=True):
        wanted = np.linalg.lstsq(x, y)[0]
        assert np.abs(got - wanted).max() <= 1e-14 * np.linalg.cond(x) * np.linalg.norm(wanted)


def test_least_squares_has_minimum_norm_where_rows_repeat():
    p, _, _ = draw(2, 4, d=6, n=4)
    twice = Prompt(torch.cat([p.x, p.x], 1), torch.cat([p.y, p.y], 1), p.queries)
    wanted = np.linalg.pinv(twice.x.numpy(), rcond=1e-12) @ twice.y.numpy()
    np.testing.assert_allclose(solvers.LeastSquares().init(twice).w.numpy(), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("strength", [1e-6, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("n", [5, 40])
def test_ridge_is_numpys_and_scikit_learns(strength, n):
    p, _, _ = draw(3, 4, n=n, k=2, noise=0.5, skew=True)
    w = solvers.Ridge(strength=strength).init(p).w.numpy()
    for x, y, got in zip(p.x.numpy(), p.y.numpy(), w, strict=True):
        tall = np.vstack([x, np.sqrt(strength) * np.eye(20)])
        wanted = np.linalg.lstsq(tall, np.vstack([y, np.zeros((20, 2))]))[0]
        assert np.abs(got - wanted).max() <= 1e-14 * np.linalg.cond(tall) * np.linalg.norm(wanted)
        theirs = Ridge(alpha=strength, fit_intercept=False, solver="svd").fit(x, y).coef_.T
        np.testing.assert_allclose(got, theirs, rtol=0, atol=1e-11 * np.abs(theirs).max())


def test_lasso_is_scikit_learns():
    p, _, _ = draw(5, 3, d=10, n=30, noise=0.3)
    got = solvers.Lasso(strength=0.1, steps=3000).predict(p).numpy()
    for x, y, q, mine in zip(p.x.numpy(), p.y.numpy(), p.queries.numpy(), got, strict=True):
        wanted = Lasso(alpha=0.1, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(x, y[:, 0])
        np.testing.assert_allclose(mine[:, 0], wanted.predict(q), atol=1e-10)


def test_nearest_neighbours_is_scikit_learns_and_takes_what_is_there():
    p, _, _ = draw(6, 3, d=4, k=2)
    got = solvers.NearestNeighbours(neighbours=5).predict(p).numpy()
    for x, y, q, mine in zip(p.x.numpy(), p.y.numpy(), p.queries.numpy(), got, strict=True):
        np.testing.assert_allclose(mine, KNeighborsRegressor(5).fit(x, y).predict(q), atol=1e-14)
    two = Prompt(p.x[:, :2], p.y[:, :2], p.queries)
    wanted = two.y.mean(1, keepdim=True).expand(-1, 3, -1)
    torch.testing.assert_close(solvers.NearestNeighbours(neighbours=5).predict(two), wanted)


def test_averaging_is_one_gradient_step_of_size_one():
    p, _, _ = draw(7, 3)
    step = GradientDescent(eta=1.0, steps=1).predict(p)
    torch.testing.assert_close(solvers.Averaging().predict(p), step, rtol=1e-14, atol=0)


# Iterations against plain numpy


def numpy_conjugate_gradient(S, b, steps):
    w, r = np.zeros_like(b), b.copy()
    v, out = r.copy(), [np.zeros_like(b)]
    for _ in range(steps):
        alpha = r @ r / (v @ S @ v)
        w, new = w + alpha * v, r - alpha * S @ v
        v, r = new + (new @ new / (r @ r)) * v, new
        out.append(w)
    return out


def numpy_quasi_newton(S, b, steps, search, memory=None):
    """BFGS from explicit matrices; with a memory rebuilt from the last steps, on the scale of the last one."""
    d, top = len(b), np.linalg.eigvalsh(S)[-1]
    w, past, out = np.zeros(d), [], [np.zeros(d)]
    for _ in range(steps):
        scale = 1 / top if memory is None or not past else past[-1][0] @ past[-1][1] / (past[-1][1] @ past[-1][1])
        H = np.eye(d) * scale
        for s, z in past if memory is None else past[-memory:]:
            V = np.eye(d) - np.outer(z, s) / (s @ z)
            H = V.T @ H @ V + np.outer(s, s) / (s @ z)
        g = S @ w - b
        v = -H @ g
        s = v * (-(g @ v) / (v @ S @ v) if search == "exact" else 1.0)
        past.append((s, S @ s))
        w = w + s
        out.append(w)
    return out


@pytest.mark.parametrize(
    ("solver", "plain"),
    [
        (ConjugateGradient(steps=8), numpy_conjugate_gradient),
        (BFGS(steps=8), lambda S, b, t: numpy_quasi_newton(S, b, t, "exact")),
        (BFGS(steps=8, search="unit"), lambda S, b, t: numpy_quasi_newton(S, b, t, "unit")),
        (LBFGS(steps=8, memory=5), lambda S, b, t: numpy_quasi_newton(S, b, t, "exact", 5)),
        (LBFGS(steps=8, memory=4, search="unit"), lambda S, b, t: numpy_quasi_newton(S, b, t, "unit", 4)),
    ],
    ids=lambda v: repr(v) if isinstance(v, solvers.linear.Linear) else "",
)
def test_krylov_iterates_are_those_of_plain_numpy(solver, plain):
    p, _, _ = draw(8, 16, k=2, noise=0.1)
    states = list(solver.states(p))
    for i, (x, y) in enumerate(zip(p.x.numpy(), p.y.numpy(), strict=True)):
        for label in range(2):
            wanted = plain(x.T @ x, x.T @ y[:, label], 8)
            for s, w in zip(states, wanted, strict=True):
                np.testing.assert_allclose(s.w[i, :, label].numpy(), w, rtol=0, atol=1e-10)


def test_quasi_newton_with_exact_search_is_conjugate_gradients():
    p, _, _ = draw(9, 32)
    wanted = ConjugateGradient(steps=15).trace(p)
    for solver in (BFGS(steps=15), LBFGS(steps=15, memory=5)):
        assert (solver.trace(p) - wanted).abs().max() < 3e-10 * wanted.abs().max()


@pytest.mark.parametrize("gradient", ["mean", "sum"])
def test_gradient_descent_is_its_formula(gradient):
    p, _, _ = draw(10, 1, d=3, n=7, k=2)
    x, y, n = p.x[0].numpy(), p.y[0].numpy(), 7 if gradient == "mean" else 1
    w = np.zeros((3, 2))
    for s in GradientDescent(eta=0.03, steps=12, gradient=gradient).states(p):
        np.testing.assert_allclose(s.w[0].numpy(), w, atol=1e-13)
        w = w - 0.03 * x.T @ (x @ w - y) / n


@pytest.mark.parametrize("gradient", ["mean", "sum"])
@pytest.mark.parametrize("given", [{}, {"eta": 0.01}, {"momentum": 0.3}, {"eta": 0.02, "momentum": 0.6}], ids=str)
def test_heavy_ball_and_nesterov_are_their_formulas(gradient, given):
    p, _, _ = draw(10, 1, d=3, n=7, k=2)
    n = 7 if gradient == "mean" else 1
    S, b = p.x[0].numpy().T @ p.x[0].numpy() / n, p.x[0].numpy().T @ p.y[0].numpy() / n
    low, high = np.sqrt(np.linalg.eigvalsh(S)[[0, -1]])
    for solver, eta, beta in (
        (HeavyBall, 4 / (high + low) ** 2, ((high - low) / (high + low)) ** 2),
        (Nesterov, 1 / high**2, (high / low - 1) / (high / low + 1)),
    ):
        eta, beta = given.get("eta", eta), given.get("momentum", beta)
        w, last = np.zeros((3, 2)), np.zeros((3, 2))
        for s in solver(**given, steps=12, gradient=gradient).states(p):
            np.testing.assert_allclose(s.w[0].numpy(), w, rtol=0, atol=1e-12)
            moved = w + beta * (w - last)
            w, last = moved - eta * (S @ (moved if solver is Nesterov else w) - b), w


def test_preconditioning_by_the_inverse_covariance_makes_a_skew_problem_isotropic():
    p, _, root = draw(11, 8, skew=True)
    one, flat = root[0], Prompt(p.x[:1] @ torch.linalg.inv(root[0]), p.y[:1], p.queries[:1] @ torch.linalg.inv(root[0]))
    inverse = torch.linalg.inv(one @ one)
    for eta in (0.2, "1/lmax", "2/(lmax+lmin)"):
        got = solvers.PreconditionedGradientDescent(preconditioner=inverse, eta=eta, steps=30).trace(p[:1])
        torch.testing.assert_close(got, GradientDescent(eta=eta, steps=30).trace(flat), rtol=0, atol=1e-9)


def test_gd_plus_plus_transforms_the_tokens():
    p, _, _ = draw(12, 3, d=4, n=9, k=2)
    eta, gamma = (0.3, 0.5, 0.7), (0.1, 0.05, 0.2)
    x, r, q, out = p.x, p.y, p.queries, torch.zeros(3, 3, 2, dtype=torch.float64)
    trace = solvers.GradientDescentPlusPlus(eta=eta, gamma=gamma).trace(p)
    for t, (e, c) in enumerate(zip(eta, gamma, strict=True)):
        torch.testing.assert_close(trace[t], out, rtol=0, atol=1e-12)
        # every token reads the same layer: residuals and inputs change together
        out, r, q, x = (
            out + e * q @ x.mT @ r / 9,
            r - e * x @ x.mT @ r / 9,
            q - c * q @ x.mT @ x / 9,
            x - c * x @ x.mT @ x / 9,
        )
    torch.testing.assert_close(trace[-1], out, rtol=0, atol=1e-12)


def test_kaczmarz_fits_the_last_example_and_online_descent_is_its_formula():
    p, _, _ = draw(13, 5, d=6, n=9)
    w = list(solvers.OnlineGradientDescent().states(p))[-1].w
    torch.testing.assert_close(p.x[:, -1:] @ w, p.y[:, -1:], rtol=0, atol=1e-12)
    plain = np.zeros((6, 1))
    for x, y in zip(p.x[0].numpy(), p.y[0].numpy(), strict=True):
        plain = plain + 0.05 * x[:, None] * (y - x @ plain)
    np.testing.assert_allclose(
        list(solvers.OnlineGradientDescent(eta=0.05).states(p))[-1].w[0].numpy(), plain, atol=1e-13
    )


def test_online_descent_goes_round_the_seen_examples_only():
    p, _, _ = draw(13, 2, d=3, n=6)
    seen = torch.tensor([[True, False, True, True, False, False], [False, True, True, False, True, False]])
    found = solvers.OnlineGradientDescent(eta=0.1, steps=8).predict(Prompt(p.x, p.y, p.queries, seen))
    for b in range(2):
        few = Prompt(p.x[b : b + 1, seen[b]], p.y[b : b + 1, seen[b]], p.queries[b : b + 1])
        torch.testing.assert_close(found[b : b + 1], solvers.OnlineGradientDescent(eta=0.1, steps=8).predict(few))


@pytest.mark.parametrize("eta", ["kaczmarz", 0.1])
def test_online_descent_without_a_number_of_steps_stays_after_one_pass(eta):
    p, _, _ = draw(13, 2, d=3, n=6, noise=0.5)
    solver, seen = solvers.OnlineGradientDescent(eta=eta), torch.arange(6).expand(2, 6) % 3 != 1
    few = Prompt(p.x[:, seen[0]], p.y[:, seen[0]], p.queries)
    wanted = solvers.OnlineGradientDescent(eta=eta, steps=4).predict(few)
    for steps in (4, 5, 11):
        torch.testing.assert_close(solver.predict(few, steps), wanted)
        torch.testing.assert_close(solver.predict(Prompt(p.x, p.y, p.queries, seen), steps), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("d", "n"), [(1, 9), (2, 10), (5, 20)])
def test_conjugate_gradients_stay_where_they_converged(d, n, dtype):
    g = torch.Generator().manual_seed(0)
    x, w, noise = (torch.randn(128, *shape, generator=g, dtype=dtype) for shape in ((n, d), (d, 1), (n, 1)))
    p = Prompt(x, x @ w + 0.1 * noise, x[:, :2])
    late = solvers.ConjugateGradient(steps=300).trace(p)[d + 2 :]
    apart = (late - solvers.LeastSquares().predict(p)).abs().max()
    assert apart < 1e4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("small", [1e-8, 1e-7])
def test_the_prefixes_of_a_dense_prompt_keep_directions_that_their_gram_matrix_loses(small):
    g = torch.Generator().manual_seed(0)
    scale = torch.tensor([1, 1, 1, small], dtype=torch.float64)
    z, w, turn = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((3, 12, 4), (3, 4, 1), (4, 4)))
    p = Dense(z * scale @ torch.linalg.qr(turn).Q, z @ w)
    for solver in (solvers.Newton(steps=200, start="I"), solvers.LeastSquares()):
        one = torch.cat([solver.predict(p.prefix(i)) for i in range(12)], 1)
        torch.testing.assert_close(solver.predict(p), one, rtol=1e-14 / small, atol=1e-14 / small)


def test_least_squares_of_all_prefixes_at_once_is_that_of_each_and_has_its_gradient():
    p, _, _ = draw(3, 4, d=5, n=9)
    dense = Dense(p.x, p.y)
    wanted = torch.cat([solvers.LeastSquares().predict(dense.prefix(i)) for i in range(9)], 1)
    torch.testing.assert_close(solvers.LeastSquares().predict(dense), wanted, rtol=0, atol=1e-10)
    eye = torch.eye(3, dtype=DOUBLE)
    x, y = torch.cat([eye, eye[:2] + eye[1:]])[None].requires_grad_(), p.y[:1, :5]  # prefixes of equal singular values
    assert torch.autograd.gradcheck(lambda x: solvers.LeastSquares().predict(Dense(x, y)), x, fast_mode=True)


def test_the_nearest_neighbours_are_found_at_any_distance():
    x = torch.tensor([[[3e20], [0.0], [1e20]]])
    p = Prompt(x, torch.tensor([[[4.0], [1.0], [2.0]]]), torch.tensor([[[-1e20]]]))
    assert float(solvers.NearestNeighbours(neighbours=2).predict(p)) == pytest.approx(1.5)
    hidden = torch.tensor([[False, False, True]])  # what is seen is too far for a number, and still before the unseen
    far = Prompt(1e200 * x.double(), p.y.double(), torch.zeros(1, 1, 1, dtype=DOUBLE), hidden)
    assert float(solvers.NearestNeighbours(neighbours=1).predict(far)) == 2


@pytest.mark.parametrize("unseen", [0, 1, 50])
def test_the_first_of_equally_near_neighbours_wins_whatever_is_unseen(unseen):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randint(2, (4, 40, 3), generator=g).float(), torch.randn(4, 40, 1, generator=g)
    queries = torch.randint(2, (4, 9, 3), generator=g).float()
    seen = torch.cat([torch.zeros(4, unseen, dtype=torch.bool), torch.rand(4, 40, generator=g) < 0.7], 1)
    padded = (torch.cat([torch.zeros(4, unseen, v.shape[2]), v], 1) for v in (x, y))
    got = solvers.NearestNeighbours(neighbours=3).predict(Prompt(*padded, queries, seen))
    for b, m in itertools.product(range(4), range(9)):
        known = seen[b, unseen:].numpy()
        order = np.argsort(((x[b] - queries[b, m]) ** 2).sum(1).numpy()[known], kind="stable")[:3]
        assert float(got[b, m]) == pytest.approx(y[b, known, 0].numpy()[order].mean(), abs=1e-6)


# Newton's iteration


def numpy_newton(x, y, steps, order, start, alpha):
    S = x.T @ x
    M = alpha * (S if start == "S" else np.eye(len(S)))
    out = [M @ x.T @ y]
    for _ in range(steps):
        # Giannou et al. 2024, eq. 3.4, with its binomial coefficients
        M = M @ sum((-1) ** m * math.comb(order, m + 1) * np.linalg.matrix_power(S @ M, m) for m in range(order))
        out.append(M @ x.T @ y)
    return out


@pytest.mark.parametrize("form", ["spectral", "stream", "textbook"])
@pytest.mark.parametrize("start", ["S", "I"])
@pytest.mark.parametrize("order", [2, 3, 5, 10])
def test_newton_is_the_matrix_iteration(form, start, order):
    p, _, _ = draw(14, 3, d=5, n=12, k=2, noise=0.2)
    for i, (x, y) in enumerate(zip(p.x.numpy(), p.y.numpy(), strict=True)):
        top = np.linalg.norm(x, 2) ** 2
        alpha = 1.3 / top**2 if start == "S" else 1.3 / top
        solver = Newton(steps=6, order=order, start=start, scale=float(alpha), form=form)
        wanted = numpy_newton(x, y, 6, order, start, alpha)
        for s, w in zip(solver.states(p[i : i + 1]), wanted, strict=True):
            np.testing.assert_allclose(s.w[0].numpy(), w, rtol=0, atol=1e-12 * max(1, np.abs(w).max()))


@pytest.mark.parametrize("form", ["spectral", "stream", "textbook"])
@pytest.mark.parametrize(("start", "power"), [("S", 2), ("I", 1)])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
@pytest.mark.parametrize("n", [3, 12])
def test_the_rules_of_newtons_scale_are_of_all_eigenvalues_the_ridges_among_them(form, start, power, ridge, n):
    p, _, _ = draw(14, 3, d=5, n=n, k=2, noise=0.2)
    for i, (x, y) in enumerate(zip(p.x.numpy(), p.y.numpy(), strict=True)):
        tall, label = np.vstack([x, np.sqrt(ridge) * np.eye(5)]), np.vstack([y, np.zeros((5, 2))])
        values = np.linalg.eigvalsh(tall.T @ tall) ** power
        top, least, size = values[-1], values[values > 1e-9].min(), np.linalg.norm(values)
        for scale, alpha in (("spectral", 1 / top), ("frobenius", 1 / size), ("optimal", 2 / (top + least))):
            solver = Newton(steps=4, start=start, scale=scale, ridge=ridge, form=form)
            wanted = numpy_newton(tall, label, 4, 2, start, alpha)
            for s, w in zip(solver.states(p[i : i + 1]), wanted, strict=True):
                np.testing.assert_allclose(s.w[0].numpy(), w, rtol=0, atol=1e-12 * max(1, np.abs(w).max()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("order", [2, 3, 7])
@pytest.mark.parametrize("start", ["S", "I"])
@pytest.mark.parametrize("case", ["n < d", "n = d", "n > d", "repeated rows", "half subspace"])
def test_newton_stays_at_the_pseudo_inverse_for_200_steps(case, start, order, dtype):
    n = {"n < d": 7, "n = d": 12, "n > d": 30}.get(case, 20)
    p, _, _ = draw(15, 8, d=12, n=n)
    if case == "repeated rows":
        p = Prompt(p.x[:, torch.arange(n) % 5], p.y[:, torch.arange(n) % 5], p.queries)
    if case == "half subspace":
        x = p.x.clone()
        x[:, :, 6:] = 0
        p = Prompt(x, p.y, p.queries)
    p = p.to(dtype=dtype)
    eps = torch.finfo(dtype).eps
    wanted = torch.linalg.pinv(p.x.double(), rtol=30 * eps) @ p.y.double()
    s = torch.linalg.svdvals(p.x.double())
    kappa = s[:, 0] / s.where(s > 30 * eps * s[:, :1], torch.inf).amin(1)
    size = wanted.norm(dim=(1, 2))
    for t, state in enumerate(Newton(steps=200, order=order, start=start).states(p)):
        assert bool(state.w.isfinite().all())
        if t >= 60:
            error = (state.w.double() - wanted).norm(dim=(1, 2)) / size
            assert bool((error < 100 * eps * kappa).all()), f"step {t}: {error.max():.1e}"


@pytest.mark.parametrize("form", ["stream", "textbook"])
def test_the_other_forms_double_their_noise_where_rank_is_missing(form):
    p, _, _ = draw(16, 8, d=12, n=20)
    half = torch.linalg.qr(p.x[:, :12]).Q[:, :6]  # a random subspace for each prompt
    p = Prompt(p.x @ half.mT @ half, p.y, p.queries).to(dtype=torch.float32)
    wanted = solvers.LeastSquares().predict(p)
    spectral, other = (Newton(steps=70, form=f).trace(p).double() for f in ("spectral", form))
    torch.testing.assert_close(other[:6], spectral[:6], rtol=0, atol=1e-3)
    assert (spectral[70] - wanted).abs().max() < 1e-4
    assert not bool((other[70] - wanted).abs().max() < 1.0), "the noise has not grown"


def test_without_rank_missing_the_stream_form_is_stable():
    p, _, _ = draw(16, 8, d=20, n=10)
    torch.testing.assert_close(
        Newton(steps=200, form="stream").predict(p), solvers.LeastSquares().predict(p), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("ridge", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("form", ["spectral", "stream", "textbook"])
@pytest.mark.parametrize("n", [8, 40])
def test_newton_with_ridge_converges_to_ridge(ridge, form, n):
    p, _, _ = draw(17, 6, d=12, n=n, noise=0.5)
    got = Newton(steps=40, ridge=ridge, form=form).predict(p)
    torch.testing.assert_close(got, solvers.Ridge(strength=ridge).predict(p), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("twins", ["columns", "rows"])
def test_as_a_ridge_goes_to_0_its_solution_is_that_of_least_squares_also_without_full_rank(twins, dtype):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 8, 6, generator=g, dtype=DOUBLE), torch.randn(3, 8, 1, generator=g, dtype=DOUBLE)
    x = torch.cat([x[..., :1], x], 2) if twins == "columns" else torch.cat([x[:, :4]] * 2, 1)
    p = Prompt(x, y, torch.eye(x.shape[2], dtype=DOUBLE).expand(3, -1, -1)).to(dtype=dtype)
    best = np.linalg.pinv(x.numpy()) @ y.numpy()
    for ridge in (1e-13, 1e-20, 1e-30):
        for solver in (solvers.Ridge(strength=ridge), Newton(steps=60, start="I", ridge=ridge)):
            np.testing.assert_allclose(solver.predict(p).numpy(), best, rtol=0, atol=1e4 * torch.finfo(dtype).eps)
        followed = Prompt(p.x.clone().requires_grad_(), p.y, p.queries)
        assert torch.equal(solvers.Ridge(strength=ridge).predict(followed), solvers.Ridge(strength=ridge).predict(p))


def test_a_ridge_has_the_gradient_of_its_closed_form():
    p, _, _ = draw(17, 2, d=4, n=9, noise=0.5)
    x, y = (v.clone().requires_grad_() for v in (p.x, p.y))
    ours = solvers.Ridge(strength=0.3).predict(Prompt(x, y, p.queries))
    weights = torch.linalg.solve(x.mT @ x + 0.3 * torch.eye(4, dtype=DOUBLE), x.mT @ y)
    for got, wanted in zip(
        torch.autograd.grad(ours.sum(), (x, y)), torch.autograd.grad((p.queries @ weights).sum(), (x, y)), strict=True
    ):
        torch.testing.assert_close(got, wanted)


def test_prefixes_of_which_few_digits_are_left_copy_no_others(monkeypatch):
    p = LinearRegression(d=20, n=30, dense=True).sample(3, torch.Generator().manual_seed(0), DOUBLE).prompt
    wanted = solvers.LeastSquares().predict(p.expand()).reshape(p.asked)
    monkeypatch.setattr(Dense, "expand", None)
    torch.testing.assert_close(solvers.LeastSquares().predict(p), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("start", ["S", "I"])
@pytest.mark.parametrize("form", ["spectral", "stream", "textbook"])
def test_the_end_point_of_the_interval_is_refused_and_the_interval_is_open(start, form):
    p, _, _ = draw(18, 1)
    top = float(torch.linalg.matrix_norm(p.x.mT @ p.x, 2))
    end = 2 / top**2 if start == "S" else 2 / top
    p = Prompt(torch.cat([p.x / 2, p.x]), torch.cat([p.y / 2, p.y]), p.queries.expand(2, -1, -1))  # one is enough
    wanted = rf"scale must be below 2/lmax\(A\).* = {end:.6g} on every prompt; got {end:.6g}: .*does not converge"
    with pytest.raises(ValueError, match=wanted):
        Newton(start=start, scale=end, form=form).predict(p)
    inside = Newton(start=start, scale=0.995 * end, form=form, steps=30).predict(p)
    torch.testing.assert_close(inside, solvers.LeastSquares().predict(p), rtol=0, atol=1e-9)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.integers(1, 14),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from(["S", "I"]),
)
def test_newton_on_a_dense_prompt_is_newton_on_its_prefixes(seed, d, n, ridge, start):
    p, _, _ = draw(seed, 3, d=d, n=n, k=2, noise=0.1)
    dense = Dense(p.x, p.y)
    for dtype, form in ((torch.float64, "spectral"), (torch.float32, "spectral"), (torch.float64, "textbook")):
        solver = Newton(steps=9, ridge=ridge, start=start, form=form)
        trace = solver.trace(dense.to(dtype=dtype))
        for i in range(n):
            wanted = solver.trace(dense.prefix(i).to(dtype=dtype))[:, :, 0]
            size = max(1.0, float(wanted.abs().max()))
            assert (trace[:, :, i] - wanted).abs().max() <= 1e5 * torch.finfo(dtype).eps * size


# Logistic regression


@pytest.mark.parametrize("damping", ["self-concordant", "backtracking", "none"])
def test_damped_newton_reaches_scikit_learns_optimum(damping):
    p, w, _ = draw(19, 6, d=5, n=26)
    x = p.x / p.x.norm(dim=2, keepdim=True)
    p = Prompt(x, torch.sign(x @ w), p.queries)
    got = list(DampedNewton(mu=0.1, steps=12, damping=damping).states(p))[-1].w
    for x, y, mine in zip(p.x.numpy(), p.y.numpy(), got.numpy(), strict=True):
        model = LogisticRegression(C=1 / (26 * 0.1), fit_intercept=False, solver="newton-cholesky", tol=1e-14)
        np.testing.assert_allclose(mine[:, 0], model.fit(x, y[:, 0]).coef_[0], atol=1e-12)


def test_damped_newton_is_the_published_step_and_converges_quadratically():
    p, w, _ = draw(20, 20, d=5, n=26)
    x = p.x / p.x.norm(dim=2, keepdim=True)
    p = Prompt(x, torch.sign(x @ w), p.queries)
    states = [s.w for s in DampedNewton(mu=0.1, steps=12).states(p)]
    distance = [float((s - states[-1]).norm(dim=(1, 2)).max()) for s in states]
    assert all(b < a * a for a, b in itertools.pairwise(distance[2:6])), distance
    assert distance[7] < 1e-14
    a, y, v = x[0].numpy(), p.y[0, :, 0].numpy(), np.zeros(5)
    for s in states:
        np.testing.assert_allclose(s[0, :, 0].numpy(), v, atol=1e-13)
        m = a @ v
        g = -(a * (y / (1 + np.exp(y * m)))[:, None]).mean(0) + 0.1 * v
        H = (a.T * (np.exp(-m) / (1 + np.exp(-m)) ** 2)) @ a / 26 + 0.1 * np.eye(5)
        change = np.linalg.solve(H, g)
        v = v - 2 * math.sqrt(0.1) / (2 * math.sqrt(0.1) + math.sqrt(g @ change)) * change


def test_damped_newton_converges_on_long_rows_too():
    p, w, _ = draw(21, 6, d=8, n=60, skew=True)
    p = Prompt(5 * p.x, torch.sign(p.x @ w), p.queries)
    s = list(DampedNewton(mu=0.01, steps=20, damping="backtracking").states(p))[-1]
    assert s.slope(0.01).abs().max() < 1e-14


def test_backtracking_converges_where_newton_does_not():
    g = torch.Generator().manual_seed(0)
    x, size, y = (torch.randn(2000, 4, m, generator=g, dtype=torch.float64) for m in (2, 1, 1))
    x = x * torch.exp(3 * size.abs())
    p = Prompt(x, y.sign(), x[:, :1])
    full, safe = (
        list(DampedNewton(mu=1e-3, steps=40, damping=damping).states(p))[-1].slope(1e-3).abs().amax((1, 2))
        for damping in ("none", "backtracking")
    )
    assert safe.max() < 1e-10
    assert (full > 1e-6).sum() > 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_backtracking_never_raises_the_loss(dtype):
    p, w, _ = draw(25, 8, d=6, n=30, k=2, skew=True)
    p = Prompt(9 * p.x, torch.sign(p.x @ w), p.queries).to(dtype=dtype)
    losses = torch.stack(
        [
            torch.nn.functional.softplus(-p.y * (p.x @ s.w)).mean(1) + 0.005 * s.w.square().sum(1)
            for s in DampedNewton(mu=0.01, steps=15, damping="backtracking").states(p)
        ]
    )
    assert bool((losses.diff(dim=0) <= 20 * torch.finfo(dtype).eps * losses[:-1]).all())


def test_backtracking_takes_the_first_halving_that_is_armijos():
    g = torch.Generator().manual_seed(0)
    x, y, w, size = (torch.randn(200, *shape, generator=g, dtype=DOUBLE) for shape in ((4, 2), (4, 1), (2, 1), (1, 1)))
    p, w = Prompt(x, y.sign(), x[:, :1]), w * torch.exp(size)
    solver = DampedNewton(mu=1e-3, damping="backtracking")
    after = solver.step(p, solver.init(p)._replace(w=w), 0).w.numpy()
    halved = []
    for a, b, v, got in zip(x.numpy(), p.y.numpy(), w.numpy(), after, strict=True):
        m = a @ v
        slope = 1e-3 * v - a.T @ (b * expit(-b * m)) / 4
        change = np.linalg.solve(a.T @ (a * expit(m) * expit(-m)) / 4 + 1e-3 * np.eye(2), slope)
        sizes = 0.5 ** np.arange(40)
        losses = [
            np.logaddexp(0, -b * (a @ u)).mean() + 0.5e-3 * (u * u).sum() for u in (v - t * change for t in sizes)
        ]
        now = np.logaddexp(0, -b * m).mean() + 0.5e-3 * (v * v).sum()
        halved.append(int(np.argmax(losses <= now - 1e-4 * sizes * (slope * change).sum())))
        np.testing.assert_allclose(got, v - sizes[halved[-1]] * change, rtol=0, atol=1e-9 * np.abs(change).max())
    assert {0, 1, 2, 3, 4} <= set(halved), sorted(set(halved))


def test_a_damped_step_has_its_derivative_far_on_the_wrong_side_and_at_the_optimum():
    p, _, _ = draw(22, 1, d=2, n=5)
    p = Prompt(p.x, p.y.sign(), p.queries)
    solver = DampedNewton(mu=0.1)
    s = solver.init(p)
    far = (-4000 * p.x[:, :1] * p.y[:, :1]).mT.requires_grad_()
    assert bool((-p.y * (p.x @ far) > 2000).any())
    assert torch.autograd.gradcheck(lambda w: solver.step(p, s._replace(w=w), 0).w, far, eps=1e-3)
    x = torch.zeros(1, 5, 2, dtype=DOUBLE, requires_grad=True)  # the first w is the best one
    answer = solver.predict(Prompt(x, p.y, p.queries))
    assert bool(torch.autograd.grad(answer.sum(), x)[0].isfinite().all()) and not bool(answer.any())


@pytest.mark.parametrize("eta", [None, 0.3])
def test_logistic_gradient_descent_is_its_formula(eta):
    p, _, _ = draw(22, 1, d=3, n=8, k=2)
    p = Prompt(p.x, p.y.sign(), p.queries, torch.arange(8)[None] % 4 != 1)
    x, y = p.x[0, p.seen[0]].numpy(), p.y[0, p.seen[0]].numpy()
    step = 1 / (np.linalg.norm(x, 2) ** 2 / (4 * 6) + 0.2) if eta is None else eta
    w = np.zeros((3, 2))
    for s in solvers.LogisticGradientDescent(mu=0.2, eta=eta, steps=9).states(p):
        np.testing.assert_allclose(s.w[0].numpy(), w, rtol=0, atol=1e-13)
        w = w - step * (0.2 * w - x.T @ (y * expit(-y * (x @ w))) / 6)


def test_logistic_gradient_descent_goes_to_the_same_optimum():
    p, w, _ = draw(22, 4, d=5, n=26)
    p = Prompt(p.x, torch.sign(p.x @ w), p.queries)
    got = solvers.LogisticGradientDescent(mu=0.1, steps=2000).predict(p)
    torch.testing.assert_close(got, DampedNewton(mu=0.1, steps=40).predict(p), rtol=0, atol=1e-10)


def test_logistic_labels_must_be_signs():
    p, _, _ = draw(23, 2)
    with pytest.raises(ValueError, match=r"labels of the logistic loss must be -1 or \+1; got"):
        DampedNewton().predict(p)


# Rates

ISOTROPIC = [  # Fu et al. 2024 compare these; median steps to a relative error of 1e-2, 1e-4, 1e-8 at d = 20, n = 40
    (GradientDescent(), (21, 62, 163)),
    (GradientDescent(eta="2/(lmax+lmin)"), (13, 38, 91)),
    (GradientDescent(eta=0.01, gradient="sum"), (20, 59, 153)),
    (HeavyBall(), (8, 15, 27)),
    (Nesterov(), (8, 19, 41)),
    (ConjugateGradient(), (6, 10, 16)),
    (BFGS(), (6, 10, 16)),
    (BFGS(search="unit"), (8, 16, 29)),
    (LBFGS(memory=5), (6, 10, 16)),
    (LBFGS(memory=10, search="unit"), (6, 11, 20)),
    (Newton(scale="frobenius"), (10, 12, 13)),
    (Newton(), (9, 11, 12)),
    (Newton(order=3), (6, 7, 8)),
    (Newton(order=4), (5, 6, 6)),
    (Newton(order=5), (4, 5, 6)),
    (Newton(order=10), (3, 4, 4)),
    (Newton(start="I"), (5, 6, 8)),
    (Newton(start="I", order=3), (3, 4, 5)),
    (Newton(start="I", scale="optimal"), (4, 6, 7)),
]
SKEW = [
    (ConjugateGradient(), (7, 14, 22)),
    (BFGS(), (7, 14, 19)),
    (BFGS(search="unit"), (12, 43, 82)),
    (LBFGS(memory=5), (7, 14, 23)),
    (LBFGS(memory=10, search="unit"), (9, 32, 88)),
    (Newton(scale="frobenius"), (14, 21, 24)),
    (Newton(), (14, 21, 23)),
    (Newton(order=3), (9, 13, 15)),
    (Newton(order=4), (7, 11, 12)),
    (Newton(order=5), (6, 9, 10)),
    (Newton(order=10), (4, 7, 7)),
    (Newton(start="I"), (6, 11, 13)),
    (Newton(start="I", order=3), (4, 7, 8)),
    (Newton(start="I", scale="optimal"), (9, 11, 13)),
]
# The first entry of the second row has a very broad distribution: 427 to 445 over five draws of 4096 problems.
SLOW = [
    (GradientDescent(), (38, 1370, 5888)),
    (GradientDescent(eta="2/(lmax+lmin)"), (430, 1721, 4237)),
    (HeavyBall(), (101, 144, 227)),
    (Nesterov(), (13, 86, 252)),
]


def assert_medians(solver, wanted, problem):
    got = steps_to(solver, problem)
    close = [abs(a - b) <= max(1, 0.05 * b) for a, b in zip(got, wanted, strict=True)]
    assert all(close), f"{solver}: {got}, expected {wanted}"


@pytest.mark.parametrize(("solver", "wanted"), ISOTROPIC, ids=lambda v: repr(v) if not isinstance(v, tuple) else "")
def test_median_steps_on_isotropic_problems(solver, wanted):
    assert_medians(solver, wanted, draw(30, 1024))


@pytest.mark.parametrize(("solver", "wanted"), SKEW, ids=lambda v: repr(v) if not isinstance(v, tuple) else "")
def test_median_steps_on_ill_conditioned_problems(solver, wanted):
    assert_medians(solver, wanted, draw(31, 1024, skew=True))


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "wanted"), SLOW, ids=lambda v: repr(v) if not isinstance(v, tuple) else "")
def test_median_steps_of_gradient_methods_on_ill_conditioned_problems(solver, wanted):
    assert_medians(solver, wanted, draw(32, 4096, skew=True))


def spectrum(kappa: float, d: int = 20) -> Prompt:
    """One noiseless problem whose X'X has half of its eigenvalues at 1 and half at 1/kappa, and equal weights."""
    values = torch.where(torch.arange(d) < d // 2, 1.0, 1 / kappa).double()
    x = torch.diag(values.sqrt())[None]
    return Prompt(x, x.sum(2, keepdim=True), x[:, :0])


def steps_on(solver, p, eps, cap) -> int:
    for t, s in enumerate(solver.states(p, cap)):
        if float((s.w - 1).square().mean()) < eps:
            return t
    raise AssertionError(f"{solver} needs more than {cap} steps")


def test_gradient_descent_needs_kappa_log_eps_and_newton_log_kappa_plus_log_log_eps():
    for kappa in (10, 100, 1000):
        p = spectrum(kappa)
        assert steps_on(GradientDescent(), p, 1e-8, 20_000) / kappa == pytest.approx(8.86, rel=0.05)
        for start, log in (("S", 2 * math.log2(kappa)), ("I", math.log2(kappa))):
            assert 3.0 <= steps_on(Newton(start=start), p, 1e-8, 99) - log <= 4.2
    p = spectrum(100)
    assert [steps_on(GradientDescent(), p, eps, 9999) for eps in (1e-4, 1e-8, 1e-12, 1e-16)] == [424, 882, 1341, 1799]
    assert [steps_on(Newton(), p, eps, 99) for eps in (1e-2, 1e-4, 1e-8, 1e-12, 1e-16)] == [15, 16, 17, 18, 18]


@pytest.mark.parametrize("order", [2, 3, 4, 5, 8])
def test_newton_of_order_p_converges_at_order_p(order):
    p = spectrum(7)
    errors = [float((s.w - 1).norm()) for s in Newton(order=order, steps=20).states(p)]
    small = [(a, b) for a, b in itertools.pairwise(errors) if a < 2 and b > 1e-14]
    assert small
    for a, b in small:
        # one direction is left: its residual is taken to the power p
        root = math.sqrt(10)
        assert math.log(b / root) / math.log(a / root) == pytest.approx(order, rel=1e-3)


@pytest.mark.parametrize("eta", ["1/lmax", "2/(lmax+lmin)", 0.004])
@pytest.mark.parametrize("gradient", ["mean", "sum"])
@pytest.mark.parametrize("n", [0, 3, 12])
def test_descent_along_singular_vectors_is_descent_at_every_step(eta, gradient, n):
    p, _, _ = draw(41, 5, d=6, n=n, k=2, noise=0.3)
    plain = GradientDescent(eta=eta, gradient=gradient, steps=60)
    quick = GradientDescent(eta=eta, gradient=gradient, steps=60, form="spectral")
    torch.testing.assert_close(quick.trace(p), plain.trace(p), rtol=1e-9, atol=1e-11)
    dense = Dense(torch.cat([p.x, p.queries], 1), torch.ones(5, n + p.queries.shape[1], 1, dtype=p.x.dtype))
    torch.testing.assert_close(quick.trace(dense), plain.trace(dense), rtol=1e-9, atol=1e-11)


def test_thousands_of_spectral_steps_are_the_closed_form():
    p, _, _ = draw(42, 3, d=5, n=9)
    got = list(GradientDescent(eta=0.003, gradient="sum", form="spectral").states(p, 3000))[-1].w
    for x, y, w in zip(p.x.numpy(), p.y.numpy(), got.numpy(), strict=True):
        values, v = np.linalg.eigh(x.T @ x)
        wanted = v @ np.diag((1 - (1 - 0.003 * values) ** 3000) / values) @ v.T @ x.T @ y
        np.testing.assert_allclose(w, wanted, rtol=1e-9, atol=1e-11)


# Gradient descent on a network, against autograd


@pytest.mark.parametrize(("unit", "sigma"), [("relu", torch.relu), ("tanh", torch.tanh)])
def test_descent_on_a_network_is_autograds(unit, sigma):
    p, _, _ = draw(40, 3, d=4, n=9, k=2, noise=0.5)
    solver = solvers.NetworkGradientDescent(hidden=5, unit=unit, eta=0.05, steps=12, seed=3)
    trace = solver.trace(p)
    for b in range(3):
        W = torch.randn(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64) / 2
        v = torch.zeros(5, 2, dtype=torch.float64)
        for t in range(13):
            torch.testing.assert_close(trace[t, b], sigma(p.queries[b] @ W) @ v, rtol=1e-10, atol=1e-12)
            W, v = (u.detach().requires_grad_() for u in (W, v))
            loss = (sigma(p.x[b] @ W) @ v - p.y[b]).square().sum() / (2 * p.x.shape[1])
            loss.backward()
            W, v = (u.detach() - 0.05 * u.grad for u in (W, v))


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GradientDescent(steps=-1), "steps must be at least 0; got -1"),
        (lambda: GradientDescent(steps=1.5), "steps must be an integer; got 1.5"),
        (lambda: GradientDescent(eta=0.0), "eta must be above 0; got 0"),
        (lambda: GradientDescent(eta=float("nan")), "eta must be finite and above 0; got nan"),
        (lambda: GradientDescent(eta="1/L"), "eta must be one of '1/lmax', '2/\\(lmax\\+lmin\\)'; got '1/L'"),
        (lambda: GradientDescent(gradient="median"), "gradient must be one of 'mean', 'sum'; got 'median'"),
        (lambda: GradientDescent(form="fast"), "form must be one of 'iterated', 'spectral'; got 'fast'"),
        (lambda: HeavyBall(momentum=-0.1), "momentum must be at least 0; got -0.1"),
        (lambda: Newton(order=1), "order must be at least 2; got 1"),
        (lambda: Newton(order=11), "order must be from 2 to 10; got 11"),
        (lambda: Newton(scale="slides"), "scale must be one of 'frobenius', 'spectral', 'optimal'; got 'slides'"),
        (lambda: Newton(scale=-1.0), "scale must be above 0; got -1"),
        (lambda: Newton(start="A"), "start must be one of 'S', 'I'; got 'A'"),
        (lambda: Newton(form="fast"), "form must be one of"),
        (lambda: Newton(ridge=-1.0), "ridge must be at least 0; got -1"),
        (lambda: solvers.Ridge(strength=0.0), "strength must be above 0; got 0"),
        (lambda: solvers.NearestNeighbours(neighbours=0), "neighbours must be at least 1; got 0"),
        (lambda: LBFGS(memory=0), "memory must be at least 1; got 0"),
        (lambda: BFGS(search="wolfe"), "search must be one of 'exact', 'unit'; got 'wolfe'"),
        (lambda: DampedNewton(mu=0.0), "mu must be above 0; got 0"),
        (
            lambda: solvers.GradientDescentPlusPlus(eta=(0.1,), gamma=()),
            "gamma must be as long as eta, 1 numbers; got 0",
        ),
        (lambda: solvers.PreconditionedGradientDescent(preconditioner=2.0), "preconditioner must be a"),
        (lambda: solvers.OnlineGradientDescent(eta="fast"), "eta must be one of 'kaczmarz'; got 'fast'"),
        (lambda: solvers.NetworkGradientDescent(hidden=0), "hidden must be at least 1; got 0"),
        (lambda: solvers.NetworkGradientDescent(unit="gelu"), "unit must be one of 'relu', 'tanh'; got 'gelu'"),
        (lambda: solvers.Windows(q=0), "q must be at least 1; got 0"),
    ],
)
def test_bad_options_say_what_must_be_and_what_came(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_preconditioner_of_another_size_is_refused():
    p, _, _ = draw(33, 2, d=4)
    with pytest.raises(ValueError, match=r"preconditioner must be \(d, d\) = \(4, 4\); got \(3, 3\)"):
        solvers.PreconditionedGradientDescent(preconditioner=torch.eye(3)).predict(p)


def test_divergence_is_a_result_in_the_trace_and_an_error_in_predict():
    p, _, _ = draw(34, 3)
    solver = GradientDescent(eta=1e9, steps=60)
    assert not bool(solver.trace(p).isfinite().all())
    with pytest.raises(
        Diverged, match=r"GradientDescent is not finite from step \d+ on, for prompts \[0, 1, 2\]"
    ) as caught:
        solver.predict(p)
    assert str(copy.copy(caught.value)) == str(caught.value)
    assert not bool(solver.trace(p)[caught.value.step].isfinite().all())
    assert bool(solver.trace(p)[caught.value.step - 1].isfinite().all())


def test_the_layers_of_a_closed_form_are_none():
    p, _, _ = draw(35, 2)
    with pytest.raises(ValueError, match="LeastSquares has 0 steps; got steps = 1"):
        solvers.LeastSquares().trace(p, 1)
    assert len(solvers.LeastSquares().trace(p)) == 1


@pytest.mark.parametrize("solver", [solvers.LeastSquares(), Newton(), GradientDescent(form="spectral")], ids=repr)
def test_a_dense_prompt_has_the_gradient_of_its_prefixes_by_the_labels(solver):
    p, _, _ = draw(5, 2, d=3, n=7, noise=0.1)

    def gradient(answer):
        y = p.y.clone().requires_grad_()
        (found,) = torch.autograd.grad(answer(Dense(p.x, y)).square().sum(), y)
        return found

    wanted = gradient(lambda dense: torch.cat([solver.predict(dense.prefix(i)) for i in range(7)], 1))
    torch.testing.assert_close(gradient(solver.predict), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("solver", [Newton(), GradientDescent(form="spectral")], ids=repr)
def test_a_form_without_a_derivative_refuses_inputs_with_a_gradient_where_one_is_asked(solver):
    p, _, _ = draw(5, 2, d=3, n=7)
    followed = Prompt(p.x.clone().requires_grad_(), p.y, p.queries)
    with pytest.raises(ValueError, match=r"must get an x without gradient, of which it has none; form=\"\w+\" has one"):
        solver.predict(followed)
    with torch.no_grad():
        torch.testing.assert_close(solver.predict(followed), solver.predict(p), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", [solvers.ConjugateGradient(steps=30), solvers.LBFGS(steps=30)], ids=repr)
def test_a_feature_in_another_unit_is_not_taken_for_rounding(solver, dtype):
    """Without labels' noise at a condition number of eps^-1/2: the weights that made the labels."""
    small = torch.finfo(dtype).eps ** 0.5
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 40, 3, generator=g, dtype=dtype) * torch.tensor([1.0, 1.0, small], dtype=dtype)
    w = solver.predict(Prompt(x, x @ torch.ones(3, 1, dtype=dtype), torch.eye(3, dtype=dtype).expand(64, 3, 3)))
    assert float((w - 1).abs().amax((1, 2)).median()) < 1e-3


@pytest.mark.parametrize(("condition", "unsolved"), [(50, False), (500, True)])
def test_bfgs_leaves_directions_unsolved_in_float32_from_a_condition_number_of_x_of_500_on(condition, unsolved):
    g = torch.Generator().manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(64, 40, 20, generator=g, dtype=torch.float64), full_matrices=False)
    x = (u * torch.logspace(0, -np.log10(condition), 20, dtype=torch.float64)) @ v
    w = torch.randn(64, 20, 1, generator=g, dtype=torch.float64)
    last = v[:, -1:]  # the direction of the smallest singular value
    p = Prompt(x.float(), (x @ w).float(), last.float())
    off = {
        type(solver): float(((solver.predict(p).double() - last @ w).abs() / (last @ w).abs()).median())
        for solver in (BFGS(steps=400), ConjugateGradient(steps=400))
    }
    assert (off[BFGS] > 0.1) == unsolved and (off[BFGS] < 1e-3) != unsolved
    assert off[ConjugateGradient] < 1e-4


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize(("mu", "scale"), [(0.1, 1e-4), (0.1, 1e-8), (1e4, 1.0), (1e12, 1.0)])
def test_damped_newton_keeps_its_digits_where_the_penalty_outweighs_the_curvature(dtype, most, mu, scale):
    p, _, _ = draw(2, 8, d=4, n=30)
    x, y = p.x * scale, (torch.rand(8, 30, 1, generator=torch.Generator().manual_seed(0)).double() < 0.5) * 2.0 - 1
    found = solvers.DampedNewton(mu=mu, damping="none", steps=6)
    w = list(found.states(Prompt(x.to(dtype), y.to(dtype), x.to(dtype))))[-1].w.double()
    for a, b, got in zip(x.numpy(), y.numpy(), w.numpy(), strict=True):
        wanted = np.zeros((4, 1))
        for _ in range(200):  # a contraction where mu is most of the curvature
            wanted = a.T @ (b / (1 + np.exp(b * (a @ wanted)))) / (30 * mu)
        assert np.abs(got - wanted).max() <= most * np.abs(wanted).max()


@pytest.mark.parametrize("scale", [1e155, 1e-160])
def test_a_dense_prompt_is_answered_at_any_scale(scale):
    p, _, _ = draw(4, 2, d=3, n=8, noise=0.1)
    for solver in (solvers.LeastSquares(), Newton()):
        torch.testing.assert_close(solver.predict(Dense(scale * p.x, p.y)), solver.predict(Dense(p.x, p.y)))


def test_a_ridge_below_the_least_number_is_that_number_and_one_above_the_largest_is_refused():
    p = draw(1, 1)[0].to(dtype=torch.float32)
    nothing = Prompt(p.x[:, :0], p.y[:, :0], p.queries)
    for x in (nothing.x, nothing.x.clone().requires_grad_()):
        assert bool(solvers.Ridge(strength=1e-100).predict(Prompt(x, nothing.y, p.queries)).eq(0).all())
    assert bool(solvers.DampedNewton(mu=1e-100, damping="backtracking").predict(nothing).eq(0).all())
    for solver in (solvers.Ridge(strength=1e80), Newton(ridge=1e80)):
        with pytest.raises(ValueError, match=r"a ridge in torch.float32 must be at most 3.4e\+38 squared; got 1e\+80"):
            solver.predict(p)
