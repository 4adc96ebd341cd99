"""Solvers at the ends of what can be asked: large and small numbers, a vanishing ridge, inputs that are all 0."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from algoformer import Dense, Prompt, solvers
from algoformer.solvers import BFGS, LBFGS, ConjugateGradient, DampedNewton, HeavyBall, Nesterov, Newton
from problems import draw

KRYLOV = [
    ConjugateGradient(),
    BFGS(),
    LBFGS(),
    BFGS(search="unit", steps=60),
    LBFGS(search="unit", steps=60),
]
NEWTON = [
    Newton(form=form, start=start, scale=scale, steps=40)
    for form in ("spectral", "stream")
    for start in ("S", "I")
    for scale in ("frobenius", "spectral", "optimal")
]
# It iterates on X'X and its inverse, which must have room themselves.
TEXTBOOK = [Newton(form="textbook", start="S", scale=scale, steps=40) for scale in ("frobenius", "spectral", "optimal")]
SINGLE, DOUBLE = torch.float32, torch.float64


def problem(dtype: torch.dtype) -> tuple[Prompt, torch.Tensor]:
    """Two problems of ordinary size, and the answers of numpy in double precision."""
    p = draw(50, 2, d=4, n=30, k=2, noise=0.1)[0].to(dtype=dtype)
    answers = [
        torch.from_numpy(q @ np.linalg.lstsq(x, y)[0])
        for x, y, q in zip(*(v.double().numpy() for v in (p.x, p.y, p.queries)), strict=True)
    ]
    return p, torch.stack(answers)


def assert_near(got: torch.Tensor, wanted: torch.Tensor, eps: float) -> None:
    apart = ((got.double() - wanted).abs().amax((0, 1)) / wanted.abs().amax((0, 1))).max()
    assert apart < 100 * eps, f"{apart / eps:.1e} units of rounding"


# Scale


@pytest.mark.parametrize(
    ("solver", "dtype", "size"),
    [
        *itertools.product(KRYLOV + NEWTON, [SINGLE], [1e-30, 1e-20, 1e-12, 1e-8, 3e3, 1e5, 1e12, 1e30]),
        *itertools.product(KRYLOV + NEWTON, [DOUBLE], [1e-250, 1e-80, 1e80, 1e250]),
        *itertools.product(TEXTBOOK, [SINGLE], [1e-12, 1e12]),
        *itertools.product(TEXTBOOK, [DOUBLE], [1e-80, 1e80]),
    ],
    ids=str,
)
def test_least_squares_is_solved_at_every_scale(solver, dtype, size):
    p, wanted = problem(dtype)
    got = solver.predict(Prompt(size * p.x, size * p.y, p.queries))
    assert_near(got, wanted, torch.finfo(dtype).eps)


@pytest.mark.parametrize("solver", KRYLOV + NEWTON, ids=str)
def test_inputs_and_every_label_have_scales_of_their_own(solver):
    p, wanted = problem(SINGLE)
    labels = torch.tensor([1e12, 1e-25])
    got = solver.predict(Prompt(1e10 * p.x, labels * p.y, 1e10 * p.queries))
    assert_near(got, labels * wanted, torch.finfo(SINGLE).eps)


@pytest.mark.parametrize("size", [1e-15, 1e15])
@pytest.mark.parametrize("scale", ["frobenius", "spectral", "optimal"])
def test_newton_on_every_prefix_has_no_scale_either(scale, size):
    p, _ = problem(SINGLE)
    solver = Newton(start="I", scale=scale, steps=60)
    got = solver.predict(Dense(size * p.x, p.y))[:, 6:]
    wanted = [
        [a[i] @ np.linalg.lstsq(a[:i], b[:i])[0] for i in range(6, 30)]
        for a, b in zip(p.x.double().numpy(), p.y.double().numpy(), strict=True)
    ]
    assert_near(got, torch.tensor(np.array(wanted)), torch.finfo(SINGLE).eps)


@pytest.mark.parametrize("solver", KRYLOV, ids=str)
def test_another_unit_changes_no_bit_of_a_krylov_iterate(solver):
    p, _ = problem(SINGLE)
    other = Prompt(2.0**40 * p.x, 2.0**-50 * p.y, p.queries)
    for s, t in zip(solver.states(p), solver.states(other), strict=True):
        assert torch.equal(s.w, 2.0**90 * t.w)


@pytest.mark.parametrize("size", [1e-5, 1.0, 1e5])
def test_what_a_krylov_state_gives_has_the_units_of_the_prompt(size):
    p, _ = problem(DOUBLE)
    p = Prompt(torch.stack([size * p.x[0], p.x[1]]), torch.tensor([size**2, 3.0]) * p.y, p.queries)
    x, y = p.x.numpy(), p.y.numpy()
    xt, largest = x.swapaxes(1, 2), np.abs(y).max(1, keepdims=True)
    for s in ConjugateGradient(steps=3).states(p):
        rest = y - x @ s.w.numpy()
        np.testing.assert_allclose(s.r.numpy() / largest, rest / largest, atol=1e-13)
        # a direction is the gradient and what is orthogonal to it
        np.testing.assert_allclose((s.v.numpy() * (xt @ rest)).sum(1), ((xt @ rest) ** 2).sum(1), rtol=1e-9)
    for solver in (BFGS(steps=2), LBFGS(steps=2)):
        for s in solver.states(p):
            np.testing.assert_allclose(s.g.numpy(), xt @ (x @ s.w.numpy() - y), rtol=1e-10)
    last = [*BFGS(steps=4).states(p)][-1].h.numpy()  # after d exact steps H is the inverse
    np.testing.assert_allclose(last, np.linalg.inv(xt @ x)[:, None].repeat(2, 1), rtol=1e-8)


@pytest.mark.parametrize("form", ["spectral", "stream", "textbook"])
@pytest.mark.parametrize("start", ["S", "I"])
@pytest.mark.parametrize("size", [2.0**-40, 1.0, 2.0**40])
def test_a_given_scale_keeps_its_meaning(form, start, size):
    p, _ = problem(SINGLE)
    u, s, vt = torch.linalg.svd(p.x[:1].double(), full_matrices=False)
    power = 4 if start == "S" else 2
    c = 1.3 / float(s[0, 0]) ** power
    solver = Newton(form=form, start=start, scale=c / size**power, steps=6)
    q = Prompt(size * p.x[:1], size * p.y[:1], p.queries[:1])
    for t, state in enumerate(solver.states(q)):
        solved = 1 - (1 - c * s**power) ** 2**t
        wanted = vt.mT @ ((solved / s)[..., None] * (u.mT @ p.y[:1].double()))
        assert_near(state.w, wanted, torch.finfo(SINGLE).eps)
        if form == "stream":  # U = M X' has the unit of 1/X
            assert_near(size * state.u.double(), vt.mT @ ((solved / s)[..., None] * u.mT), torch.finfo(SINGLE).eps)
    with pytest.raises(ValueError, match=r"scale must be below 2/lmax\(A\).* = .*; got"):
        Newton(form=form, start=start, scale=2 / 1.3 * solver.scale).predict(q)


@pytest.mark.parametrize("start", ["S", "I"])
def test_the_optimal_scale_of_a_stream_is_not_taken_from_rounding_noise(start):
    p, _ = problem(DOUBLE)
    p = Prompt(torch.cat([p.x, p.x @ torch.ones(4, 1, dtype=DOUBLE)], 2), p.y, p.x.new_ones(2, 1, 5))
    s = np.linalg.svd(p.x[0].numpy(), compute_uv=False)[:4]
    power = 4 if start == "S" else 2
    c = 2 / (s[0] ** power + s[3] ** power)
    given, found = (Newton(form="stream", start=start, scale=v, steps=5).predict(p[:1]) for v in (c, "optimal"))
    torch.testing.assert_close(found, given, rtol=0, atol=1e-11)


# Rank where most pairs are unseen


def thin() -> tuple[Prompt, Prompt]:
    """A problem whose rank shows, in single precision, at 12 pairs and not at 1024; and the same with 1012 unseen."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1, 12, 4, generator=g) * torch.tensor([1.0, 1.0, 1.0, 1e-4])
    y, queries = x.sum(-1, keepdim=True), torch.eye(4)[None]
    far = (torch.cat([v, torch.randn(1, 1012, v.shape[2], generator=g)], 1) for v in (x, y))
    return Prompt(x, y, queries), Prompt(*far, queries, torch.arange(1024)[None] < 12)


