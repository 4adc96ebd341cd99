"""What softmax attention and tabulated functions get wrong, against the bounds stated beforehand."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algoformer.constructions import (
    Interpreter,
    autoregression,
    compile,
    descent_bound,
    descent_step,
    load,
    save,
    scales,
)
from algoformer.constructions.catalogue import CATALOGUE
from algoformer.constructions.tables import hinges
from algoformer.prompt import Prompt, Series

X, Y, D, N, ETA = 2.0, 3.0, 3, 10, 0.2
KINDS = [(torch.float64, 2), (torch.float64, 4), (torch.float32, 2), (torch.float32, 4)]


def unit(*shape, generator):
    v = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return v / v.norm(dim=-1, keepdim=True)


def apart(model, program, p, dtype, steps):
    seen = p.to(dtype=dtype)
    with torch.no_grad():
        got = model.predict(seen, steps).double()
    return float((got - Interpreter(program).predict(seen.to(dtype=torch.float64), steps)).abs().max())


@given(st.floats(1e-3, 1e3), st.sampled_from(KINDS), st.floats(-1, 1))
def test_the_taps_approximate_the_score_to_their_truncation_error(score, kind, share):
    s = scales(kind[0], score, kind[1])
    z = share * score
    value = sum(weight * math.exp(rate * z) for rate, weight in s.taps)
    own = sum(abs(weight) for _, weight in s.taps) * 4e-16  # of computing this sum in float64
    assert abs(value - z) <= s.truncation + own
    assert sum(weight for _, weight in s.taps) == 0


@pytest.mark.parametrize(("dtype", "heads"), KINDS)
@pytest.mark.parametrize("keys", [1, 30])
def test_the_normaliser_keeps_as_much_of_the_scores_as_is_told(dtype, heads, keys):
    """Keys of the largest score and one dump, in 50 digits: in the dtype rounding hides it."""
    s = scales(dtype, 5.0, heads)
    with localcontext() as exact:
        exact.prec = 50
        taps = [(Decimal(share), (Decimal(rate) * 5).exp()) for rate, share in s.taps]
        kept = sum(share * up - share * up / (1 + keys * up / Decimal(s.dump).exp()) for share, up in taps)
    assert float(kept) == pytest.approx(s.leakage(keys), rel=0.01)
    assert s.bound(1.0, keys) - s.bound(1.0) == pytest.approx(s.leakage(keys - 1), rel=1e-6, abs=1e-20)


@pytest.mark.parametrize(("dtype", "heads"), KINDS)
def test_rounding_is_half_a_unit_of_the_score_of_the_dump_and_of_every_product_and_sum(dtype, heads):
    s, single = scales(dtype, 5.0, heads), torch.empty(0, dtype=dtype).numpy().dtype.type
    own = sum(abs(share) for _, share in s.taps)
    eps = float(np.finfo(single).eps)
    for counted, dump in ((False, s.dump), (True, s.dump + math.log(64))):
        unit = float(np.spacing(single(dump)))
        assert s.rounding(0, counted) == pytest.approx(own * (unit / 2 + 3 * eps), rel=1e-12)
    assert s.rounding(40) - s.rounding(0) == pytest.approx(own * 20 * eps, rel=1e-9)


@pytest.mark.parametrize(
    ("function", "domain", "error"),
    [
        (lambda x: (1 + x).sqrt(), (-1.0, 1.0), 0.5),
        (torch.acos, (-1.0, 1.0), 1.7),
        (lambda x: (1 - x).clamp(min=0) ** 1.9, (0.0, 1.0), 0.2),
        (torch.sqrt, (0.0, 1.0), 0.5),
    ],
)
@pytest.mark.parametrize("count", [64, 1024])
def test_a_table_may_have_unbounded_curvature_at_either_end(function, domain, error, count):
    h = hinges(function, domain, count)
    x = torch.linspace(*domain, 20_001, dtype=torch.float64)
    got = h.constant + ((x[:, None] * h.slope + h.offset).relu() * h.out).sum(1)
    assert float((got - function(x)).abs().max()) < error / count**2


def test_a_table_of_a_function_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match=r"finite on its domain \(0.0, 1.0\)"):
        hinges(lambda x: 1 / x, (0.0, 1.0), 16)


@pytest.mark.parametrize(("heads", "order"), [(2, 2), (4, 4)])
def test_heads_buy_orders_of_accuracy(heads, order):
    s = scales(torch.float64, 1.0, heads)
    errors = []
    for factor in (200.0, 400.0) if heads == 2 else (20.0, 40.0):
        c = factor * s.rate
        taps = type(s)(dtype=s.dtype, score=1.0, heads=heads, dump=s.dump, rate=c).taps
        errors.append(abs(sum(weight * math.exp(rate) for rate, weight in taps) - 1.0))
    assert math.log2(errors[1] / errors[0]) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize(("dtype", "heads"), KINDS)
def test_one_layer_is_below_its_bound_and_the_bound_is_tight(generator, dtype, heads):
    program = descent_step(D, eta=ETA, steps=1, x=X, y=Y)
    model = compile(program, "softmax", dtype=dtype, heads=heads, outside="ignore")
    ((_, bound),) = model.budget
    size = X * (1 - 0.02 * torch.rand(256, 1, 1, generator=generator, dtype=torch.float64))
    x = (size * unit(256, 1, D, generator=generator)).expand(256, N, D).contiguous()  # every score near the largest
    worst = apart(model, program, Prompt(x, torch.full((256, N, 1), Y).double(), x[:, :1].contiguous()), dtype, 1)
    x = X * torch.rand(256, N, 1, generator=generator, dtype=torch.float64) * unit(256, N, D, generator=generator)
    y = Y * (2 * torch.rand(256, N, 1, generator=generator, dtype=torch.float64) - 1)
    typical = apart(model, program, Prompt(x, y, x[:, :1].contiguous()), dtype, 1)
    assert typical <= worst <= bound <= 3 * worst


@pytest.mark.parametrize(("dtype", "heads"), KINDS)
def test_the_bound_holds_for_many_keys_and_for_a_dump_that_counts_them(generator, dtype, heads):
    model = compile(descent_step(D, eta=ETA, steps=1, x=X, y=Y), "softmax", dtype=dtype, heads=heads)
    x = (0.9995 * X * unit(2, 1, D, generator=generator)).expand(2, 400, D).contiguous()
    p = Prompt(x, torch.full((2, 400, 1), 0.9995 * Y).double(), x[:, :1].contiguous()).to(dtype=dtype)
    assert float(model.measured_error(p).max()) <= model.budget[0][1]
    series = compile(autoregression(1, 1, eta=0.5, steps=1, h=1.0, y=1.0), "softmax", dtype=dtype, heads=heads)
    ((_, bound),) = [told for told in series.budget if told[1] is not None]
    for n in (5, 21, 41):
        for c in (0.99, 0.995, 1.0):
            assert float(series.measured_error(Series(torch.full((1, n, 1), c, dtype=dtype))).max()) <= bound


@pytest.mark.parametrize(("dtype", "heads"), KINDS)
def test_tokens_that_are_no_keys_add_nothing_to_the_error(dtype, heads):
    model = compile(descent_step(1, eta=0.5, steps=1, x=1.0, y=1.0), "softmax", dtype=dtype, heads=heads)
    errors = []
    for n in (1, 2000):  # all but one unseen, and as many queries
        one = torch.ones(1, n, 1, dtype=dtype)
        errors.append(float(model.measured_error(Prompt(one, one, one, torch.arange(n)[None] == 0))[-1]))
    assert errors[1] == errors[0] <= model.budget[0][1]


@pytest.mark.parametrize("made", [torch.float32, torch.float64])
@pytest.mark.parametrize("run", [torch.float32, torch.float64])
def test_the_bound_is_one_where_weights_are_cast(generator, made, run, tmp_path):
    program = descent_step(D, eta=ETA, steps=1, x=X, y=Y)
    model = compile(program, "softmax", dtype=made, outside="ignore").to(run)
    x = (X * unit(256, 1, D, generator=generator)).expand(256, N, D).contiguous()
    p = Prompt(x, torch.full((256, N, 1), Y).double(), x[:, :1].contiguous())
    worst, ((_, bound),) = apart(model, program, p, run, 1), model.budget
    assert worst <= bound <= 10 * worst
    save(model, tmp_path)
    again = load(tmp_path)
    assert (again.dtype, again.budget[0][1]) == (run, bound)


@pytest.mark.parametrize(("dtype", "heads"), KINDS)
@pytest.mark.parametrize("steps", [5, 50])
def test_the_loop_is_below_its_bound_and_the_bound_is_within_30_times(generator, dtype, heads, steps):
    program = descent_step(D, eta=ETA, steps=steps, x=X, y=Y)
    model = compile(program, "softmax", dtype=dtype, heads=heads)
    bound = descent_bound(model.budget[0][1], eta=ETA, norm=X, steps=steps)
    x, q = X * unit(768, N, D, generator=generator), X * unit(768, 1, D, generator=generator)
    bent = (x @ q.mT) ** (heads + 1)  # what truncation adds, without what descent takes away again
    bent = bent - x @ torch.linalg.lstsq(x, bent).solution
    worst = 0.0
    for y in (torch.randn(768, N, 1, generator=generator, dtype=torch.float64).sign(), bent):
        p = Prompt(x, Y * y / y.abs().amax((1, 2), keepdim=True), q)
        worst = max(worst, apart(model, program, p, dtype, steps))
    assert worst <= bound <= 30 * worst


def test_a_descent_bound_covers_the_worst_direction():
    """Against the recursion itself: errors of one sign on one eigenvector, for any eigenvalue."""
    eta, norm, layer, steps = 0.3, 2.0, 1e-3, 12
    for share in (0.01, 0.1, 0.5, 1.0):  # eta * eigenvalue
        lam = share / eta
        e, query = 0.0, 0.0  # the error along the eigenvector, per sqrt(lam), and at a query on it
        for _ in range(steps):
            query = query - eta * norm * math.sqrt(lam) * e
            e = (1 - share) * e + layer
            query -= layer
        bound = descent_bound(layer, eta=eta, norm=norm, steps=steps, least=lam)
        assert abs(query) <= (1 + 1e-12) * bound
        assert bound <= descent_bound(layer, eta=eta, norm=norm, steps=steps)


FUNCTIONS = {
    "curvature": (lambda z: torch.sigmoid(z) * torch.sigmoid(-z), (-4.0, 4.0), 0.3),
    "sigmoid": (torch.sigmoid, (-4.0, 4.0), 0.3),
    "step size": (lambda z: 1 / (1 + z.sqrt() / 0.632), (0.0, 3.0), 0.5),
    "square": (torch.square, (-1.0, 1.0), 0.55),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [64, 256, 1024])
def test_a_table_of_n_hinges_is_wrong_by_a_constant_over_n_squared(name, count):
    f, (low, high), constant = FUNCTIONS[name]
    h = hinges(f, (low, high), count)
    u = torch.linspace(0, 1, 4001, dtype=torch.float64)
    x = low + (high - low) * torch.cat([u, u**6])  # also close to the left end, where a square root bends
    got = h.constant + torch.relu(x[:, None] * h.slope + h.offset) @ h.out
    assert len(h.out) <= count
    assert float((got - f(x)).abs().max()) <= constant / count**2
    single = torch.relu(x.float()[:, None] * h.slope.float() + h.offset.float()) @ h.out.float() + h.constant
    assert float((single - got).abs().max()) <= 3e-6  # steep pieces are off where they would cancel


def test_an_error_without_a_bound_is_reported_as_measured():
    c = CATALOGUE["newton"]
    model = c.compile("softmax")
    assert [bound is None for _, bound in model.budget] == [False, True, True]  # the values u and v have no bound
    p = c.prompts["isotropic"](2, torch.Generator().manual_seed(0))
    measured = model.measured_error(p, 5)
    assert measured.shape == (6,)
    assert 0 < float(measured.max()) <= 2e-9 * float(p.y.abs().max())


def test_scales_want_a_dtype_and_a_score():
    with pytest.raises(ValueError, match=r"dtype must be torch.float64 or torch.float32; got torch.bfloat16"):
        scales(torch.bfloat16, 1.0)
    with pytest.raises(ValueError, match="heads must be one of 2, 4; got 3"):
        scales(torch.float64, 1.0, 3)
    with pytest.raises(ValueError, match="score must be above 0; got 0"):
        scales(torch.float64, 0.0)
