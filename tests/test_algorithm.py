from dataclasses import replace

import pytest
import torch

from algoformer import Algorithm, Chains, Dense, Diverged, On, Prompt, Series, rollout
from algoformer.solvers import Features, GradientDescent, LeastSquares, Links, Newton, Windows
from algoformer.testing import laws
from problems import draw


class Halving(Algorithm[Prompt, torch.Tensor]):
    """A solver of one's own: half of the way to least squares at every step."""

    def __init__(self, steps):
        self.steps = steps

    def init(self, p):
        return p.x.new_zeros(p.asked)

    def step(self, p, s, t):
        return (s + LeastSquares().predict(p)) / 2

    def read(self, p, s):
        return s


class Broken(Halving):
    """Halving with methods replaced for one test."""


def broken(monkeypatch, **methods):
    for name, method in methods.items():
        monkeypatch.setattr(Broken, name, method, raising=False)
    return Broken(steps=3)


@pytest.mark.parametrize("law", laws(Halving(steps=5)), ids=str)
def test_own_solver_gets_its_suite_in_two_lines(law):
    law()


def noisy(self, p, s):
    return s + torch.rand(())


def leaking(self, p):
    return Halving.init(self, p) + (p.x * ~p.seen[..., None]).sum()


def leaking_where_tied(self, p):
    return leaking(self, p) if bool((p.pairs[0] == p.pairs[0].round()).all()) else Halving.init(self, p)


def small(self, p, s):
    return 1e-15 * s


def counting(self, p):
    return Halving.init(self, p) + p.x.shape[1]


def turning(self, p, s, t):
    n = p.x.shape[1]
    return s + p.pairs[0][:, t % n, None, :1] if n else s


def ordered(self, p):
    return Halving.init(self, p) + p.pairs[0][:, :1, :1]


def meeting(self, p):
    return Halving.init(self, p) + p.pairs[0].sum()


def asking_together(self, p):
    return Halving.init(self, p) + p.queries.sum((1, 2))[:, None, None]


def single(self, p, s):
    return s.float() if s.dtype == torch.float64 else s.double()


def biased(self, p, s):
    return s + 1


def seeing_all(self, p):
    return replace(q, seen=~q.seen) if isinstance(p, Dense) and (q := p.expand()) else p


def detached(self, p, s):
    return s.detach()


@pytest.mark.parametrize(
    ("method", "law"),
    [
        ({"read": noisy}, "determinism"),
        ({"init": leaking}, "unseen_pairs_have_no_influence"),
        ({"init": leaking, "read": small}, "unseen_pairs_have_no_influence"),
        ({"init": leaking_where_tied}, "unseen_pairs_have_no_influence"),
        ({"init": counting}, "more_unseen_pairs_change_nothing"),
        ({"init": ordered}, "permutation"),
        ({"init": meeting}, "prompts_of_a_batch_do_not_meet"),
        ({"init": asking_together}, "queries_of_a_prompt_do_not_meet"),
        ({"read": single}, "shape_and_dtype"),
        ({"read": biased}, "no_pairs"),
        ({"read": detached}, "autograd_flows_or_is_refused_by_name"),
        ({"limit": 2, "_count": lambda self, p, steps: steps or 0}, "more_steps_extend_the_trace"),
        ({"_count": lambda self, p, steps: max(steps or 0, 0)}, "negative_steps_are_refused"),
        ({"horizon": lambda self, p: 1, "predict": lambda self, p, steps=None: p.y * 0}, "trace_ends_in_predict"),
        ({"__deepcopy__": lambda self, memo: Halving(steps=1)}, "copies_agree"),
        ({"prepare": seeing_all}, "dense_is_predict_on_every_prefix"),
        ({"horizon": lambda self, p: p.x.shape[1], "step": turning}, "dense_is_predict_on_every_prefix"),
        ({"predict": lambda self, p, steps=None: p.y[:, :1]}, "no_queries"),
    ],
)
def test_every_law_can_fail(method, law, monkeypatch):
    (case,) = [c for c in laws(broken(monkeypatch, **method), dtypes=[torch.float64]) if c.name == law]
    with pytest.raises(AssertionError):
        case()


def test_every_law_is_broken_above():
    (broken_laws,) = [mark.args[1] for mark in test_every_law_can_fail.pytestmark if mark.name == "parametrize"]
    assert {law for _, law in broken_laws} == {case.name for case in laws(Halving(steps=1))}


def test_a_law_that_is_not_there_cannot_be_left_out():
    with pytest.raises(ValueError, match=r"without must name laws of the contract; got \['gravity'\]"):
        laws(Halving(steps=1), without=["gravity"])


def test_states_are_lazy_and_check_their_steps_at_once():
    p, _, _ = draw(0, 2)
    states = Halving(steps=10**9).states(p)
    assert len([next(states) for _ in range(4)]) == 4
    with pytest.raises(ValueError, match="steps must be at least 0; got -1"):
        Halving(steps=1).states(p, -1)
    with pytest.raises(TypeError, match=r"steps must be an integer; got 2\.5"):
        Halving(steps=1).states(p, 2.5)


def test_a_prompt_of_another_kind_is_refused_by_name():
    with pytest.raises(TypeError, match="GradientDescent answers a Prompt; got Series"):
        GradientDescent().predict(Series(torch.zeros(1, 4, 2)))
    with pytest.raises(TypeError, match="Newton answers a Prompt or Dense; got Chains"):
        Newton().predict(Chains(torch.zeros(1, 4, 2, 2)))