@pytest.mark.parametrize("solver", [solvers.LeastSquares(), Newton(start="I", steps=60)], ids=str)
def test_a_thousand_unseen_pairs_do_not_lower_the_rank(solver):
    for p in thin():
        np.testing.assert_allclose(solver.predict(p)[0].numpy(), np.ones((4, 1)), rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    "solver",
    [
        HeavyBall(),
        Nesterov(),
        solvers.GradientDescent(eta="2/(lmax+lmin)"),
        solvers.GradientDescent(eta="2/(lmax+lmin)", form="spectral"),
        *(Newton(scale="optimal", start="I", form=form, steps=3) for form in ("spectral", "stream")),
    ],
    ids=str,
)
def test_the_least_eigenvalue_of_a_rule_does_not_mind_unseen_pairs(solver):
    p, far = thin()
    torch.testing.assert_close(solver.predict(far), solver.predict(p), rtol=1e-3, atol=1e-6)


# Least squares with much ridge


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 10.0, 1e3, 1e8, 1e14, 1e30])
def test_a_ridge_of_any_size_keeps_its_digits_in_single_precision(ridge):
    p, _ = problem(SINGLE)
    x, y, q = (v.double().numpy() for v in (p.x, p.y, p.queries))
    wanted = torch.from_numpy(q @ np.linalg.solve(x.swapaxes(1, 2) @ x + ridge * np.eye(4), x.swapaxes(1, 2) @ y))
    for solver in (solvers.Ridge(strength=ridge), *(Newton(ridge=ridge, start=s, steps=40) for s in ("S", "I"))):
        assert_near(solver.predict(p), wanted, torch.finfo(SINGLE).eps)
    dense = Newton(ridge=ridge, start="I", steps=40).predict(Dense(p.x, p.y))[:, -1]
    last = Prompt(p.x[:, :-1], p.y[:, :-1], p.x[:, -1:])
    assert_near(dense[:, None], solvers.Ridge(strength=ridge).predict(last.to(dtype=DOUBLE)), torch.finfo(SINGLE).eps)


