"""Optima against known values, generic optimisers, high-precision roots and the theorems that characterise them."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from algoformer.theory import (
    Enclosure,
    bounds,
    gdpp_optimum,
    layered_optimum,
    looped_optimum,
    one_layer_optimum,
    scalar_gdpp,
    scalar_layers,
    scalar_loops,
    symmetric_loops,
)

LOOPED = {  # (d, n, loops): a, loss
    (5, 20, 1): (10 / 13, 15 / 13),
    (5, 20, 3): (0.7155867242039618, 0.2683422178464498),
    (5, 20, 10): (0.5540211658433056, 0.02692458955381232),
    (10, 20, 2): (0.6280774761565799, 2.105276754910483),
    (10, 20, 10): (0.4981264816923994, 0.3975285055261569),
}
LAYERED = {
    (5, 20, 2): ([0.51537068283599, 1.2495719615593], 0.3612396860535319),
    (5, 20, 3): ([0.42240853392858, 0.68912608740464, 1.7142173795305], 0.1336084293831833),
    (10, 20, 6): (
        [0.24908112584655, 0.32331953073293, 0.42773936897935, 0.65564382599246, 1.283491654114, 3.8599194600396],
        0.2085639485599673,
    ),
}


@pytest.mark.parametrize(("size", "known"), LOOPED.items())
def test_looped_optima_have_the_known_values(size, known):
    best = looped_optimum(*size)
    assert (float(best.a), float(best.loss)) == pytest.approx(known, rel=1e-14)


@pytest.mark.parametrize(("size", "known"), LAYERED.items())
def test_layered_optima_have_the_known_values(size, known):
    best = layered_optimum(*size)
    assert [float(a) for a in best.a] == pytest.approx(known[0], rel=1e-13)
    assert float(best.loss) == pytest.approx(known[1], rel=1e-14)


@given(st.integers(1, 30), st.integers(1, 10**6), st.integers(1, 10))
@settings(max_examples=25)
def test_a_generic_optimiser_finds_nothing_below_the_looped_optimum(d, n, loops):
    best = looped_optimum(d, n, loops)

    def loss(a):
        return float(scalar_loops(torch.tensor(a, dtype=torch.float64), d, n, loops))

    found = minimize_scalar(loss, bounds=(0, 1.5), method="bounded", options={"xatol": 1e-10})
    assert loss(float(best.a)) == pytest.approx(float(best.loss), rel=1e-9)
    assert found.fun >= float(best.loss) * (1 - 1e-9)
    assert found.x == pytest.approx(float(best.a), abs=1e-4)


@pytest.mark.parametrize(("d", "n", "layers"), [(1, 1, 2), (3, 2, 3), (5, 20, 4), (10, 1000, 3)])
def test_layered_optima_are_stationary_and_not_beaten_from_random_starts(d, n, layers):
    best = layered_optimum(d, n, layers)
    a = torch.tensor([float(v) for v in best.a], dtype=torch.float64, requires_grad=True)
    value = scalar_layers(a, d, n)
    (slope,) = torch.autograd.grad(value, a)
    assert float(value.detach()) == pytest.approx(float(best.loss), rel=1e-10)
    assert float(slope.abs().max()) < 1e-10 * max(1.0, n / d)
    rng = np.random.default_rng(0)
    for _ in range(5):
        found = minimize(
            lambda v: float(scalar_layers(torch.from_numpy(v), d, n)), rng.random(layers) * 2, method="Nelder-Mead"
        )
        assert found.fun >= float(best.loss) * (1 - 1e-9)


def test_every_digit_is_enclosed_even_at_ten_to_the_forty():
    for d in (1, 3, 10):
        for n in (1, 20, 10**6, 10**40):
            looped, layered = looped_optimum(d, n, 10), layered_optimum(d, n, 6)
            for e in (looped.a, 1 - looped.a, looped.loss, layered.loss, *layered.a, *(1 - a for a in layered.a)):
                assert 0 <= e.high - e.low <= abs(e.middle) * Fraction(1, 10**13)
            assert len(layered.a) == 6
            assert all(low.high < high.low for low, high in zip(layered.a, layered.a[1:], strict=False))


@pytest.mark.parametrize("n", [7, 10**40])
def test_the_enclosures_hold_a_sign_change_of_the_exact_derivative(n):
    d, loops, h = 4, 6, Fraction(1, 10**80)
    a = looped_optimum(d, n, loops).a

    def slope(x):
        return scalar_loops(x + h, d, n, loops) - scalar_loops(x - h, d, n, loops)

    assert slope(a.low - 4 * h) < 0 < slope(a.high + 4 * h)
    best = layered_optimum(d, n, 3).a
    middle = [v.middle for v in best]
    for i, v in enumerate(best):
        for step in (1000 * (v.high - v.low), 1000 * (v.low - v.high)):
            moved = [u + step * (j == i) for j, u in enumerate(middle)]
            assert scalar_layers(moved, d, n) > scalar_layers(middle, d, n)


def test_a_loss_too_small_for_a_float_still_prints():
    best = looped_optimum(2, 10**40, 10)
    assert float(best.loss) == 0.0
    assert str(best.loss) == "5.38123849515000e-388"
    assert str(1 - best.a) == "1.44383987678434e-39"
    assert str(Enclosure(Fraction(-3, 2), Fraction(-3, 2))) == "-1.50000000000000e+0"


def test_one_loop_is_the_closed_form():
    for d, n in ((7, 10**40), *((d, n) for d in (1, 5) for n in range(1, 41))):  # wherever in the enclosure it lies
        best = looped_optimum(d, n, 1)
        assert best.a.low <= Fraction(n, n + d + 1) <= best.a.high
        assert best.loss.low <= Fraction(d * (d + 1), n + d + 1) <= best.loss.high


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_no_symmetric_matrix_beats_the_scalar_looped_optimum(seed):
    g = torch.Generator().manual_seed(seed)
    best = looped_optimum(3, 5, 3)
    A = torch.randn(3, 3, dtype=torch.float64, generator=g) * 0.2
    A = float(best.a) * torch.eye(3, dtype=torch.float64) + A + A.T
    assert float(symmetric_loops(A, 5, 3)) > float(best.loss)


def test_best_known_gdpp_coefficients_have_the_known_losses():
    for d, n, layers, loss in (
        (5, 20, 2, 0.05750115263581),
        (10, 20, 2, 0.5358843166328),
        (5, 20, 3, 0.0009613106619461),
    ):
        best = gdpp_optimum(d, n, layers)
        assert best.loss == pytest.approx(loss, rel=1e-11)
        assert float(scalar_gdpp(best.a, best.b, d, n)) == pytest.approx(best.loss, rel=1e-11)
    assert gdpp_optimum(5, 20, 1, starts=3).loss == pytest.approx(15 / 13, rel=1e-12)


def test_ahns_preconditioner_has_the_known_entries():
    C = torch.diag(torch.tensor([1, 1, 0.25, 0.0625, 1], dtype=torch.float64))
    assert one_layer_optimum(C, 20).A.diagonal().tolist() == pytest.approx(
        [0.822622107969, 0.822622107969, 2.335766423358, 4.324324324324, 0.822622107969], rel=1e-11
    )


def test_ahns_preconditioner_of_a_dense_covariance_is_numpys_inverse(generator):
    root = torch.randn(4, 4, dtype=torch.float64, generator=generator).numpy()
    C = root @ root.T
    wanted = np.linalg.inv(C * (1 + 1 / 7) + np.trace(C) / 7 * np.eye(4))
    np.testing.assert_allclose(one_layer_optimum(torch.from_numpy(C), 7).A.numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_bounds_agree_with_the_sizes_at_which_they_change():
    for d, loops in ((2, 1), (5, 2), (10, 4)):
        n = bounds.optimum_size(d, loops)
        assert bounds.optimum_loss(d, n, loops) == pytest.approx(1, rel=1e-12)
        assert 8 * loops * d**2 * 4**loops <= n**0.5 * (1 + 1e-12)
        n = bounds.informative_size(d, loops)
        assert bounds.optimum_radius(d, 2 * n, loops) < 1 < bounds.optimum_radius(d, n // 2, loops)
    assert bounds.flow_time(0.573, 2) == pytest.approx(0.573**-0.5 * 32 ** (1 / 3))
    assert bounds.flow_time_solved(0.573, 2) == pytest.approx(32 * 0.573**-0.5)
    assert bounds.flow_time_solved(0.573, 2, 700) == pytest.approx(32 * (700 / 0.573) ** 0.5)
    assert bounds.flow_time_exact(0.573, 700, 2) == pytest.approx(((700 / 0.573) ** 0.5 - 1) / 8)
    assert bounds.dominance_dimension(2) == 256**2
    assert bounds.dominance_threshold(3, 100, 2) == pytest.approx(16 * 2 * 3 * 16 / 10)
    assert bounds.dominance_threshold(3, 100, 2, appendix=True) == pytest.approx(16 * 2 * 3 * 256 / 10)
    assert bounds.closeness(16, 2) == pytest.approx(36)
    assert bounds.moment_radius(3, 400, 5) == pytest.approx(3)
    assert bounds.shift_factor(1, 10**60, 2, 0.5) == pytest.approx(0.5**4, rel=1e-4)
    near = 16 * bounds.delta(3, 10**6, 2) * 3**0.25
    assert bounds.shift_factor(3, 10**6, 2, 0.5) == pytest.approx((1 + near) ** 2 * (0.5 + near) ** 4)
    assert bounds.delta(5, 10**400, 2) == pytest.approx((8 * 2 * 5) ** 0.25 * 10**-50.0, rel=1e-12)
    assert bounds.moment_radius(3, 10**400, 5) == pytest.approx(60 * 10**-200.0, rel=1e-12)
    assert bounds.optimum_radius(20, bounds.informative_size(20, 88), 88) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("loops", [2, 3, 4, 7])
def test_the_dimension_of_dominance_is_the_last_that_its_inequality_allows(loops):
    d, target = bounds.dominance_dimension(loops), (64 * loops**2) ** loops
    assert d ** (loops - 1) <= target < (d + 1) ** (loops - 1)


def test_the_corrected_flow_time_solves_its_equation():
    for loops, target in ((2, 0.3), (5, 0.01)):
        t = bounds.flow_time_solved(target, loops)
        h = 1e-6 * target
        slope = 2 * h / (bounds.flow_time_solved(target + h, loops) - bounds.flow_time_solved(target - h, loops))
        assert slope == pytest.approx(-(target ** ((2 * loops - 1) / loops)) / 16, rel=1e-6)
        assert t > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: looped_optimum(5, 0, 3), "n must be at least 1"),
        (lambda: looped_optimum(5, 20, 0), "loops must be at least 1"),
        (lambda: layered_optimum(0, 20, 1), "d must be at least 1"),
        (lambda: layered_optimum(5, 20, 0), "layers must be at least 1"),
        (lambda: gdpp_optimum(5, 20, 4), "exact up to depth 3; got 4"),
        (lambda: gdpp_optimum(5, 20, 1, starts=0), "starts must be at least 1"),
        (lambda: one_layer_optimum(-torch.eye(2, dtype=torch.float64), 20), "positive definite"),
        (lambda: bounds.flow_time(0.1, 1), "loops must be at least 2"),
        (lambda: bounds.delta(0, 1, 1), "d must be at least 1"),
    ],
)
def test_bad_sizes_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
