"""Exact losses against each other, against rationals, against literal prompts, and against known values."""

from fractions import Fraction
from inspect import unwrap
from math import comb, prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algoformer.theory import (
    matrix_layers,
    matrix_loops,
    one_layer,
    one_layer_optimum,
    plane_layers,
    sampled,
    scalar_gdpp,
    scalar_layers,
    scalar_loops,
    symmetric_loops,
)

SIGMA = torch.diag(torch.tensor([1, 1, 0.25, 0.0625, 1], dtype=torch.float64))
EYE = torch.eye(5, dtype=torch.float64)
PLANE = torch.eye(2, dtype=torch.float64)


def randn(generator, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def covariance(generator, d):
    root = randn(generator, d, d)
    return root @ root.T + 0.3 * torch.eye(d, dtype=torch.float64)


def literal(A, n, C, B=None, *, samples, generator):
    """The squared error of the linear transformer itself on prompts drawn as in the papers, for (A_l, B_l) of (13)."""
    d = len(C)
    root = torch.linalg.cholesky(C)
    x = randn(generator, samples, n + 1, d) @ root.T
    w = torch.linalg.solve(root.T, randn(generator, samples, d, 1))
    y = x @ w
    asked = y[:, n].clone()
    y[:, n] = 0
    for i, a in enumerate(A):
        scores = x[:, :n] @ -a @ x.mT / n  # key token by query token; the query is no key
        moved = x if B is None or i >= len(B) else x + (scores.mT @ x[:, :n]) @ B[i].T
        x, y = moved, y + scores.mT @ y[:, :n]
    return (asked + y[:, n]).square().ravel()


def agrees(exact, drawn, errors=4.0):
    return abs(float(exact) - float(drawn.mean())) < errors * float(drawn.std()) / len(drawn) ** 0.5


@pytest.mark.parametrize(("loops", "value"), [(1, 2.361328125), (2, 1.743474), (4, 1.847707), (8, 180.1406517)])
def test_plain_gradient_descent_on_skewed_data_has_the_known_losses(loops, value):
    assert float(symmetric_loops(EYE, 20, loops, SIGMA)) == pytest.approx(value, rel=3e-6)


def test_best_plain_steps_are_the_known_ones():
    known = ((2, 0.86462283, 1.6406621358), (4, 0.81515142, 1.2025020191), (8, 0.69294579, 0.8625620560))
    for loops, a, loss in known:
        assert float(symmetric_loops(a * EYE, 20, loops, SIGMA)) == pytest.approx(loss, rel=1e-9)
        for side in (-1, 1):
            step = torch.tensor(a + side * 1e-8, dtype=torch.float64, requires_grad=True)
            (slope,) = torch.autograd.grad(symmetric_loops(step * EYE, 20, loops, SIGMA), step)
            assert side * float(slope) > 0


def test_floats_agree_with_rationals(generator):
    C, G = covariance(generator, 3), randn(generator, 3, 3, 3) * 0.3
    S = G[0] + G[0].T
    for n in (1, 2, 20):
        exact = matrix_layers(G.numpy(), n, C.numpy())
        assert isinstance(exact, Fraction)
        assert float(matrix_layers(G, n, C)) == pytest.approx(float(exact), rel=1e-12)
        assert float(symmetric_loops(S, n, 4, C)) == pytest.approx(
            float(symmetric_loops(S.numpy(), n, 4, C.numpy())), rel=1e-11
        )
        assert float(scalar_layers(G[0, 0], 3, n)) == pytest.approx(
            float(scalar_layers(G[0, 0].numpy(), 3, n)), rel=1e-13
        )
        b = randn(generator, 2)
        assert float(scalar_gdpp(G[0, 0], b, 3, n)) == pytest.approx(
            float(scalar_gdpp(G[0, 0].numpy(), b.numpy(), 3, n)), rel=1e-12
        )
        row, block = randn(generator, 4), randn(generator, 4, 3)
        exact_one = one_layer(row.numpy(), block.numpy(), C.numpy(), n)
        assert float(one_layer(row, block, C, n)) == pytest.approx(float(exact_one), rel=1e-12)


def test_rational_losses_of_one_model_written_in_many_ways_are_equal():
    a, C = [Fraction(1, 3), Fraction(2, 7), Fraction(-1, 2)], [[2, 1], [1, 3]]
    inverse = np.array([[3, -1], [-1, 2]], dtype=object) * Fraction(1, 5)
    for n in (1, 2, 10**40):
        loss = scalar_layers(a, 2, n)
        assert matrix_layers([inverse * v for v in a], n, C) == loss
        assert matrix_layers([inverse * v for v in a], n, C, symmetric=True) == loss
        assert scalar_gdpp(a, [0, 0, 0], 2, n) == loss
        shared = scalar_loops(a[0], 2, n, 3)
        assert matrix_loops(inverse * a[0], n, 3, C) == symmetric_loops(inverse * a[0], n, 3, C) == shared
        turned = [[Fraction(1, 2), Fraction(1, 3)], [Fraction(-1, 3), Fraction(1, 2)]]
        assert matrix_loops(turned, n, 3, C) == matrix_layers([turned] * 3, n, C)
        assert matrix_loops(turned, n, 0, C) == symmetric_loops(inverse * a[0], n, 0, C)


@pytest.mark.parametrize(("d", "n", "loops"), [(1, 1, 3), (2, 7, 4), (5, 3, 3), (10, 20, 2)])
def test_a_symmetric_matrix_of_rank_one_has_the_loss_found_by_hand_from_chi_squared_moments(d, n, loops):
    g = Fraction(3, 5)
    moments = [Fraction(prod(range(n, n + 2 * k, 2)), n**k) for k in range(2 * loops + 1)]  # of w ~ chi^2_n / n
    binomial = [comb(loops, k) * (-g) ** k for k in range(1, loops + 1)]  # (1 - g w)^L - 1 = sum_k binomial_k w^k
    pairs = [(i + j, a * b) for i, a in enumerate(binomial) for j, b in enumerate(binomial)]
    beside = sum(c * moments[k + 1] for k, c in pairs) * Fraction(d - 1, n)
    first = sum(comb(2 * loops, k) * (-g) ** k * m for k, m in enumerate(moments))
    G = np.diag([g, *[Fraction(0)] * (d - 1)])
    assert symmetric_loops(G, n, loops) == d - 1 + beside + first


@given(st.fractions(0, 2, max_denominator=50))
@settings(max_examples=15)
def test_the_loss_of_two_loops_bends_down_along_a_symmetric_direction_as_found_by_hand(g):
    low, middle, high = (symmetric_loops(np.diag([v, *[Fraction(0)] * 9]), 20, 2) for v in (g - 1, g, g + 1))
    second = Fraction("16.8") - Fraction("43.56") * g + Fraction("27.72") * g**2
    fourth = 2 * Fraction("27.72")
    assert low + high - 2 * middle == second + fourth / 12


def test_numbers_of_numpy_do_not_overflow():
    n, many = np.int64(10**7), 10**7
    half = [[Fraction(1, 2), Fraction(0)], [Fraction(0), Fraction(1, 2)]]
    assert matrix_loops(half, n, np.int64(8)) == matrix_loops(half, many, 8)
    assert matrix_layers([half] * 3, n) == matrix_layers([half] * 3, many)
    assert symmetric_loops(half, n, np.int64(8)) == symmetric_loops(half, many, 8)
    assert scalar_loops(Fraction(1, 2), np.int64(5), n, np.int64(6)) == scalar_loops(Fraction(1, 2), 5, many, 6)
    big = np.int64(2**40)
    assert scalar_layers([Fraction(big, 3), big], 1, 2) == scalar_layers([Fraction(2**40, 3), 2**40], 1, 2)


@pytest.mark.parametrize("loops", [1, 2, 3, 6])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_plane_agrees_with_rationals_and_with_the_word_table(generator, loops, n):
    A, C = randn(generator, 2, 2) * 0.5, covariance(generator, 2)
    value = float(matrix_loops(A, n, loops, C))
    assert value == pytest.approx(float(matrix_loops(A.numpy(), n, loops, C.numpy())), rel=1e-12)
    if loops <= 3:
        assert value == pytest.approx(float(matrix_layers(A.expand(loops, 2, 2), n, C)), rel=1e-12)
    S = A + A.T
    assert float(matrix_loops(S, n, loops, C)) == pytest.approx(float(symmetric_loops(S, n, loops, C)), rel=1e-10)


def test_the_models_contain_each_other(generator):
    a = randn(generator, 3).abs()
    for d, n in ((2, 3), (5, 20)):
        eye = torch.eye(d, dtype=torch.float64)
        layers = float(scalar_layers(a, d, n))
        assert float(matrix_layers(a[:, None, None] * eye, n)) == pytest.approx(layers, rel=1e-12)
        assert float(scalar_gdpp(a, torch.zeros(3, dtype=torch.float64), d, n)) == pytest.approx(layers, rel=1e-12)
        assert float(symmetric_loops(a[0] * eye, n, 5)) == pytest.approx(float(scalar_loops(a[0], d, n, 5)), rel=1e-11)
        assert float(matrix_loops(a[0] * eye, n, 3)) == pytest.approx(float(scalar_loops(a[0], d, n, 3)), rel=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_promise_of_symmetry_changes_neither_loss_nor_its_symmetric_gradient(generator, depth):
    C, A = covariance(generator, 3), randn(generator, depth, 3, 3) * 0.2
    A = (A + A.mT).requires_grad_()
    values = [matrix_layers(A, 5, C, symmetric=promise) for promise in (False, True)]
    gradients = [torch.autograd.grad(value, A)[0] for value in values]
    assert torch.allclose(*values, rtol=1e-12)
    assert torch.allclose(*(g + g.mT for g in gradients), rtol=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 3))
@settings(max_examples=15)
def test_the_covariance_disappears_by_whitening(seed, depth):
    g = torch.Generator().manual_seed(seed)
    C, A = covariance(g, 3), randn(g, depth, 3, 3) * 0.3
    values, vectors = torch.linalg.eigh(C)
    root = vectors * values.sqrt() @ vectors.T
    assert float(matrix_layers(A, 5, C)) == pytest.approx(float(matrix_layers(root @ A @ root, 5)), rel=1e-10)


def test_gradients_are_those_of_finite_differences(generator):
    C, A = covariance(generator, 2), (randn(generator, 2, 2, 2) * 0.4).requires_grad_()
    a, b = randn(generator, 3).abs().requires_grad_(), randn(generator, 2).requires_grad_()
    row, block = randn(generator, 3).requires_grad_(), randn(generator, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: matrix_layers(A, 4, C), A)
    assert torch.autograd.gradcheck(lambda A: symmetric_loops(A[0] + A[0].T, 4, 3, C), A)
    assert torch.autograd.gradcheck(lambda A: matrix_loops(A[0], 4, 5, C), A)
    assert torch.autograd.gradcheck(lambda a: scalar_layers(a, 3, 4), a)
    assert torch.autograd.gradcheck(lambda a, b: scalar_gdpp(a, b, 3, 4), (a, b))
    assert torch.autograd.gradcheck(lambda row, block: one_layer(row, block, C, 4), (row, block))


def test_a_layer_is_gradient_descent_preconditioned_by_the_transpose_of_its_matrix(generator):
    A = torch.tensor([[[0.0, 0.4], [0.0, 0.0]], [[0.5, 0.0], [0.0, 0.1]]], dtype=torch.float64)
    x, x_q, w = (randn(generator, 200_000, *shape) for shape in ((4, 2), (1, 2), (2, 1)))
    S, v = x.mT @ x / 4, torch.zeros_like(w)
    for a in A:
        v = v + a.T @ S @ (w - v)
    drawn = (x_q @ (w - v)).square().ravel()
    assert agrees(matrix_layers(A, 4), drawn)
    assert not agrees(matrix_layers(A.mT, 4), drawn)


def test_no_layers_predict_0():
    none = torch.zeros(0, 2, 2, dtype=torch.float64)
    assert float(matrix_layers(none, 5)) == float(plane_layers(none, 5)) == 2


def test_layers_have_the_loss_of_the_transformer_on_literal_prompts(generator):
    C, A = covariance(generator, 3), randn(generator, 3, 3, 3) * 0.03
    drawn = literal(A, 6, C, samples=200_000, generator=generator)
    assert agrees(matrix_layers(A, 6, C), drawn)
    assert not agrees(1.05 * float(matrix_layers(A, 6, C)), drawn)


def test_rao_blackwell_has_the_loss_of_the_transformer_with_moving_covariates(generator):
    C, A, B = covariance(generator, 3), randn(generator, 2, 3, 3) * 0.1, randn(generator, 1, 3, 3) * 0.3
    drawn = literal(A, 6, C, B, samples=100_000, generator=generator)
    mean, error = sampled(A, 6, C, B, samples=100_000, generator=generator)
    assert abs(float(mean) - float(drawn.mean())) < 4 * (float(error) + float(drawn.std()) / 100_000**0.5)
    assert float(error) < float(drawn.std()) / 100_000**0.5


def test_rao_blackwell_agrees_with_the_exact_loss(generator):
    a, b = torch.tensor([0.5, 0.9], dtype=torch.float64), torch.tensor([0.4], dtype=torch.float64)
    inverse = torch.linalg.inv(SIGMA)
    mean, error = sampled(
        a[:, None, None] * inverse, 20, SIGMA, b[:, None, None] * EYE, samples=50_000, generator=generator
    )
    assert abs(float(mean) - float(scalar_gdpp(a, b, 5, 20))) < 4 * float(error)


def test_the_plane_with_moving_covariates_contains_the_scalar_family_and_agrees_with_samples(generator):
    a, b, eye = randn(generator, 3).abs(), randn(generator, 3), torch.eye(2, dtype=torch.float64)
    C = covariance(generator, 2)
    value = plane_layers(a[:, None, None] * torch.linalg.inv(C), 7, C, b[:, None, None] * eye)
    assert float(value) == pytest.approx(float(scalar_gdpp(a, b, 2, 7)), rel=1e-11)
    A, B = randn(generator, 2, 2, 2) * 0.1, randn(generator, 2, 2, 2) * 0.3
    mean, error = sampled(A, 7, C, B, samples=50_000, generator=generator)
    assert abs(float(mean) - float(plane_layers(A, 7, C, B))) < 4 * float(error)


@pytest.mark.parametrize("moves", [0, 2, 3])
def test_three_dense_layers_have_the_loss_of_the_transformer_on_every_node_of_a_cubature(generator, moves):
    """One example in the plane: the square of the error has degree 52 in it, and is linear in w and in the query."""
    C, A, B = (v.numpy() for v in (covariance(generator, 2), randn(generator, 3, 2, 2), randn(generator, 3, 2, 2)))
    A, B = 0.4 * A, 0.4 * B * (moves > 0)
    z, weight = np.polynomial.hermite_e.hermegauss(27)
    weight = np.outer(weight, weight).ravel() / (2 * np.pi)
    asked = np.broadcast_to(np.eye(2), (len(weight), 2, 2))  # both basis vectors are queries, and weights
    example = np.stack(np.meshgrid(z, z), -1).reshape(-1, 1, 2) @ np.linalg.cholesky(C).T
    x, y = np.concatenate([example, asked], 1), np.concatenate([example, 0 * asked], 1)
    for a, b in zip(A, B, strict=True):
        scores = (x[:, :1] @ a @ x.transpose(0, 2, 1)).transpose(0, 2, 1)
        x, y = x - scores @ x[:, :1] @ b.T, y - scores @ y[:, :1]
    error = asked + y[:, 1:]
    wanted = np.einsum("s,sij,jk,slk,li->", weight, error, np.linalg.inv(C), error, C)
    A, C, B = (torch.from_numpy(v) for v in (A, C, B[:moves]))
    for value in [plane_layers(A, 1, C, B)] if moves else [plane_layers(A, 1, C), matrix_layers(A, 1, C)]:
        assert float(value) == pytest.approx(wanted, rel=1e-9)


def test_one_layer_has_the_loss_of_the_attention_on_literal_prompts(generator):
    C, b, A, n, samples = covariance(generator, 3), randn(generator, 4), randn(generator, 4, 3), 4, 400_000
    x = randn(generator, samples, n + 1, 3) @ torch.linalg.cholesky(C).T
    w = randn(generator, samples, 3, 1)
    z = torch.cat([x, x @ w], 2)[:, :n]
    error = (((z.mT @ z / n) @ b) @ A * x[:, n]).sum(1) + (x[:, n, None] @ w).ravel()
    assert agrees(one_layer(b, A, C, n), error.square())


@pytest.mark.parametrize(("d", "n"), [(1, 4), (2, 2), (3, 1)])
def test_one_layer_has_the_mean_square_of_its_error_on_every_node_of_a_cubature(generator, d, n):
    """The square has degree 4 in every number of the examples and of w, for which three nodes are enough."""
    C, b, A = (v.numpy() for v in (covariance(generator, d), randn(generator, d + 1), randn(generator, d + 1, d)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    grid, weight = (np.stack(np.meshgrid(*[v] * (n + 1) * d), -1).reshape(-1, n + 1, d) for v in (nodes, weights))
    weight = weight.prod((1, 2)) / (2 * np.pi) ** ((n + 1) * d / 2)
    x, w = grid[:, :n] @ np.linalg.cholesky(C).T, grid[:, n]
    z = np.concatenate([x, x @ w[:, :, None]], 2)
    of_query = np.einsum("sni,snj,j,ik->sk", z, z, b, A) / n + w  # the error is this times the query
    wanted = np.einsum("s,si,ij,sj->", weight, of_query, C, of_query)
    assert float(one_layer(*(torch.from_numpy(v) for v in (b, A, C)), n)) == pytest.approx(wanted, rel=1e-11)


def test_one_layer_of_one_input_has_the_loss_found_by_hand_from_moments():
    x, beta, A, a, c = (Fraction(*v) for v in ((2, 3), (1, 2), (-3, 5), (1, 7), (5, 4)))  # b = (x, beta), Sigma = c
    for n in (1, 3, 10):
        # the error is w + s (k + l w + m w^2) times x_q with s ~ c chi^2_n / n
        k, line, m = x * A, beta * A + x * a, beta * a
        wanted = 1 + 2 * c * line + c**2 * (1 + Fraction(2, n)) * (k**2 + line**2 + 2 * k * m + 3 * m**2)
        assert one_layer([x, beta], [[A], [a]], [[c]], n) == c * wanted


def test_ahns_minimiser_has_zero_gradient_and_the_known_loss():
    cases = [(SIGMA, 20, 0.681756382740799), (SIGMA, 10, 1.10357172249921), (EYE, 20, 15 / 13), (EYE, 3, 10 / 3)]
    for C, n, value in cases:
        best = one_layer_optimum(C, n)
        b = torch.tensor([0.0] * 5 + [1.0], dtype=torch.float64, requires_grad=True)
        A = torch.cat([-best.A, torch.zeros(1, 5, dtype=torch.float64)]).requires_grad_()
        loss = one_layer(b, A, C, n)
        assert best.loss == pytest.approx(value, rel=1e-13)
        assert float(loss.detach()) == pytest.approx(value, rel=1e-13)
        assert max(float(g.abs().max()) for g in torch.autograd.grad(loss, (b, A))) < 1e-14


def test_fifty_random_layers_are_never_better_than_ahns_minimiser(generator):
    best = one_layer_optimum(SIGMA, 20).loss
    for _ in range(50):
        assert float(one_layer(randn(generator, 6), randn(generator, 6, 5), SIGMA, 20)) > best


def test_sums_that_lost_their_digits_are_refused_and_rationals_are_offered():
    with pytest.raises(ValueError, match=r"float64 keeps \d digits of this loss at n = 1000000: pass Fractions"):
        matrix_layers(EYE.expand(3, 5, 5), 10**6)
    with pytest.raises(ValueError, match=r"float64 keeps \d digits"):
        symmetric_loops(EYE, 10**6, 4)
    exact = symmetric_loops(np.eye(5, dtype=int), 10**6, 4)
    assert float(exact) == pytest.approx(
        float(scalar_loops(torch.tensor(1.0, dtype=torch.float64), 5, 10**6, 4)), rel=1e-12
    )


@pytest.mark.parametrize("n", [1, 20, 10**10, 10**18])
def test_the_least_loss_of_one_layer_keeps_its_digits_at_any_n(n):
    assert one_layer_optimum(EYE, n).loss == pytest.approx(30 / (n + 6), rel=1e-14)  # d (d + 1) / (n + d + 1)


def test_a_float64_loss_of_one_layer_that_lost_its_digits_is_refused():
    best = torch.cat([-one_layer_optimum(EYE, 10**12).A, torch.zeros(1, 5, dtype=torch.float64)])
    with pytest.raises(ValueError, match=r"float64 keeps \d digits of this loss at n = 1000000000000"):
        one_layer(torch.eye(6, dtype=torch.float64)[5], best, EYE, 10**12)


@pytest.mark.parametrize("n", [10**14, 10**20])
def test_a_plane_takes_more_examples_than_an_integer_of_a_tensor_can_count(n):
    assert float(matrix_loops(PLANE, n, 1)) == pytest.approx(6 / n, rel=1e-6)  # E |I - W|^2 = d (d + 1) / n


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: matrix_layers(EYE[None], 20, torch.diag(torch.tensor([1, 1, 1, 1, -1.0], dtype=torch.float64))),
            "positive definite",
        ),
        (lambda: matrix_layers(EYE[None], 20, EYE.roll(1, 0)), "covariance must be symmetric"),
        (lambda: matrix_layers([[[1]]], 20, [[0]]), "positive definite"),
        (lambda: matrix_layers([[[1, 0], [0, 1]]], 20, [[1, 2], [2, 1]]), "positive definite"),
        (lambda: matrix_layers([[[1, 0], [0, 1]]], 20, [[1, 2], [0, 1]]), "covariance must be symmetric"),
        (lambda: symmetric_loops(1e-13 * EYE.roll(1, 0), 20, 2), "A must be symmetric"),
        (lambda: symmetric_loops(EYE + 1e-9 * EYE.roll(1, 0), 20, 2), "A must be symmetric"),
        (lambda: matrix_layers(EYE[None], 20, [[1]]), "in the arithmetic of A"),
        (lambda: matrix_layers(EYE[None], 0), "n must be at least 1"),
        (lambda: matrix_layers(EYE.expand(4, 5, 5), 20), "exact up to depth 3; got 4: use `sampled`"),
        (lambda: matrix_loops(EYE, 20, 4), "exact up to depth 3; got 4: use `sampled`"),
        (lambda: symmetric_loops(EYE, 20, 9), "exact up to depth 8; got 9: use `sampled`"),
        (lambda: matrix_layers(EYE.roll(1, 0)[None], 20, symmetric=True), "A must be symmetric, as promised"),
        (lambda: symmetric_loops(EYE.roll(1, 0), 20, 2), "A must be symmetric"),
        (lambda: scalar_gdpp([1] * 4, [1] * 4, 2, 2), "exact up to depth 3; got 4"),
        (lambda: scalar_gdpp([1, 1], [], 2, 2), "b must have 2 entries"),
        (lambda: scalar_gdpp([1, 1], [1, 1, 1], 2, 2), "b must have 2 entries, or 1 without .*; got 3"),
        (lambda: one_layer([1, 1], [[1], [1], [1]], [[1]], 2), r"covariance must be \(2, 1\) in the arithmetic of A"),
        (lambda: one_layer([1] * 6, EYE[[0, *range(5)]], SIGMA, 2), r"b must be \(6,\) in the arithmetic of A"),
        (lambda: one_layer([1, 1, 1], [[1], [1]], [[1]], 2), r"b must be \(2,\) in the arithmetic of A; got \(3,\)"),
        (lambda: matrix_layers(EYE, 20), "A must have 3 axes"),
        (lambda: matrix_layers(EYE[None, :2], 20), r"A must be square; got shape \(1, 2, 5\)"),
        (lambda: symmetric_loops([[1, 2]], 20, 2), r"A must be square; got shape \(1, 2\)"),
        (lambda: matrix_loops(EYE[:2], 20, 2), r"A must be square; got shape \(2, 5\)"),
        (lambda: plane_layers(EYE.expand(4, 5, 5), 20), "exact at d = 2; got d = 5: use `sampled`"),
        (
            lambda: plane_layers(PLANE.expand(2, 2, 2), 5, None, PLANE.expand(4, 2, 2)),
            r"B must be \(2, 2, 2\), or without the idle last one; got \(4, 2, 2\)",
        ),
        (lambda: plane_layers(PLANE.expand(3, 2, 2), 5, None, PLANE[None]), r"idle last one; got \(1, 2, 2\)"),
        (lambda: scalar_loops(EYE[0], 5, 20, 5), r"a must be one number, which the loops share; got shape \(5,\)"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("B", [EYE[None, :3, :3], EYE[None, :2], EYE[:2, :2]])
def test_covariates_of_another_size_are_refused_by_name_where_no_shapes_are_executed(B):
    A, g = PLANE.expand(2, 2, 2), torch.Generator()
    for call in (
        lambda: unwrap(plane_layers)(A, 5, None, B),
        lambda: unwrap(sampled)(A, 5, None, B, samples=2, generator=g),
    ):
        with pytest.raises(ValueError, match=r"B must (be|have) .*; got"):
            call()


def test_another_arithmetic_is_refused_by_name():
    with pytest.raises(TypeError, match="b must be in the arithmetic of a; got list and Tensor"):
        scalar_gdpp(EYE[0, :1], [1], 5, 20)
    with pytest.raises(TypeError, match="A must be a float64 tensor here; got list"):
        unwrap(plane_layers)([[[1, 0], [0, 1]]], 5)
    with pytest.raises(TypeError, match="covariance must be a float64 tensor here; got list"):
        unwrap(one_layer_optimum)([[1]], 5)


def test_single_precision_is_refused():
    with pytest.raises(TypeError, match="A must be float64 or rational"):
        matrix_layers(EYE[None].float(), 20)