@pytest.mark.parametrize("ridge", [1e-6, 10.0, 1e8, 1e14])
def test_the_derivative_of_a_ridge_of_any_size_keeps_its_digits_too(ridge):
    p, _ = problem(SINGLE)

    def derivative(answer, dtype):
        x, y = (v.to(dtype, copy=True).requires_grad_() for v in (p.x, p.y))
        return torch.autograd.grad(answer(x, y).square().sum(), (x, y))

    def closed(x, y):
        return p.queries.double() @ torch.linalg.solve(x.mT @ x + ridge * torch.eye(4, dtype=DOUBLE), x.mT @ y)

    ours = derivative(lambda x, y: solvers.Ridge(strength=ridge).predict(Prompt(x, y, p.queries)), SINGLE)
    for got, wanted in zip(ours, derivative(closed, DOUBLE), strict=True):
        assert_near(got, wanted, torch.finfo(SINGLE).eps)


@pytest.mark.parametrize("form", ["stream", "textbook"])
def test_a_refused_scale_is_an_error_and_no_warning_where_inputs_have_a_gradient(form):
    p, _ = problem(SINGLE)
    with pytest.raises(ValueError, match="scale must be below"):
        Newton(scale=1e3, form=form).predict(Prompt(p.x.clone().requires_grad_(), p.y, p.queries))


