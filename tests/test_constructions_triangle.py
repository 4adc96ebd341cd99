"""Solver = interpreter = every lowering, at every step, for every construction of the catalogue."""

import copy
import pickle
from functools import cache

import pytest
import torch

from algoformer.algorithm import On, rollout
from algoformer.constructions import (
    Interpreter,
    Unsupported,
    autoregression,
    chain_of_thought,
    compile,
    decoder_gradient_descent,
    descent_step,
    fuse,
    gradient_descent,
    least_squares,
    load,
    newton,
    regression_with_representation,
    save,
)
from algoformer.constructions.catalogue import CATALOGUE, LOWERINGS
from algoformer.prompt import Chains, Dense, Prompt, Series
from algoformer.solvers import Features, GradientDescent, Links, Newton, Windows
from algoformer.tasks import Autoregression, ChainOfThought, Representation
from algoformer.testing import laws, regression

CASES = [(name, case) for name, c in CATALOGUE.items() for case in c.prompts]
LOWERED = [(name, low, case) for name, c in CATALOGUE.items() for low in c.bars for case in c.prompts]


@cache
def drawn(name, case, batch, seed, single):
    """Fresh prompts, the scale of their labels, and what the algorithm answers at every step."""
    c = CATALOGUE[name]
    p = c.prompts[case](batch, torch.Generator().manual_seed(seed))
    if single:  # the algorithm runs in float64 on the numbers that a float32 transformer sees
        p = p.to(dtype=torch.float32).to(dtype=torch.float64)
    labels = next(getattr(p, field) for field in ("y", "x", "chains") if hasattr(p, field))
    largest = labels.abs().flatten(1).amax(1)[:, None, None]
    algorithm = Interpreter(c.program()) if c.algorithm is None else c.algorithm()
    return p, largest, algorithm


def error(name, case, model, batch, steps, dtype):
    p, largest, algorithm = drawn(name, case, batch, 1, dtype == torch.float32)
    with torch.no_grad():
        got = model.trace(p.to(dtype=dtype), steps).double()
        return float(((got - algorithm.trace(p, steps)) / largest).abs().max())


def some_steps(name):
    program = CATALOGUE[name].program()
    few = 4 if name == "chain-of-thought" else 12
    return program.steps if name == "fused" else min(program.steps, few)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_interpreter_is_the_algorithm_at_every_step(name, case):
    interpreter = Interpreter(CATALOGUE[name].program())
    assert error(name, case, interpreter, 2, some_steps(name), torch.float64) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("name", "lowering", "case"), LOWERED)
def test_a_lowering_is_the_algorithm_to_its_bar(name, lowering, case, dtype):
    c = CATALOGUE[name]
    bar = c.bars[lowering][dtype == torch.float32]
    assert error(name, case, c.compile(lowering, dtype), 2, some_steps(name), dtype) <= bar


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("name", "lowering", "case"), LOWERED)
def test_a_lowering_is_the_algorithm_to_its_bar_on_64_prompts_at_all_steps(name, lowering, case, dtype):
    c = CATALOGUE[name]
    bar = c.bars[lowering][dtype == torch.float32]
    assert error(name, case, c.compile(lowering, dtype), 64, c.program().steps, dtype) <= bar


@pytest.mark.parametrize("name", CATALOGUE)
def test_what_is_not_in_the_catalogue_is_refused_and_says_why(name):
    c = CATALOGUE[name]
    for lowering in LOWERINGS.keys() - c.bars.keys():
        with pytest.raises(Unsupported, match=r"does not lower to[^:]*:\n  (pre|loop|post): .*: "):
            c.compile(lowering)


@pytest.mark.parametrize(("name", "lowering"), [(name, low) for name, c in CATALOGUE.items() for low in c.bars])
def test_a_saved_transformer_answers_as_before(name, lowering, tmp_path):
    c = CATALOGUE[name]
    p = next(iter(c.prompts.values()))(2, torch.Generator().manual_seed(3))
    model = c.compile(lowering)
    save(model, tmp_path)
    steps = None if name == "fused" else min(2, model.steps)
    with torch.no_grad():
        wanted = model.trace(p, steps)
        again = load(tmp_path)
        assert str(again.program) == str(model.program)
        assert torch.equal(again.trace(p, steps), wanted)
        assert torch.equal(pickle.loads(pickle.dumps(model)).trace(p, steps), wanted)
        assert torch.equal(copy.deepcopy(model).trace(p, steps), wanted)


def test_the_fused_transformer_is_the_unfused_one():
    c = CATALOGUE["fused"]
    network = Representation(d=20, layers=1).phi
    plain = regression_with_representation(network, eta=1 / 30, steps=50, examples=40, h=14.0, y=12.0)
    p = c.prompts["isotropic"](4, torch.Generator().manual_seed(2))
    for lowering, (bar, _) in c.bars.items():
        with torch.no_grad():
            apart = c.compile(lowering).predict(p) - compile(plain, **LOWERINGS[lowering]).predict(p)
        assert float(apart.abs().max()) <= bar * float(p.y.abs().max())