# Reductions


def series(q=2, n=30, d=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    a = torch.randn(4, q * d, d, generator=g, dtype=torch.float64) / (q * d) ** 0.5
    x = [torch.randn(4, 1, d, generator=g, dtype=torch.float64) for _ in range(q)]
    while len(x) < n:
        x.append(torch.tanh(torch.cat(x[-q:], 2)) @ a)
    return torch.cat(x, 1), a


def test_windows_find_the_coefficients_of_a_series_and_continue_it():
    x, _ = series()
    solver = On(LeastSquares(), Windows(q=2, phi=torch.tanh))
    torch.testing.assert_close(solver.predict(Series(x[:, :20])), x[:, 20:21], rtol=0, atol=1e-9)
    torch.testing.assert_close(rollout(solver, Series(x[:, :20]), 10), x[:, 20:], rtol=0, atol=1e-7)


def test_windows_of_every_value_are_windows_of_each_prefix():
    x, _ = series(n=9)
    solver = On(GradientDescent(steps=4), Windows(q=2))
    every = solver.trace(Series(x, every=True))
    assert not every[:, :, :2].any()
    for t in range(2, 9):
        torch.testing.assert_close(every[:, :, t : t + 1], solver.trace(Series(x[:, :t])), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="a series must have at least q = 2 values; got 1"):
        solver.predict(Series(x[:, :1]))


def chains(n=12, length=4, d=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(4, length, d, d, generator=g, dtype=torch.float64)
    s = [torch.randn(4, n, d, generator=g, dtype=torch.float64)]
    for layer in range(length):
        s.append(torch.nn.functional.leaky_relu(s[-1] @ w[:, layer].mT, 0.2))
    return torch.stack(s, 2)


def test_links_find_the_layers_of_a_chain_and_complete_it():
    s = chains()
    solver = On(LeastSquares(), Links(slope=0.2))
    prompt = Chains(s[:, :-1], s[:, -1, :1])
    torch.testing.assert_close(rollout(solver, prompt, 4), s[:, -1, 1:], rtol=0, atol=1e-8)
    with pytest.raises(ValueError, match="partial must hold"):
        rollout(solver, prompt, 5)


def test_links_of_every_state_are_links_of_each_partial_chain():
    s = chains(n=5)
    solver = On(GradientDescent(steps=3), Links(slope=0.2))
    every = solver.trace(Chains(s)).reshape(4, 4, 5, 4, 3)
    for i in range(5):
        for layer in range(4):
            part = Chains(s[:, :i], s[:, i, : layer + 1])
            torch.testing.assert_close(every[:, :, i, layer], solver.trace(part)[:, :, 0], rtol=0, atol=1e-12)


def test_features_are_a_regression_on_features():
    p, _, _ = draw(5, 3, d=4, n=9)
    by_hand = Prompt(p.x**2, p.y, p.queries**2)
    solver = On(Newton(steps=5), Features(torch.square))
    torch.testing.assert_close(solver.trace(p), Newton(steps=5).trace(by_hand))
    dense = Dense(p.x, p.y)
    torch.testing.assert_close(solver.trace(dense), Newton(steps=5).trace(Dense(p.x**2, p.y)))
    assert solver.steps == 5
    assert On(LeastSquares(), Features(torch.square)).limit == 0


def test_rollout_refuses_what_has_no_next_value():
    p, _, _ = draw(6, 1)
    with pytest.raises(TypeError, match="a rollout continues a Series or a Chains; got Prompt"):
        rollout(LeastSquares(), p, 3)
    with pytest.raises(ValueError, match="length must be at least 0; got -2"):
        rollout(On(LeastSquares(), Windows(q=1)), Series(torch.zeros(1, 3, 2)), -2)
    assert rollout(On(LeastSquares(), Windows(q=1)), Series(torch.zeros(1, 3, 2)), 0).shape == (1, 0, 2)
    with pytest.raises(ValueError, match="asks one value, its next; this asks every value"):
        rollout(On(LeastSquares(), Windows(q=1)), Series(torch.zeros(1, 3, 2), every=True), 1)


def test_rollout_refuses_what_asks_every_value_also_where_that_is_one():
    one, pair = torch.randn(1, 1, 2), torch.randn(1, 1, 2, 2)
    for solver, prompt in (
        (On(LeastSquares(), Windows(q=1)), Series(one, every=True)),
        (On(LeastSquares(), Links(slope=0.2)), Chains(pair)),
    ):
        with pytest.raises(ValueError, match="asks one value, its next; this asks every value"):
            rollout(solver, prompt, 1)


def test_where_it_diverged_is_found_without_going_on_and_without_keeping_the_trace():
    p, _, _ = draw(6, 1)
    solver, steps = GradientDescent(steps=4000, eta=5.0), []

    class Watched(type(solver)):
        def step(self, p, s, t):
            steps.append(t)
            return super().step(p, s, t)

    with pytest.raises(Diverged) as caught:
        Watched(steps=4000, eta=5.0).predict(p)
    sick = solver.trace(p).isfinite().logical_not().flatten(1).any(1).nonzero()[0]
    assert caught.value.step == int(sick)
    assert len(steps) == 4000 + int(sick)