# Logistic regression with little ridge


def few(dtype: torch.dtype, size: float) -> Prompt:
    """Fewer examples than features: without the ridge the Hessian is singular."""
    x = size * torch.randn(1, 3, 6, generator=torch.Generator().manual_seed(0))
    return Prompt(x, torch.tensor([[[1.0], [-1.0], [1.0]]]), x).to(dtype=dtype)


@pytest.mark.parametrize(("mu", "size"), [(1e-8, 1.0), (1e-4, 100.0), (1e-8, 100.0)])
@pytest.mark.parametrize("damping", ["backtracking", "none"])
def test_damped_newton_reaches_scikit_learns_optimum_where_mu_is_below_rounding(mu, size, damping):
    p = few(SINGLE, size)
    x, y = p.x[0].double().numpy(), p.y[0, :, 0].numpy()
    model = LogisticRegression(C=1 / (3 * mu), fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=500)
    got = DampedNewton(mu=mu, steps=60, damping=damping).predict(p)
    np.testing.assert_allclose(got[0, :, 0].numpy(), model.fit(x, y).decision_function(x), rtol=1e-5)


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_the_damped_step_is_that_of_least_squares_on_rows_where_mu_is_below_rounding(size):
    mu, p = 1e-18, few(DOUBLE, size)
    x, y, w = p.x[0].numpy(), p.y[0, :, 0].numpy(), np.zeros(6)
    for s in DampedNewton(mu=mu, steps=20).states(p):
        np.testing.assert_allclose(x @ s.w[0, :, 0].numpy(), x @ w, rtol=1e-6, atol=1e-20)
        m = x @ w
        root = 1 / (2 * np.cosh(m / 2) * np.sqrt(3))
        # the gradient is rows' (..), so the Newton step is the least-squares solution with that label
        rows = np.vstack([root[:, None] * x, np.sqrt(mu) * np.eye(6)])
        label = np.concatenate([-y / (1 + np.exp(y * m)) / 3 / root, np.sqrt(mu) * w])
        change = np.linalg.lstsq(rows, label, rcond=None)[0]
        w = w - 2 * np.sqrt(mu) / (2 * np.sqrt(mu) + np.linalg.norm(rows @ change)) * change


@pytest.mark.parametrize(
    ("mu", "size", "far"), [(1e-6, 10.0, 0.0), (1e-4, 1.0, 3.0), (1e-4, 100.0, 1.0), (0.1, 1.0, 60.0)]
)
def test_newtons_step_in_single_precision_is_numpys_in_double_and_each_prompts_own(mu, size, far):
    g = torch.Generator().manual_seed(12)
    x = size * torch.randn(40, 3, 6, generator=g)
    y, w = torch.randn(40, 3, 1, generator=g).sign(), x.mT @ torch.randn(40, 3, 1, generator=g) * far / size**2
    p, solver = Prompt(x, y, x), DampedNewton(mu=mu, damping="none")
    after = solver.step(p, solver.init(p)._replace(w=w), 0).w
    a, b, v = (u.double().numpy() for u in (x, y, w))
    m = a @ v
    slope = mu * v - a.swapaxes(1, 2) @ (b * expit(-b * m)) / 3
    hessian = a.swapaxes(1, 2) @ (a * expit(m) * expit(-m)) / 3 + mu * np.eye(6)
    wanted = v - np.linalg.solve(hessian, slope)
    apart = np.linalg.norm(after.numpy() - wanted, axis=1) / np.linalg.norm(v - wanted, axis=1)
    assert apart.max() < 1e-4, f"{apart.max():.1e}"
    for i in range(40):
        one = p[i : i + 1]
        assert torch.equal(solver.step(one, solver.init(one)._replace(w=w[i : i + 1]), 0).w, after[i : i + 1])


