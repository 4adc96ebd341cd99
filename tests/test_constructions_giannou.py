"""Newton by linear attention and logistic regression, against recursions and optima of their own."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression as Optimum

from algoformer.constructions import Interpreter, compile, damped_newton, least_squares, matrix_inverse
from algoformer.prompt import Prompt
from algoformer.solvers import DampedNewton, Ridge
from algoformer.tasks import LogisticRegression

D, N, MU = 5, 26, 0.1


@pytest.mark.parametrize(("dtype", "one", "many"), [(torch.float64, 1e-14, 1e-12), (torch.float32, 1e-6, 1e-3)])
@pytest.mark.parametrize("kappa", [5.0, 100.0])
def test_the_inverse_of_any_matrix_follows_newtons_iteration(generator, dtype, one, many, kappa):
    d, b = 10, 16
    u, _, v = torch.linalg.svd(torch.randn(b, d, d, generator=generator, dtype=torch.float64))
    a = ((u * torch.logspace(0, -torch.tensor(kappa).log10().item(), d, dtype=torch.float64)) @ v).to(dtype)
    zeros = a.new_zeros(b, d, 1)
    program = matrix_inverse(d, alpha=0.9, steps=30)
    model = compile(program, masked=False, dtype=dtype)
    a = a.double()
    x, errors = 0.9 * a.mT, []
    with torch.no_grad():
        for state in model.states(Prompt(a.to(dtype), zeros, zeros.mT[:, :1].contiguous())):
            got = state.stream[..., program.stream.rows["x"]].mT.double()  # token j holds column j
            errors.append(float(((got - x).abs().amax((1, 2)) / x.abs().amax((1, 2))).max()))
            x = x @ (2 * torch.eye(d, dtype=torch.float64) - a @ x)
    assert errors[1] <= one
    assert max(errors) <= many
    if kappa == 5 and dtype == torch.float64:  # and it is the inverse
        assert torch.allclose(got @ a, torch.eye(d, dtype=torch.float64).expand(b, d, d), rtol=0, atol=1e-12)


def test_ridge_by_newton_ends_at_ridge_regression(generator):
    x = torch.randn(4, 30, 6, generator=generator, dtype=torch.float64)
    p = Prompt(x, torch.randn(4, 30, 1, generator=generator, dtype=torch.float64), x[:, :2].contiguous())
    with torch.no_grad():
        got = compile(least_squares(6, scale=1 / 120, steps=25, start="I", ridge=3.0), masked=False).predict(p)
    assert torch.allclose(got, Ridge(strength=3.0).predict(p), rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", ["S", "I"])
def test_ridge_by_newton_begins_at_a_multiple_of_its_matrix_or_of_the_identity(generator, start):
    x = torch.randn(1, 7, 3, generator=generator, dtype=torch.float64)
    p = Prompt(x, x[..., :1].contiguous(), x[:, :1].contiguous())
    program = least_squares(3, scale=0.25, steps=1, start=start, ridge=2.0)
    with torch.no_grad():
        first = compile(program, masked=False).init(p).stream[0, :3]
    eye = np.eye(3)
    s = x[0].numpy().T @ x[0].numpy() + 2.0 * eye
    for register, wanted in (("s", s), ("x", 0.25 * (s if start == "S" else eye))):
        np.testing.assert_allclose(first[:, program.stream.rows[register]], wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", [3, 5])
def test_an_order_p_step_raises_the_residual_to_the_power_p(generator, order):
    d = 4
    x = torch.randn(1, 9, d, generator=generator, dtype=torch.float64) / 6
    p = Prompt(x, x[..., :1].contiguous(), x[:, :1].contiguous())
    program = least_squares(d, scale=0.5, steps=1, order=order, start="I")
    s, eye = (x.mT @ x)[0], torch.eye(d, dtype=torch.float64)
    with torch.no_grad():
        before, after = (
            state.stream[0, :d, program.stream.rows["x"]].mT for state in compile(program, masked=False).states(p)
        )
    wanted = torch.linalg.matrix_power(eye - s @ before, order)
    assert torch.allclose(eye - s @ after, wanted, rtol=0, atol=1e-14)


@pytest.fixture(scope="module")
def margins():
    """Twenty problems with |a| <= 1; the queries are the unit vectors, so that an answer is w."""
    p = LogisticRegression(d=D, n=N, bounded=True).sample(20, torch.Generator().manual_seed(0), torch.float64).prompt
    return Prompt(p.x, p.y, torch.eye(D, dtype=torch.float64).expand(20, D, D).contiguous())


@pytest.fixture(scope="module")
def optimum(margins):
    """By scikit-learn: C = 1 / (n mu) is its name for mu."""
    found = []
    for x, y in zip(margins.x, margins.y, strict=True):
        model = Optimum(C=1 / (N * MU), fit_intercept=False, solver="newton-cholesky", tol=1e-14, max_iter=100)
        found.append(torch.as_tensor(model.fit(x.numpy(), y[:, 0].numpy()).coef_[0]))
    return torch.stack(found)


def steps_from(machine, p, w):
    """w after one step from a given w."""
    rows = machine.program.stream.rows["w"]
    state = machine.init(p)
    state.stream[:, :D, rows] = w[..., None]
    with torch.no_grad():
        return machine.step(p, state, 0).stream[:, :D, rows][..., 0]


def points(generator):
    w = torch.randn(20, D, generator=generator, dtype=torch.float64)
    return 3.72 * torch.rand(20, 1, generator=generator, dtype=torch.float64) * w / w.norm(dim=1, keepdim=True)


def test_the_interpreted_step_is_the_damped_newton_step(margins, generator):
    machine, solver = Interpreter(damped_newton(D, mu=MU, inner=7)), DampedNewton(mu=MU)
    assert float((machine.trace(margins, 12) - solver.trace(margins, 12)).abs().max()) <= 1e-13
    for _ in range(5):
        w = points(generator)
        wanted = solver.step(margins, solver.init(margins)._replace(w=w[..., None]), 0).w[..., 0]
        assert float((steps_from(machine, margins, w) - wanted).abs().max()) <= 1e-13


@pytest.mark.parametrize("mu", [0.1, 0.01, 0.001])
def test_the_inverse_takes_as_many_steps_as_its_ridge_needs(margins, mu):
    machine, solver = Interpreter(damped_newton(D, mu=mu)), DampedNewton(mu=mu)
    wanted = solver.trace(margins, 8)
    assert float((machine.trace(margins, 8) - wanted).abs().max() / wanted.abs().max()) <= 1e-11


@pytest.mark.parametrize("mu", [0.1, 0.03, 0.01])
def test_the_inverse_is_exact_at_the_end_of_the_spectrum_it_is_made_for(mu):
    """One feature of size 1, at w = 0: H is mu + 1/4, the farthest from X_0, and the step is by hand."""
    one = torch.ones(1, 2, 1, dtype=torch.float64)
    curvature = mu + 0.25
    size = 2 * mu**0.5 / (2 * mu**0.5 + (0.25 / curvature) ** 0.5)
    got = Interpreter(damped_newton(1, mu=mu, steps=1)).predict(Prompt(one, one, one[:, :1]))
    assert got.item() == pytest.approx(size * 0.5 / curvature, rel=1e-14)
    with pytest.raises(ValueError, match=r"was declared for \|a\| up to 1; got 1.1"):
        compile(damped_newton(1, mu=mu, steps=1, hinges=8)).predict(Prompt(1.1 * one, one, one[:, :1]))


HINGES = [(256, 5e-4, 2e-5), (1024, 2e-5, 1e-6), pytest.param(4096, 1e-6, 1e-7, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("hinges", "step", "floor"), HINGES)
def test_hinges_set_the_error_of_a_step_and_the_distance_to_the_optimum(
    margins, optimum, generator, hinges, step, floor
):
    model = compile(damped_newton(D, mu=MU, steps=12, hinges=hinges))
    machine = Interpreter(model.program)
    for _ in range(5):
        w = points(generator)
        error = (steps_from(model, margins, w) - steps_from(machine, margins, w)).norm(dim=1).max()
        assert float(error) <= step
    with torch.no_grad():
        assert float((model.predict(margins)[..., 0] - optimum).norm(dim=1).max()) <= floor
