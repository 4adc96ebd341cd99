"""The exact losses under ordinary optimisers."""

import torch

from algoformer.bench import theory
from algoformer.theory import layered_optimum, looped_optimum, matrix_layers, matrix_loops, symmetric_loops


def minimise(loss, start, iterations=500):
    """L-BFGS with strong Wolfe line search until the gradient is 1e-9."""
    theta = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [theta],
        max_iter=iterations,
        max_eval=4 * iterations,
        history_size=50,
        tolerance_grad=1e-9,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = loss(theta)
        value.backward()
        return value

    optimiser.step(closure)
    return theta.detach()


def symmetrise(A):
    return (A + A.mT) / 2


def test_three_layers_reach_the_optimum_from_random_starts():
    """Ahn et al. 2023, section 5.3: d = 5, n = 20, Sigma = U' diag(1, 1, 1/2, 1/4, 1)^2 U."""
    best = layered_optimum(5, 20, 3)
    steps = torch.tensor([float(a) for a in best.a], dtype=torch.float64)
    for seed in range(2):
        g = torch.Generator().manual_seed(seed)
        U, _ = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=g))
        C = symmetrise(U.T * torch.tensor([1, 1, 0.25, 0.0625, 1], dtype=torch.float64) @ U)
        start = torch.randn(3, 5, 5, dtype=torch.float64, generator=g)
        A = symmetrise(minimise(lambda A, C=C: matrix_layers(symmetrise(A), 20, C, symmetric=True), start))
        assert float(matrix_layers(A, 20, C)) - float(best.loss) < 1e-10
        whitened = A @ C  # similar to Sigma^1/2 A Sigma^1/2: a_l I in some order of the layers
        scales = whitened.diagonal(dim1=1, dim2=2).mean(1).sort().values
        assert (scales - steps).abs().max() < 1e-5
        assert (whitened - torch.eye(5) * whitened.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]).abs().max() < 1e-4


def test_a_symmetric_loop_reaches_the_scalar_optimum(generator):
    best = looped_optimum(3, 10, 3)
    A = minimise(
        lambda A: symmetric_loops(symmetrise(A), 10, 3),
        0.1 * torch.randn(3, 3, dtype=torch.float64, generator=generator),
    )
    assert float(symmetric_loops(symmetrise(A), 10, 3)) - float(best.loss) < 1e-10
    assert (symmetrise(A) - float(best.a) * torch.eye(3)).abs().max() < 1e-4


def test_without_symmetry_a_loop_falls_below_the_symmetric_optimum():
    """At d = 2, n = 20, ten loops reach 2.6831e-4 where symmetric ones stop at 1.1574e-3."""
    start = torch.tensor([[0.6, -0.39], [0.39, 0.6]], dtype=torch.float64)
    A = minimise(lambda A: matrix_loops(A, 20, 10), start)
    value = float(matrix_loops(A, 20, 10))
    assert abs(value / 2.6831438e-4 - 1) < 1e-6
    assert value < 0.25 * float(looped_optimum(2, 20, 10).loss)


def test_the_benchmark_runs_its_three_routes_and_the_exact_one_arrives(monkeypatch):
    result = theory.measure(steps=20)
    assert list(result["routes"]) == ["exact, L-BFGS", "literal prompts, Adam", "Rao-Blackwell, Adam"]
    assert result["routes"]["exact, L-BFGS"]["least gap"] < 1e-10
    monkeypatch.setattr(theory, "measure", lambda: result)
    optima, table = theory.run()
    assert [len(row) for row in optima.rows] == [len(optima.columns)] * 6
    assert [len(row) for row in table.rows] == [len(table.columns)] * 3