def test_backtracking_stays_where_no_step_lowers_the_loss():
    mu, p = 1e-18, few(SINGLE, 100.0)  # so little that single precision finds no direction
    x, y = p.x.double(), p.y.double()
    losses = [
        float(torch.nn.functional.softplus(-y * (x @ s.w.double())).mean() + mu / 2 * s.w.double().square().sum())
        for s in DampedNewton(mu=mu, steps=30, damping="backtracking").states(p)
    ]
    assert all(b <= a * (1 + 1e-5) for a, b in itertools.pairwise(losses)), losses


def test_damped_newton_has_a_gradient_where_mu_is_below_rounding():
    found = []
    for dtype in (SINGLE, DOUBLE):
        p = few(dtype, 1.0)
        x = p.x.clone().requires_grad_()
        answer = DampedNewton(mu=1e-8, steps=40, damping="backtracking").predict(Prompt(x, p.y, p.queries))
        found.append(torch.autograd.grad(answer.sum(), x)[0].double())
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


# Preconditioners


@pytest.mark.parametrize(
    ("rows", "came"),
    [
        ([[1.0, 50.0], [0.0, 1.0]], "one that is up to 50 from its transpose"),
        ([[1.0, 2.0], [2.0, 1.0]], "one with the eigenvalue -1"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], r"\(2, 3\)"),
    ],
)
@pytest.mark.parametrize("eta", ["1/lmax", "2/(lmax+lmin)"])
def test_a_rate_by_rule_wants_a_symmetric_positive_definite_preconditioner(rows, came, eta):
    with pytest.raises(ValueError, match=rf"must be symmetric and positive definite for eta = .*; got {came}"):
        solvers.PreconditionedGradientDescent(preconditioner=torch.tensor(rows), eta=eta)


def test_a_given_rate_takes_any_preconditioner():
    p, _, _ = draw(51, 1, d=2, n=9)
    P = torch.tensor([[1.0, 50.0], [0.0, -1.0]], dtype=DOUBLE)
    got = solvers.PreconditionedGradientDescent(preconditioner=P, eta=0.01, steps=1).predict(p)
    x, y = p.x[0].numpy(), p.y[0].numpy()
    np.testing.assert_allclose(got[0].numpy(), p.queries[0].numpy() @ (0.01 * P.numpy() @ x.T @ y / 9), rtol=1e-12)


# Gradients by inputs that are all 0


@pytest.mark.parametrize(
    "solver",
    [
        HeavyBall(),
        Nesterov(),
        HeavyBall(eta=0.1),
        Nesterov(momentum=0.5),
        ConjugateGradient(steps=3),
        BFGS(steps=3),
        LBFGS(steps=3),
        Newton(form="stream", scale="frobenius", steps=5),
        Newton(form="textbook", scale="frobenius", steps=5),
    ],
    ids=str,
)
def test_a_prompt_of_zeros_has_a_gradient_and_disturbs_no_other(solver):
    p, _ = problem(DOUBLE)

    def gradient(x):
        x = x.clone().requires_grad_()
        answer = solver.predict(Prompt(x, p.y[: len(x)], p.queries[: len(x)]))
        return torch.autograd.grad(answer.sum(), x)[0]

    both = gradient(torch.stack([p.x[0], torch.zeros_like(p.x[0])]))
    assert bool(both.isfinite().all()) and bool(both[0].any())
    torch.testing.assert_close(both[:1], gradient(p.x[:1]))


@pytest.mark.parametrize("solver", [HeavyBall(), Nesterov()], ids=str)
def test_inputs_of_zero_leave_momentum_methods_where_they_start(solver):
    x = torch.zeros(1, 6, 4, requires_grad=True)
    answer = solver.predict(Prompt(x, torch.ones(1, 6, 1), torch.ones(1, 1, 4)))
    assert not bool(answer.any()) and not bool(torch.autograd.grad(answer.sum(), x)[0].any())