def test_fused_programs_keep_the_spans_the_blocks_and_the_order_of_their_tokens(generator):
    series, dense, chains = (
        torch.randn(2, *s, generator=generator, dtype=torch.float64) for s in ((9, 2), (5, 3), (4, 3, 2))
    )
    for plain, p in (
        (autoregression(2, 2, eta=0.1, steps=3, examples=7), Series(series)),
        (decoder_gradient_descent(2, eta=0.1, steps=3, examples=5), Dense(dense[..., :2], dense[..., 2:])),
        (chain_of_thought(2, 3, slope=0.5, eta=0.1, steps=3, examples=4), Chains(chains, chains[:, 0, :2] + 1)),
    ):
        fused, wanted = fuse(plain), Interpreter(plain).predict(p)
        assert fused.steps == 3 + 2 and [len(layers) for layers in (fused.pre, fused.loop, fused.post)] == [0, 1, 0]
        torch.testing.assert_close(Interpreter(fused).predict(p), wanted, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"only parts of one layer can be fused; post of Newton's iteration .* has 2"):
        fuse(newton(2, most=9.0, steps=1))
    with pytest.raises(ValueError, match=r"only parts of one layer can be fused; pre of .* has 0"):
        fuse(descent_step(2, eta=0.1, steps=1))


def test_compiled_transformers_roll_out_as_their_algorithms_do(generator):
    chains = ChainOfThought(d=4, n=12, layers=4, slope=0.2).sample(3, generator, torch.float64).prompt
    series = Autoregression(d=3, n=20, q=2, width=3, scale=0.2).sample(3, generator, torch.float64)
    phi = Autoregression(d=3, n=20, q=2, width=3, scale=0.2).phi
    descent = GradientDescent(eta=0.02, steps=8)
    for program, algorithm, prompt, length in (
        (chain_of_thought(4, 5, slope=0.2, eta=0.02, steps=8, s=40.0), On(descent, Links(slope=0.2)), chains, 4),
        (autoregression(3, 2, phi, eta=0.02, steps=8, h=30.0), On(descent, Windows(q=2, phi=phi)), series.prompt, 5),
    ):
        wanted = rollout(algorithm, prompt, length)
        with torch.no_grad():
            for attention, bar in (("relu", 1e-12), ("softmax", 1e-7)):
                got = rollout(compile(program, attention), prompt, length)
                assert torch.allclose(got, wanted, rtol=0, atol=bar), attention


def contract():
    linear = gradient_descent(4, eta=0.2, steps=5)
    two = gradient_descent(4, eta=0.2, steps=5, labels=2)
    softmax = compile(descent_step(4, eta=0.05, steps=5, x=9.0, y=30.0), "softmax")
    relu = compile(newton(4, most=90.0, steps=5, reach=50.0), "relu")
    for name, model, tolerance in (
        ("interpreter", Interpreter(linear), 1e4),
        ("linear", compile(linear), 1e4),
        ("two labels", compile(two), 1e4),
        ("softmax", softmax, 1e9),
        ("newton", relu, 1e6),
    ):
        for law in laws(model, dtypes=[torch.float64], tolerance=tolerance):
            yield pytest.param(law, id=f"{name}-{law}")


@pytest.mark.parametrize("law", list(contract()))
def test_a_compiled_transformer_keeps_the_contract_of_an_algorithm(law):
    law()


def test_queries_and_labels_beyond_those_answered_at_once_are_folded_into_the_batch(generator):
    p = regression(generator, torch.float64)  # 3 queries, 2 labels; the program answers one of each
    program = least_squares(4, scale=1e-4, steps=4)
    wanted = Newton(scale=1e-4, steps=4).trace(p)
    assert torch.allclose(compile(program, masked=False).trace(p), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_pairs_that_are_hidden_say_nothing_to_solver_interpreter_and_transformer(name, case):
    c = CATALOGUE[name]
    p = c.prompts[case](3, torch.Generator().manual_seed(1))
    if not isinstance(p, Prompt) or c.algorithm is None:
        pytest.skip("it has no pairs, or no solver")
    seen = p.seen.clone()
    seen[:, [0, 3]] = False  # the first tokens carry the columns of matrices too
    p, steps = Prompt(p.x, p.y, p.queries, seen), min(c.program().steps, 5)
    wanted = c.algorithm().trace(p, steps)
    bars = {lowering: bar * p.y.abs().max() for lowering, (bar, _) in c.bars.items()}
    assert (Interpreter(c.program()).trace(p, steps) - wanted).abs().max() <= min(bars.values())
    for lowering, bar in bars.items():
        with torch.no_grad():
            assert (c.compile(lowering).trace(p, steps) - wanted).abs().max() <= bar, lowering


def test_every_prefix_of_a_dense_prompt_is_in_the_declared_range(generator):
    network = Representation(d=3, layers=2).phi
    program = regression_with_representation(network, eta=0.02, steps=3, examples=16, h=30.0, y=4.0)
    p = Dense(torch.rand(1, 10, 3, generator=generator, dtype=torch.float64), torch.ones(1, 10, 1, dtype=torch.float64))
    wanted = On(GradientDescent(eta=0.02, steps=3), Features(network)).predict(p)
    for attention, bar in (("relu", 1e-12), ("softmax", 1e-8)):
        with torch.no_grad():
            assert torch.allclose(compile(program, attention).predict(p), wanted, rtol=0, atol=bar)


def test_a_prompt_without_queries_has_no_answers():
    p = regression(torch.Generator().manual_seed(0), torch.float64)
    none = Prompt(p.x, p.y, p.queries[:, :0])
    program = least_squares(p.x.shape[2], scale=0.01, steps=3)
    for machine in (Interpreter(program), compile(program, "linear")):
        with torch.no_grad():
            assert machine.predict(none).shape == none.asked
