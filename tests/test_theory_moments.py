"""Wishart moments against brute-force pairings, cubature, other formulas and Monte Carlo."""

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algoformer.theory import Wishart, white, white_polynomial
from algoformer.theory.quadrature import plane, recurrence, spectrum


def pairings(legs):
    if not legs:
        yield []
        return
    first, rest = legs[0], legs[1:]
    for i, other in enumerate(rest):
        for more in pairings(rest[:i] + rest[i + 1 :]):
            yield [(first, other), *more]


def isserlis(gaps, n):
    """E tr(W B_1 ... W B_m) for diagonal gaps, by summing over all pairings and all values of every index."""
    m, d = len(gaps), len(gaps[0])
    total = Fraction(0)
    for pairing in pairings(list(range(2 * m))):
        for x in product(
            range(d), repeat=m
        ):  # x_i: the common index of the right leg of W_i, its gap, the next left leg
            rows = [x[i - 1] if leg == 0 else x[i] for i in range(m) for leg in range(2)]
            if all(rows[a] == rows[b] for a, b in pairing):
                sample = {i: {i} for i in range(m)}  # legs of one W share a sample; a pair of legs joins two samples
                for a, b in pairing:
                    joined = sample[a // 2] | sample[b // 2]
                    for i in joined:
                        sample[i] = joined
                loops = len({frozenset(s) for s in sample.values()})
                value = Fraction(n) ** (loops - m)
                for i in range(m):
                    value *= gaps[i][x[i]]
                total += value
    return total


def traces(g, k):
    return [Fraction(sum(Fraction(v) ** m for v in g)) for m in range(k + 1)]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 3), (3, 2)])
def test_white_moments_are_sums_over_pairings(k, d, n):
    assert white(k, d, n) == isserlis([[1] * d] * k, n)


def test_white_moments_are_the_known_polynomials():
    assert white_polynomial(0) == {(0, 1): 1}
    assert white_polynomial(2) == {(1, 1): 1, (1, 2): 1, (2, 1): 1}
    assert white_polynomial(3) == {(1, 1): 4, (1, 2): 3, (1, 3): 1, (2, 1): 3, (2, 2): 3, (3, 1): 1}
    fifth = white_polynomial(5)
    assert [fifth[1, j] for j in range(1, 6)] == [148, 160, 65, 10, 1]
    assert [fifth[3, j] for j in range(1, 4)] == [65, 55, 20]


@given(st.integers(0, 26), st.integers(1, 12), st.integers(1, 10**9))
@settings(max_examples=30)
def test_the_polynomial_takes_the_value_of_the_moment(k, d, n):
    value = sum(c * n**i * d**j for (i, j), c in white_polynomial(k).items())
    assert white(k, d, n) == Fraction(value, n**k)


def test_numbers_of_numpy_do_not_overflow():
    whole = np.int64
    assert white(whole(8), whole(5), whole(1000)) == white(8, 5, 1000) > 5
    large = Wishart([whole(2**40)] * 5, whole(3)).mixed(2, 2)
    assert isinstance(large, Fraction)
    assert large == Wishart([Fraction(2**40)] * 5, 3).mixed(2, 2)


def test_one_dimension_is_the_chi_square():
    for n in (1, 7, 10**40):
        for k in (1, 5, 26):
            chi = np.prod([Fraction(n + 2 * i, n) for i in range(k)])
            assert white(k, 1, n) == chi


@pytest.mark.parametrize("g", [(1, 2), (Fraction(1, 3), 0, -2)])
@pytest.mark.parametrize(("i", "j"), [(1, 1), (2, 1), (1, 3), (2, 2), (0, 3), (3, 0)])
def test_mixed_moments_are_sums_over_pairings_even_where_g_is_singular_or_indefinite(g, i, j):
    one, two, zero = list(g), [v * v for v in g], [1] * len(g)
    gaps = [one] * (i + j) if not i or not j else [one] * (i - 1) + [two] + [one] * (j - 1) + [zero]
    assert Wishart(traces(g, i + j), 3).mixed(i, j) == isserlis(gaps, 3)


def test_the_recursion_and_the_zonal_formula_agree_to_depth_eight():
    for d, n in ((5, 20), (3, 2), (4, 10**40)):
        W = Wishart([Fraction(d)] * 17, n)
        for i in range(9):
            assert W.mixed(i, 8) == white(i + 8, d, n)
            assert W.power(2 * i) == white(2 * i, d, n)


@pytest.mark.parametrize("i", [1, 3, 5, 8])
def test_mixed_moments_at_two_dimensions_are_those_of_cubature(i):
    g, n = torch.tensor([0.4, 1.7], dtype=torch.float64), 2
    z, w = np.polynomial.hermite_e.hermegauss(2 * i + 2)  # every entry of the 2 x 2 sample is Gaussian
    w = w / w.sum()
    grid = np.stack(np.meshgrid(z, z, z, z, indexing="ij"), -1).reshape(-1, 2, 2)
    weight = np.einsum("a,b,c,d->abcd", w, w, w, w).ravel()
    W = np.einsum("sni,snj->sij", grid, grid) / n
    M = np.linalg.matrix_power(W * g.numpy(), i)
    by_grid = (weight * (M @ M.transpose(0, 2, 1)).trace(axis1=1, axis2=2)).sum()
    ours = Wishart([float((g**m).sum()) for m in range(2 * i + 1)], n).mixed(i, i)
    assert ours == pytest.approx(by_grid, rel=1e-12)
    V, v = plane(n, 2 * i)
    N = torch.linalg.matrix_power(V * g, i)
    assert float((v * (N @ N.mT).diagonal(dim1=1, dim2=2).sum(1)).sum()) == pytest.approx(by_grid, rel=1e-12)


def test_monte_carlo_agrees_within_four_standard_errors(generator):
    g, n, samples = torch.tensor([1.0, 0.9, 0.6, 1.2, 0.8], dtype=torch.float64), 20, 100_000
    z = torch.randn(samples, n, 5, dtype=torch.float64, generator=generator)
    M = torch.linalg.matrix_power(torch.einsum("sni,snj->sij", z, z) / n * g, 2)
    values = (M @ M.mT).diagonal(dim1=1, dim2=2).sum(1)
    exact = Wishart([float((g**m).sum()) for m in range(5)], n).mixed(2, 2)
    error = float(values.std()) / samples**0.5
    assert abs(float(values.mean()) - exact) < 4 * error
    assert error < 0.02 * exact


def test_float_and_exact_moments_agree():
    g = [Fraction(1), Fraction(1, 4), Fraction(1, 16)]
    exact, rounded = Wishart(traces(g, 16), 20), Wishart([float(t) for t in traces(g, 16)], 20)
    for i in range(9):
        assert rounded.mixed(i, 8) == pytest.approx(float(exact.mixed(i, 8)), rel=1e-13)


def test_the_recurrence_of_lebesgue_measure_is_that_of_legendre():
    alpha, beta = recurrence([Fraction(2, k + 1) if k % 2 == 0 else Fraction(0) for k in range(10)])
    assert alpha == [0] * 5
    assert beta == [2, *(Fraction(k * k, 4 * k * k - 1) for k in range(1, 5))]


@pytest.mark.parametrize(("d", "n", "size"), [(5, 20, 14), (1, 1, 14), (5, 10**6, 7), (8, 3, 5), (3, 10**40, 6)])
def test_the_gauss_rule_integrates_every_moment(d, n, size):
    t, w = spectrum(d, n, size)
    for k in range(2 * size):
        assert float((w * (1 + t) ** k).sum()) == pytest.approx(float(white(k, d, n)), rel=1e-13)
    for k in range(0, 2 * size, 2):  # and the centred ones, which nodes rounded near 1 would lose
        centred = sum(comb(k, j) * (-1) ** j * white(j, d, n) for j in range(k + 1))
        assert float((w * t**k).sum()) == pytest.approx(float(centred), rel=1e-11)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_plane_rule_integrates_monomials_of_the_entries(n):
    W, w = plane(n, 6)
    z = np.random.default_rng(0).standard_normal((400_000, n, 2))
    S = np.einsum("sni,snj->sij", z, z) / n
    for a, b, c in ((1, 0, 0), (0, 2, 0), (2, 2, 1), (0, 3, 1), (3, 0, 2)):
        rule = float((w * W[:, 0, 0] ** a * W[:, 0, 1] ** b * W[:, 1, 1] ** c).sum())
        drawn = S[:, 0, 0] ** a * S[:, 0, 1] ** b * S[:, 1, 1] ** c
        assert abs(rule - drawn.mean()) < 5 * drawn.std() / len(drawn) ** 0.5 + 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: white(-1, 2, 2), "k must be at least 0; got -1"),
        (lambda: white(2, 0, 2), "d must be at least 1; got 0"),
        (lambda: white(2, 2, 0), "n must be at least 1; got 0"),
        (lambda: Wishart([Fraction(2)] * 30, 0), "n must be at least 1; got 0"),
        (lambda: Wishart([Fraction(2)] * 30, 3).mixed(9, 1), "depth at most 8; got i = 9"),
        (lambda: Wishart([Fraction(2)] * 3, 3).mixed(2, 2), "traces of 4 powers of G; got 2"),
        (lambda: Wishart([Fraction(2)] * 3, 3).power(3), "traces of 3 powers of G; got 2"),
    ],
)
def test_bad_sizes_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
