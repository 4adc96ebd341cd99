"""The training loop: its loss, its curricula, its checkpoints, and that nothing is lost."""

import contextlib
import copy
import hashlib
import itertools
import json
import math
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from algoformer import On, Prompt, Task
from algoformer.constructions import compile, newton
from algoformer.experiments.store import address
from algoformer.experiments.trained import key
from algoformer.models import (
    AlgoFormer,
    AlgoFormerConfig,
    LinearTransformer,
    LinearTransformerConfig,
    Looped,
    LoopedConfig,
    Transformer,
    TransformerConfig,
)
from algoformer.solvers import GradientDescent, LeastSquares, Newton
from algoformer.tasks import (
    ChainOfThought,
    Conditioned,
    Given,
    LinearRegression,
    LogisticRegression,
    OtherCovariance,
    OtherNoise,
    Representation,
    SparseLinear,
    Spectrum,
)
from algoformer.training import (
    Bar,
    Interrupted,
    OutOfTime,
    Ramp,
    Recipe,
    TensorBoard,
    TrainConfig,
    TrainingDiverged,
    Watch,
    checkpoint,
    device_named,
    evaluate,
    load,
    rao_blackwell,
    recipe_of,
    task_named,
    train,
    window_loss,
)
from algoformer.training.codec import decode, encode, model_of
from algoformer.training.config import Plan
from algoformer.training.cost import cost
from algoformer.training.curriculum import Curriculum
from algoformer.training.data import Data, Size, seed_of, seeded
from algoformer.training.evaluation import final, undropped
from algoformer.training.presets import PRESETS, describe, override, preset
from algoformer.training.step import Step

HERE = Path(__file__).parent
TASK = LinearRegression(d=3, n=4, dense=True)
TINY = {"features": 3, "width": 16, "heads": 2, "positions": 16}


def tiny(seed=0, **changes):
    config = AlgoFormerConfig(**{**TINY, "loops": 3, **changes})
    return AlgoFormer(config, torch.Generator().manual_seed(seed))


def rows(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def process(script, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")}
    return subprocess.Popen([sys.executable, str(HERE / script), *map(str, arguments)], env=environment)


# The loss


@pytest.mark.parametrize("eq6", [False, True])
@pytest.mark.parametrize("robust", [None, 0.5])
def test_the_loss_is_the_mean_over_the_last_loops_of_the_trace(eq6, robust, generator):
    model = tiny().double()
    sample = TASK.sample(6, generator, torch.float64)
    weight = torch.tensor([1.0, 1, 0, 1, 0.5], dtype=torch.float64)
    loss = window_loss(
        model, sample.prompt, sample.target, weight, loops=5, window=2, gradient=2, robust=robust, eq6=eq6
    )
    error = (model.trace(sample.prompt, 5) - sample.target).square()
    error = error if robust is None else (1 + error / robust).log()
    per_loop = (error[..., 0] * weight).sum(2) / weight.sum()
    wanted = (per_loop[3] + per_loop[4] + per_loop[5]) / 2 if eq6 else (per_loop[4] + per_loop[5]) / 2
    torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=0)


def test_the_default_window_of_20_and_15_is_15_loops(generator):
    model = tiny(loops=20).double()
    sample = TASK.sample(2, generator, torch.float64)
    plan = Plan.of(model, TrainConfig())
    assert (plan.window, plan.gradient) == (15, 15)
    weight = torch.ones(5, dtype=torch.float64)
    loss = window_loss(model, sample.prompt, sample.target, weight, loops=20, window=15, gradient=15)
    error = (model.trace(sample.prompt) - sample.target).square().mean((2, 3))
    torch.testing.assert_close(loss, error[6:].mean(0), rtol=1e-10, atol=0)


def test_only_the_last_loops_carry_gradient(generator):
    """Against a hand-made truncation: the stream before the last loops as a constant."""
    model = tiny().double()
    sample = TASK.sample(4, generator, torch.float64)
    weight = torch.ones(5, dtype=torch.float64)
    window_loss(model, sample.prompt, sample.target, weight, loops=6, window=2, gradient=2).sum().backward()
    got = [v.grad.clone() for v in model.parameters()]
    model.zero_grad()
    *_, early = model.states(sample.prompt, 4)
    s, total = model.init(sample.prompt)._replace(z=early.z.detach()), 0.0
    for t in (4, 5):
        s = model.step(sample.prompt, s, t)
        total = total + (model.read(sample.prompt, s) - sample.target).square().mean((1, 2)) / 2
    total.sum().backward()
    for mine, v in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(mine, v.grad, rtol=1e-8, atol=1e-12)
    assert all(bool(g.any()) for g in got)


def test_truncation_that_freezes_a_part_of_the_model_is_refused():
    for model in (tiny(injection=False), Looped(LoopedConfig(**TINY, loops=3, positions_in_loop=False))):
        with pytest.raises(ValueError, match="would never learn"):
            Plan.of(model, TrainConfig(window=2))
        assert Plan.of(model, TrainConfig(window=2, gradient_loops=3)) == Plan(2, 3)
    layered = Transformer(TransformerConfig(**TINY, layers=4))
    assert Plan.of(layered, TrainConfig()) == Plan(1, 4)
    with pytest.raises(ValueError, match="the first layers would never learn"):
        Plan.of(layered, TrainConfig(gradient_loops=2))
    linear, looped = (LinearTransformer(LinearTransformerConfig(layers=3, looped=looped)) for looped in (False, True))
    with pytest.raises(ValueError, match="the first layers would never learn"):
        Plan.of(linear, TrainConfig(gradient_loops=2))
    assert Plan.of(looped, TrainConfig(window=1, gradient_loops=2)) == Plan(1, 2)
    with pytest.raises(ValueError, match="layered model"):
        Plan.of(layered, TrainConfig(random_loops=(2, 3)))


def test_the_refused_truncation_would_indeed_give_pre_no_gradient(generator):
    model = tiny(injection=False)
    sample = TASK.sample(4, generator)
    window_loss(model, sample.prompt, sample.target, torch.ones(5), loops=3, window=2, gradient=2).sum().backward()
    assert all(v.grad is None for v in model.pre.parameters())


def test_memory_grows_with_the_loops_that_carry_gradient_and_not_with_the_others():
    def memory(loops, window):
        return cost(AlgoFormerConfig(**TINY, loops=loops), TASK, TrainConfig(batch=4, window=window))["memory"]

    assert memory(60, 5) == memory(20, 5)
    assert memory(20, 10) > 1.5 * memory(20, 5) - 16 * 12_000


def test_the_cost_counts_the_products_of_a_step():
    """By hand: 6 FLOPs a weight and token, attention's products, the read-out at 2 of 3 tokens."""
    c = cost(TransformerConfig(**TINY, layers=2), replace(TASK, n=1), TrainConfig(batch=1))
    tokens, e = 3, 16
    block = 12 * e * e
    attention = 2 * 2 * tokens * tokens * e * 3.5  # SDPA's backward pass makes five products to the forward's two
    linear = 3 * 2 * tokens * (2 * block) + 2 * 2 * tokens * 3 * e + 3 * 2 * 2 * e
    assert c["flops"] == pytest.approx(linear + 2 * attention, rel=0.05)
    assert c["parameters"] == sum(v.numel() for v in Transformer(TransformerConfig(**TINY, layers=2)).parameters())


def test_the_cost_of_a_random_number_of_loops_is_the_mean_over_all_of_them():
    model = AlgoFormerConfig(**TINY, loops=6)

    def flops(**changes):
        return cost(model, TASK, TrainConfig(batch=2, **changes))["flops"]

    for how in ({"window": 4}, {"window": 2, "gradient_loops": 5}, {"window": 1, "gradient_loops": 6}):
        each = [flops(random_loops=(t, t), **{k: min(v, t) for k, v in how.items()}) for t in range(2, 7)]
        assert flops(random_loops=(2, 6), **how) == pytest.approx(sum(each) / len(each), abs=1)
    assert flops(window=4, loss="eq6") > flops(window=4)


def test_the_cost_of_the_exact_loss_counts_its_queries():
    model, task = LinearTransformerConfig(features=5, form="eq9"), LinearRegression(d=5, n=6)
    exact, plain = (cost(model, task, TrainConfig(batch=3, loss=loss))["flops"] for loss in ("rao-blackwell", "window"))
    assert exact > 2 * plain


@pytest.mark.parametrize("form", ["eq9", "eq13"])
def test_the_rao_blackwellised_loss_is_the_mean_over_weights_and_queries(form, generator):
    sigma = Spectrum().fixed(5, generator).matrix
    model = LinearTransformer(LinearTransformerConfig(features=5, form=form, init=0.3), generator).double()
    x = torch.randn(1, 8, 5, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(sigma).mT
    exact = rao_blackwell(model, x, sigma[None], sigma.inverse()[None])
    draws = 40_000
    w = torch.randn(draws, 5, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(sigma.inverse()).mT
    q = torch.randn(draws, 1, 5, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(sigma).mT
    many = x.expand(draws, -1, -1)
    with torch.no_grad():
        error = model(Prompt(many, many @ w[:, :, None], q)) - q @ w[:, :, None]
    square = error.square().flatten()
    assert float(exact.detach()) == pytest.approx(float(square.mean()), abs=4 * float(square.std()) / math.sqrt(draws))


@pytest.mark.parametrize("prior", ["identity", "inverse"])
def test_the_rao_blackwellised_loss_of_a_step_is_that_of_its_prompts(prior, generator):
    """With inputs that are not active, and with the loops that the step has."""
    sigma = Spectrum(eigenvalues=(1.0, 0.5, 0.25, 2.0)).fixed(4, generator)
    task = LinearRegression(d=4, n=6, active=2, prior=prior, covariance=sigma)
    shape = LinearTransformerConfig(features=4, layers=5, looped=True, init=0.2)
    model = LinearTransformer(shape, generator).double()
    draws = 40_000
    for loops, window in ((1, 1), (4, 2)):
        config = TrainConfig(batch=draws, window=window, gradient_loops=5, seed=3)
        found = {}
        for loss in ("window", "rao-blackwell"):
            c = replace(config, loss=loss)
            batch = Data(task, c, torch.device("cpu"), torch.float64).batch(0, Size(None, None, loops))
            with torch.no_grad():
                found[loss] = float(Step(model, task, c, torch.device("cpu")).loss(batch, loops))
        assert found["rao-blackwell"] == pytest.approx(found["window"], rel=0.04)


def test_a_curriculum_by_the_rao_blackwellised_loss_moves_on(generator):
    model = LinearTransformer(LinearTransformerConfig(features=3, layers=2, looped=True, init=0.1), generator)
    config = TrainConfig(
        steps=240, batch=64, lr=0.05, warmup=0, loss="rao-blackwell", window=1, gradient_loops=2, advance_after=20,
        log_every=10, dims=Ramp(start=1, stop=3),
    )  # fmt: skip
    reached = train(model, LinearRegression(d=3, n=20), config).reached
    assert [row["dims"] for row in reached] == [1, 2, 3]


def test_the_rao_blackwellised_loss_is_refused_where_it_is_not_exact():
    config = TrainConfig(loss="rao-blackwell", steps=1, window=1)
    for model, task in (
        (tiny(), TASK),
        (LinearTransformer(LinearTransformerConfig(features=3, form="u")), LinearRegression(d=3, n=4)),
        (LinearTransformer(LinearTransformerConfig(features=3)), LinearRegression(d=3, n=4, noise=0.1)),
    ):
        with pytest.raises(ValueError, match="rao-blackwell needs"):
            train(model, task, config)


# Data and curricula


def test_data_are_a_function_of_seed_and_step():
    def batch(step, seed=0, **changes):
        data = Data(TASK, TrainConfig(batch=4, seed=seed, **changes), torch.device("cpu"), torch.float32)
        for early in range(3):
            data.batch(early, Size(None, None, 3))  # a history that must not matter
        return data.batch(step, Size(None, None, 3)).target

    direct = Data(TASK, TrainConfig(batch=4), torch.device("cpu"), torch.float32).batch(7, Size(None, None, 3)).target
    assert torch.equal(batch(7), direct)
    assert not torch.equal(batch(7), batch(8))
    assert not torch.equal(batch(7), batch(7, seed=1))
    assert not torch.equal(batch(7), batch(6))
    pooled = {tuple(row.flatten().tolist()) for step in range(20) for row in batch(step, pool=6)}
    assert len(pooled) == 6


def test_a_pool_is_drawn_anew_for_another_seed_and_another_size():
    def pooled(seed, *dims):
        data = Data(TASK, TrainConfig(batch=4, pool=6, seed=seed), torch.device("cpu"), torch.float32)
        for d in dims:
            batch = data.batch(0, Size(d, None, 3)).target
        pool = data.pool[1].target
        return pool, [int((pool == row).flatten(1).all(1).nonzero()) for row in batch]

    (one, rows_of_one), (other, rows_of_other) = pooled(0, 3), pooled(1, 3)
    assert not torch.equal(one, other) and rows_of_one != rows_of_other
    grown, rows_of_grown = pooled(0, 2, 3)
    assert torch.equal(grown, one) and rows_of_grown == rows_of_one


def test_two_processes_share_out_the_rows_of_one_batch():
    def batch(rank, world):
        data = Data(TASK, TrainConfig(batch=6), torch.device("cpu"), torch.float32, rank=rank, world=world)
        return data.batch(3, Size(2, 3, 3)).prompt

    whole = batch(0, 1)
    assert torch.equal(torch.cat([batch(r, 3).x for r in range(3)]), whole.x)
    assert whole.x.shape == (6, 4, 3) and not whole.x[..., 2].any()
    with pytest.raises(ValueError, match="multiple of the 4 processes"):
        batch(0, 4)


def test_padding_changes_neither_loss_nor_gradient():
    config, model = TrainConfig(batch=4), tiny().double()
    out = []
    for padded in (False, True):
        data = Data(TASK, config, torch.device("cpu"), torch.float64, padded=padded)
        b = data.batch(0, Size(None, 2, 3))
        assert b.prompt.x.shape[1] == (5 if padded else 3)
        model.zero_grad()
        loss = window_loss(model, b.prompt, b.target, b.weight, loops=3, window=3, gradient=3)
        loss.sum().backward()
        out.append((loss.detach(), model.embed.weight.grad.clone(), model.body.stack.blocks[0].up.weight.grad.clone()))
    for short, long in zip(*out, strict=True):
        torch.testing.assert_close(short, long, rtol=1e-10, atol=1e-14)


def test_a_curriculum_by_the_clock_is_gargs():
    r = preset("garg").train
    c = Curriculum(preset("garg").task, r, 12)
    assert c.size(0) == Size(5, 10, 12)
    assert c.size(1999) == Size(5, 10, 12)
    assert c.size(2000) == Size(6, 12, 12)
    assert c.size(29_999)[:2] == (19, 38)
    assert c.size(30_000)[:2] == (20, 40) == c.size(400_000)[:2]
    assert not c.full(29_999) and c.full(30_000)


def test_a_curriculum_by_the_loss_advances_at_six_tenths_of_the_way_to_the_oracle_and_not_before_200_steps():
    task = LinearRegression(d=20, n=40, dense=True)
    c = Curriculum(task, TrainConfig(dims=Ramp(start=5, stop=8)), 20)
    zero, oracle = c.bounds(c.size(0))
    assert zero == pytest.approx(5, rel=0.1)
    assert oracle == pytest.approx(15 / 41, rel=0.2)  # min-norm least squares: sum of (5 - i) over 41 positions
    good, bad = zero - 0.61 * (zero - oracle), zero - 0.59 * (zero - oracle)
    c.observe(200, [bad] * 200)
    assert c.size(200).dims == 5
    c.observe(400, [good] * 400)
    assert c.size(400).dims == 6
    zero, oracle = c.bounds(c.size(400))
    assert zero == pytest.approx(6, rel=0.1)
    c.observe(550, [oracle] * 150)
    assert c.size(550).dims == 6
    c.observe(600, [oracle] * 50)
    assert c.size(600).dims == 7
    c.observe(800, [7.0])  # what was lost at 6 dimensions says nothing of 7
    assert c.size(800).dims == 7
    c.observe(801, [oracle] * 400)
    assert c.size(801).dims == 8 and c.full(801)
    state = json.loads(json.dumps(c.state()))
    twin = Curriculum(task, TrainConfig(dims=Ramp(start=5, stop=8)), 20)
    twin.restore(state)
    assert twin.size(801) == c.size(801)


def test_ramps_by_the_loss_go_on_until_the_last_of_them_is_at_its_end():
    ramps = {"dims": Ramp(start=2, stop=3), "examples": Ramp(start=2, stop=4)}
    c = Curriculum(TASK, TrainConfig(**ramps, advance=-9.0, advance_after=1), 3)
    for step in (1, 2, 3):
        c.observe(step, [1.0])
    assert c.size(3) == Size(3, 4, 3) and c.stage == 2


def test_what_is_good_enough_is_found_once_a_stage_before_it_is_asked_and_aside(monkeypatch):
    asked, real = [], Curriculum.bounds

    def watched(self, size):
        asked.append((size.dims, threading.current_thread() is threading.main_thread()))
        return real(self, size)

    monkeypatch.setattr(Curriculum, "bounds", watched)
    c = Curriculum(
        LinearRegression(d=3, n=4, dense=True), TrainConfig(dims=Ramp(start=1, stop=3), random_loops=(2, 9)), 3
    )
    for step in (50, 100, 150):
        c.observe(step, [9.0] * 50)
    c._begun[1].result()
    assert asked == [(1, False)]
    for step in range(200, 700, 50):
        c.observe(step, [0.0] * 50)
    assert asked == [(1, False), (2, False)] and c.full(700)


def test_the_bounds_of_a_curriculum_are_those_of_numpys_least_squares_on_its_prompts():
    task = LinearRegression(d=3, n=4, dense=True)
    zero, oracle = Curriculum(task, TrainConfig(seed=7), 3).bounds(Size(2, 3, 0))
    smaller = replace(task, active=2, n=3)
    sample = smaller.sample(2048, seeded(torch.Generator(), 7, "bounds"), torch.float64)
    x, y, few = sample.prompt.x.numpy(), sample.target.numpy(), range(64)
    found = [[np.linalg.lstsq(x[b, :i], y[b, :i], rcond=None)[0].T @ x[b, i] for i in range(4)] for b in few]
    assert zero == pytest.approx((y**2).mean())
    assert oracle == pytest.approx(zero * ((np.array(found) - y[:64]) ** 2).mean() / (y[:64] ** 2).mean())
    assert Curriculum(LogisticRegression(d=3, n=4), TrainConfig(), 3).bounds(Size(None, None, 0))[1] == 0
    shared, each = (
        Curriculum(t, TrainConfig(), 3).bounds(Size(2, 2, 0))[1]
        for t in (replace(SHARED, dense=True), replace(SHARED, dense=True, covariance=Conditioned(kappa=10.0)))
    )
    assert shared == pytest.approx(each, rel=0.2)


def test_a_curriculum_that_goes_on_from_its_state_moves_as_it_would_have(monkeypatch):
    """At exactly the bar, (2 - 1.5) / (2 - 1) = 0.5, it does not move."""
    monkeypatch.setattr(Curriculum, "bounds", lambda self, size: (2.0, 1.0))
    config = TrainConfig(dims=Ramp(start=1, stop=3), advance=0.5, advance_after=20)
    whole = Curriculum(TASK, config, 3)
    seen = [(20, [1.5]), (30, []), (31, [1.0]), (51, []), (55, [1.9]), (60, [1.0] * 30), (70, [1.0])]
    for split in range(len(seen)):
        whole, parts = Curriculum(TASK, config, 3), Curriculum(TASK, config, 3)
        sizes = []
        for i, (step, losses) in enumerate(seen):
            if i == split:
                state = json.loads(json.dumps(parts.state()))
                parts = Curriculum(TASK, config, 3)
                parts.restore(state)
            for c in (whole, parts):
                c.observe(step, losses)
            assert parts.state() == whole.state()
            sizes.append(whole.size(step).dims)
        assert sizes == [1, 1, 2, 2, 2, 3, 3]


def test_a_curriculum_notes_the_first_step_of_each_size_and_nothing_without_ramps():
    c = Curriculum(TASK, TrainConfig(loops=Ramp(start=2, stop=5, by=2, every=3)), 9)
    assert [c.size(step).loops for step in range(8)] == [2, 2, 2, 4, 4, 4, 5, 5]
    notes = [c.note(step) for step in range(8)]
    first = {0: 2, 3: 4, 6: 5}
    assert notes == [{"step": i, "event": "size", "loops": first[i]} if i in first else None for i in range(8)]
    assert c.reached == [{"step": step, "loops": loops} for step, loops in first.items()]
    plain = Curriculum(TASK, TrainConfig(), 9)
    assert plain.note(0) is None and plain.reached == [] and plain.size(0) == Size(None, None, 9)


def test_random_loop_counts_cover_their_range_and_depend_on_seed_and_step_alone():
    c = Curriculum(TASK, TrainConfig(random_loops=(2, 5)), 3)
    drawn = [c.size(step).loops for step in range(200)]
    assert set(drawn) == {2, 3, 4, 5}
    assert drawn == [Curriculum(TASK, TrainConfig(random_loops=(2, 5)), 3).size(step).loops for step in range(200)]
    other = Curriculum(TASK, TrainConfig(random_loops=(2, 5), seed=1), 3)
    assert drawn != [other.size(step).loops for step in range(200)]


def test_a_run_that_is_not_at_full_size_by_half_its_steps_is_marked_stuck(tmp_path):
    config = TrainConfig(
        steps=10, batch=4, lr=1e-9, dims=Ramp(start=1, stop=3), advance=0.99, advance_after=1, log_every=1
    )
    result = train(tiny(), TASK, config, tmp_path)
    assert result.stuck and result.reached == [{"step": 0, "dims": 1}]
    assert {"step": 5, "event": "stuck"} in rows(tmp_path / "log.jsonl")
    assert train(tiny(), TASK, replace(config, steps=9)).stuck
    quick = train(tiny(), TASK, replace(config, advance=-9.0, lr=1e-3))
    assert not quick.stuck and [r["dims"] for r in quick.reached] == [1, 2, 3]


def test_a_curriculum_by_the_loss_measures_as_the_loss_does():
    ramp = {"dims": Ramp(start=1, stop=3), "advance_after": 5, "log_every": 5}
    for robust in (None, 1.0, 100.0):
        config = TrainConfig(steps=40, batch=8, lr=1e-9, warmup=0, robust=robust, **ramp)
        assert train(tiny(), replace(TASK, d=3), config).reached == [{"step": 0, "dims": 1}]  # nothing is learned
    with pytest.raises(ValueError, match=r"a ramp must go by the clock \(every\) with the loss eq6"):
        TrainConfig(loss="eq6", **ramp)


def test_a_curriculum_the_task_does_not_know_is_refused_before_the_first_step():
    model = AlgoFormer(AlgoFormerConfig(features=3, labels=3, width=16, heads=2, positions=64, loops=3))
    with pytest.raises(ValueError, match="field active"):
        train(model, ChainOfThought(d=3, n=2, dense=True), TrainConfig(steps=2, dims=Ramp(start=1, stop=3)))


# Training


def test_one_hundred_steps_on_one_batch_learn_it():
    task = LinearRegression(d=5, n=8, dense=True)
    model = AlgoFormer(
        AlgoFormerConfig(features=5, width=64, heads=4, positions=32, loops=3), torch.Generator().manual_seed(0)
    )
    result = train(model, task, TrainConfig(steps=100, batch=16, pool=16, lr=5e-3, warmup=10, window=2, log_every=10))
    data = Data(task, TrainConfig(batch=16, pool=16), torch.device("cpu"), torch.float32)
    batch = data.batch(0, Size(None, None, 3))
    zero = float(batch.target.square().mean())
    assert result.loss < 0.05 * zero
    error = (model.predict(batch.prompt).detach() - batch.target).square().mean()
    assert float(error) < 0.05 * zero


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "lbfgs"])
def test_every_optimiser_lowers_the_loss(optimiser):
    model = LinearTransformer(LinearTransformerConfig(features=3, layers=2, init=0.1), torch.Generator().manual_seed(0))
    config = TrainConfig(steps=30, batch=8, pool=8, optimiser=optimiser, lr=0.05, warmup=0, log_every=1, clip=None)
    losses = []
    train(model, LinearRegression(d=3, n=9), config, progress=lambda p: losses.append(p.loss))
    assert losses[-1] < 0.5 * losses[0]


def test_the_learning_rate_warms_up_and_follows_a_cosine():
    c = TrainConfig(steps=110, lr=1.0, warmup=10, final_lr=0.2)
    assert [c.rate(0), c.rate(9), c.rate(10)] == pytest.approx([0.1, 1.0, 1.0])
    assert c.rate(60) == pytest.approx(0.6) and c.rate(110) == pytest.approx(0.2)
    assert replace(c, schedule="constant", final_lr=0.0).rate(100) == 1.0


@pytest.mark.parametrize(
    "how",
    [{}, {"optimiser": "adam"}, {"clip": 1e3}, {"clip": None}, {"gradient_loops": 4}, {"robust": 0.5}, {"loss": "eq6"}],
    ids=str,
)
def test_a_run_is_the_loop_that_one_would_write_by_hand(how):
    config = TrainConfig(
        steps=6,
        batch=4,
        seed=3,
        lr=1e-2,
        betas=(0.8, 0.95),
        weight_decay=0.1,
        warmup=3,
        ema=0.7,
        window=2,
        random_loops=(2, 4),
        **{"clip": 0.05, **how},
    )
    model, twin = (tiny(attention="linear").double() for _ in range(2))  # a softmax has no gradient at biases of keys
    train(model, TASK, config)
    data, sizes = Data(TASK, config, torch.device("cpu"), torch.float64), Curriculum(TASK, config, 3)
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.AdamW
    adam = kind(twin.parameters(), betas=(0.8, 0.95), weight_decay=0.1)
    average = [v.detach().clone() for v in twin.parameters()]
    for step in range(6):
        size = sizes.size(step)
        p, target, *_ = data.batch(step, size)
        s = twin.init(p)
        answers = [twin.read(p, s)]
        for t in range(size.loops):
            s = twin.step(p, s, t)
            s = s._replace(z=s.z.detach()) if t < size.loops - how.get("gradient_loops", 2) else s
            answers.append(twin.read(p, s))
        error = (torch.stack(answers[-3 if "loss" in how else -2 :]) - target).square()
        error = (1 + error / how["robust"]).log() if "robust" in how else error
        adam.param_groups[0]["lr"] = config.rate(step)
        adam.zero_grad()
        (error.mean((1, 2, 3)).sum() / 2).backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), config.clip or math.inf)
        adam.step()
        average = [0.7 * a + 0.3 * v.detach() for a, v in zip(average, twin.parameters(), strict=True)]
    assert {sizes.size(step).loops for step in range(6)} == {2, 3, 4}
    for mine, wanted in zip(model.parameters(), average, strict=True):
        torch.testing.assert_close(mine.detach(), wanted, rtol=1e-9, atol=1e-12)


def test_a_line_of_the_log_is_the_mean_over_the_steps_since_the_line_before(tmp_path):
    ramp = {"dims": Ramp(start=2, stop=3), "advance_after": 99}
    config = TrainConfig(steps=12, batch=4, lr=1e-2, warmup=4, log_every=5, **ramp)
    result = train(tiny(), TASK, config, tmp_path / "few", until=99)
    train(tiny(), TASK, replace(config, log_every=1), tmp_path / "all")
    few, each = ([r for r in rows(tmp_path / name / "log.jsonl") if "loss" in r] for name in ("few", "all"))
    ends = [row["step"] for row in few]
    assert ends == [5, 10, 12]
    for row, begin, end in zip(few, [0, *ends], ends, strict=False):
        for name in ("loss", "gradient"):
            assert row[name] == pytest.approx(np.mean([one[name] for one in each[begin:end]]))
        assert row["lr"] == config.rate(end - 1)
    assert (result.step, result.loss) == (12, few[-1]["loss"])
    running = each[0]["loss"]
    for one in each[1:]:
        running = 0.98 * running + 0.02 * one["loss"]
    state = checkpoint.latest(tmp_path / "few" / "checkpoints")[1]["curriculum"]
    assert state["running"] == pytest.approx(running) and state["stage"] == 0


def test_the_averaged_weights_are_the_models_at_the_end(tmp_path):
    config = TrainConfig(steps=6, batch=4, ema=0.5, lr=1e-2, warmup=0, log_every=1, checkpoint_every=1, keep=9)
    model = tiny()
    first = model.embed.weight.detach().clone()
    train(model, TASK, config, tmp_path)
    average = first
    for step in range(1, 7):
        tree = checkpoint.read(tmp_path / "checkpoints" / f"step-{step:08d}")
        average = 0.5 * average + 0.5 * tree["weights"]["embed.weight"]
    torch.testing.assert_close(model.embed.weight.detach(), average, rtol=1e-5, atol=1e-7)
    paused = tiny()
    train(paused, TASK, config, until=5)  # it goes on from the weights themselves
    before = checkpoint.read(tmp_path / "checkpoints" / "step-00000005")["weights"]
    assert torch.equal(paused.embed.weight, before["embed.weight"])


def test_dropout_too_is_a_function_of_seed_and_step():
    def losses(ambient, **how):
        out = []
        torch.manual_seed(ambient)
        config = TrainConfig(steps=4, batch=4, log_every=1, **how)
        train(tiny(dropout=0.3), TASK, config, progress=lambda p: out.append(p.loss))
        return out

    state = torch.get_rng_state()
    assert losses(0) == losses(1)
    assert len(set(losses(0, pool=4, lr=1e-12))) == 4  # one batch, and weights that stay where they are
    torch.set_rng_state(state)


def test_a_model_is_evaluated_without_dropout_and_stays_as_it_was():
    model = tiny(dropout=0.5)
    assert evaluate(model, TASK, prompts=8) == evaluate(model, TASK, prompts=8)
    assert all(part.training for part in model.modules())
    model.eval()
    evaluate(model, TASK, prompts=8)
    assert not any(part.training for part in model.modules())


def test_a_model_is_left_as_it_is_used_however_its_run_ends(tmp_path):
    model = tiny(dropout=0.5)
    with pytest.raises(OutOfTime):
        train(model, TASK, TrainConfig(steps=4, batch=4), deadline=0.0)
    assert not model.training


def test_a_refused_run_leaves_a_model_as_it_was(tmp_path):
    model = tiny()
    size = len(pickle.dumps(model))
    train(tiny(), TASK, TrainConfig(steps=2, batch=4), tmp_path)
    for task, folder, said in (
        (LinearRegression(d=5, n=4, dense=True), None, "at most 3 features"),
        (TASK, tmp_path, "train.steps must be 2 as in"),
    ):
        with pytest.raises(ValueError, match=said):
            train(model, task, TrainConfig(steps=4, batch=4), folder)
        assert model.training and len(pickle.dumps(model)) == size


def test_a_look_that_fails_leaves_the_weights_of_training():
    def look(model):
        assert not model.training
        raise RuntimeError("no")

    config = TrainConfig(steps=10, batch=4, lr=1e-2, warmup=0, ema=0.99)
    found = []
    for watch in (None, Watch(5, look)):
        model = tiny()
        with pytest.raises(RuntimeError, match="no") if watch else contextlib.nullcontext():
            train(model, TASK, replace(config, ema=0.99 if watch else 0.0), until=5, watch=watch)
        found.append(model.embed.weight.detach())
    torch.testing.assert_close(*found)


def test_a_model_with_frozen_weights_is_loaded_with_its_averages(tmp_path):
    models = []
    for folder in (tmp_path / "half", None):
        model = tiny()
        model.pre.requires_grad_(False)
        train(model, TASK, TrainConfig(steps=4 if folder is None else 8, batch=4, ema=0.9), folder, until=4)
        models.append(model if folder is None else load(folder))
    for (name, mine), theirs in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)


def test_fields_of_tasks_of_ones_own_are_compared_whatever_they_are_called(tmp_path):
    train(tiny(), Louder(d=3, n=4, dense=True), TrainConfig(steps=6, batch=4), tmp_path, until=2)
    for change in ({"data": "b"}, {"keep": 100.0}):
        with pytest.raises(ValueError, match=rf"task\.{next(iter(change))} must be"):
            train(tiny(), Louder(d=3, n=4, dense=True, **change), TrainConfig(steps=6, batch=4), tmp_path)


@dataclass(frozen=True, kw_only=True)
class Louder(LinearRegression):
    data: str = "a"
    keep: float = 1.0


def test_dropout_is_a_function_of_the_seed_under_whatever_name():
    def trained(ambient):
        model = tiny()
        model.answer.head = torch.nn.Sequential(model.answer.head, torch.nn.Dropout(0.5))
        torch.manual_seed(ambient)
        train(model, TASK, TrainConfig(steps=3, batch=4, fast=False))
        return model.embed.weight

    torch.testing.assert_close(trained(0), trained(1), rtol=0, atol=0)


SHARED = LinearRegression(d=3, n=5, covariance=Conditioned(kappa=10.0, shared=True))


@pytest.mark.parametrize("batch", [None, 64])
def test_a_standard_error_is_that_of_draws_where_prompts_share_a_covariance(batch):
    found = [evaluate(GradientDescent(steps=0), SHARED, prompts=640, batch=batch, seed=s) for s in range(60)]
    spread = np.std([f.mean[0][0] for f in found], ddof=1)
    told = np.mean([f.deviation[0][0] for f in found])
    assert 0.7 < spread / told < 1.4
    each = replace(SHARED, covariance=Conditioned(kappa=10.0))
    assert OtherNoise(SHARED, noise=1.0).shares and not OtherNoise(each, noise=1.0).shares
    assert OtherCovariance(each, covariance=SHARED.covariance).shares


def test_the_bounds_of_a_curriculum_do_not_hang_on_one_covariance():
    def zeros(task):
        ramp = Ramp(start=2, stop=3)
        return [Curriculum(task, TrainConfig(dims=ramp, seed=s), 3).bounds(Size(2, None, 0))[0] for s in range(12)]

    shared, each = zeros(SHARED), zeros(replace(SHARED, covariance=Conditioned(kappa=10.0)))
    assert np.mean(shared) == pytest.approx(np.mean(each), rel=0.1)
    assert np.std(shared) < 0.2 * np.mean(each)


def test_steps_that_are_drawn_at_once_must_not_share_a_covariance():
    model = tiny(features=3, positions=0, causal=True)
    with pytest.raises(ValueError, match="ahead must be 1 where the prompts of a draw share a covariance"):
        train(model, SHARED, TrainConfig(steps=4, batch=4, ahead=2))


class Broken(Task):
    """Prompts whose labels are infinite from a chosen draw on."""

    def __init__(self, after):
        self.after, self.calls = after, 0

    def sample(self, batch, generator, dtype=torch.float32):
        sample = TASK.sample(batch, generator, dtype)
        self.calls += 1
        if self.calls > self.after:
            sample.target.fill_(float("inf"))
        return sample


def test_a_task_that_draws_infinite_numbers_is_told_apart_from_a_divergence():
    with pytest.raises(ValueError, match="answers of a task must be finite; those of step 6 are not"):
        train(tiny(), Broken(after=7), TrainConfig(steps=20, batch=4, log_every=5, fast=False))


def test_divergence_stops_the_run_says_what_to_try_and_keeps_the_last_good_checkpoint(tmp_path):
    config = TrainConfig(
        steps=40, batch=4, lr=1e30, clip=None, warmup=0, schedule="constant", log_every=1, checkpoint_every=1
    )
    model = LinearTransformer(LinearTransformerConfig(features=3, layers=2), torch.Generator().manual_seed(0))
    with pytest.raises(TrainingDiverged, match=r"no checkpoint was written\. Try a smaller lr"):
        train(copy.deepcopy(model), LinearRegression(d=3, n=4), config)
    with pytest.raises(TrainingDiverged, match="the last good checkpoint is"):
        train(model, LinearRegression(d=3, n=4), config, tmp_path)
    step, tree, wrong = checkpoint.latest(tmp_path / "checkpoints")
    assert step >= 1 and not wrong
    assert all(bool(v.isfinite().all()) for v in tree["weights"].values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"loss": "mean"}, "loss must be one of"),
        ({"pool": 3, "batch": 4}, "pool must hold at least a batch"),
        ({"ema": 1.0}, "ema must be below 1"),
        ({"optimiser": "lbfgs"}, "clip must be None"),
        ({"random_loops": (3, 2)}, "random_loops must be at least 3"),
        ({"betas": (0.9, 1.0)}, "betas must be"),
        ({"final_lr": 1.0}, "final_lr must be at most 0.0003 with a cosine schedule; got 1.0"),
        ({"final_lr": 1e-5, "schedule": "constant"}, "final_lr must be at most 0 with a constant schedule; got 1e-05"),
        ({"optimiser": "lbfgs", "clip": None, "weight_decay": 0.1}, "weight_decay must be 0 with lbfgs"),
        ({"random_loops": (5,)}, "random_loops must be two numbers, fewest and most; got"),
        ({"random_loops": 5}, "random_loops must be two numbers, fewest and most; got 5"),
        (
            {"loss": "rao-blackwell", "robust": 1.0, "dims": Ramp(start=1, stop=3)},
            "by the clock .* with the loss rao-blackwell and robust",
        ),
    ],
)
def test_a_bad_config_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_what_does_not_fit_is_refused_before_any_work(tmp_path):
    with pytest.raises(ValueError, match="window must be at most the 3 steps of the model; got 4"):
        train(tiny(), TASK, TrainConfig(window=4), tmp_path / "a")
    with pytest.raises(ValueError, match="at most 3 features; got 5"):
        train(tiny(), replace(TASK, d=5), TrainConfig(), tmp_path / "a")
    with pytest.raises(ValueError, match="positions must be at least the prompt's 41 tokens"):
        train(tiny(), replace(TASK, n=20), TrainConfig(), tmp_path / "a")
    with pytest.raises(ValueError, match="must ask answers of 1 numbers; got 2"):
        train(tiny(), replace(TASK, k=2), TrainConfig(), tmp_path / "a")
    with pytest.raises(ValueError, match="examples must end at most at the task's n = 4; got 20"):
        train(tiny(), TASK, TrainConfig(examples=Ramp(start=2, stop=20)), tmp_path / "a")
    with pytest.raises(ValueError, match="must have at least one step to be trained; got 0"):
        train(tiny(loops=0), TASK, TrainConfig(), tmp_path / "a")
    with pytest.raises(ValueError, match="must ask at least one answer; got none of LinearRegression"):
        train(tiny(), LinearRegression(d=3, n=4, queries=0), TrainConfig(), tmp_path / "a")
    with pytest.raises(ValueError, match="must ask at least one answer; got none of LinearRegression"):
        evaluate(tiny(), LinearRegression(d=3, n=4, queries=0), prompts=4)
    for wrong in ([-1, 3], [1.5, 3]):
        with pytest.raises((TypeError, ValueError), match="a number of steps must be"):
            evaluate(tiny(), TASK, prompts=4, steps=wrong)
    assert not (tmp_path / "a").exists()


# Checkpoints


def test_a_tree_comes_back_as_it_was(tmp_path):
    tree = {
        "a": [1, 2.5, None, True, "x", float("inf")],
        0: {"t": torch.randn(3, 2), "e": torch.zeros(0, 4), "s": torch.tensor(3.0)},
        "b": (torch.arange(4), torch.ones(2, dtype=torch.bool), torch.randn(2, dtype=torch.float64).to(torch.bfloat16)),
    }
    checkpoint.write(tmp_path, 3, tree, 2)
    twin = checkpoint.read(tmp_path / "step-00000003")
    assert twin["a"] == tree["a"] and list(twin) == list(tree) and isinstance(twin["b"], tuple)
    for name in ("t", "e", "s"):
        assert torch.equal(twin[0][name], tree[0][name]) and twin[0][name].dtype == tree[0][name].dtype
    for one, other in zip(twin["b"], tree["b"], strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype


def test_large_tensors_are_sharded_below_15_mebibytes(tmp_path):
    tree = {"large": torch.randn(5_000_000), "more": [torch.randn(1_000_000) for _ in range(4)]}
    folder = checkpoint.write(tmp_path, 1, tree, 1)
    sizes = [f.stat().st_size for f in folder.iterdir()]
    assert len(sizes) == 4 and max(sizes) < 15 * 2**20
    assert torch.equal(checkpoint.read(folder)["large"], tree["large"])


def test_only_the_last_few_checkpoints_are_kept(tmp_path):
    for step in (5, 10, 15, 100_000_000):
        checkpoint.write(tmp_path, step, {"step": step}, 2)
    assert list(checkpoint.steps(tmp_path)) == [15, 100_000_000]
    (tmp_path / ".step-00000020-1").mkdir()  # what a process left that was killed while it wrote
    checkpoint.write(tmp_path, 20, {"step": 20}, 2)  # of a run that went on from 15: the later one was torn
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["step-00000015", "step-00000020"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("cut", "its checksum differs"),
        ("flip", "its checksum differs"),
        ("missing", "No such file"),
        ("json", "must hold a whole checkpoint"),
        ("number", "its checksum differs"),
        ("name", "a shard must be called"),
        ("huge", "must have at most 67108864 bytes"),
        ("pickle", "its checksum differs"),
    ],
)
def test_a_torn_or_hostile_checkpoint_is_passed_over_for_the_one_before(spoil, said, tmp_path):
    for step in (1, 2):
        checkpoint.write(tmp_path, step, {"step": step, "v": torch.full((8,), float(step))}, 2)
    folder = tmp_path / "step-00000002"
    shard, state = folder / "shard-0000.safetensors", folder / "state.json"
    data, text = shard.read_bytes(), state.read_text()
    match spoil:
        case "cut":
            shard.write_bytes(data[:-3])
        case "flip":
            shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "missing":
            shard.unlink()
        case "json":
            state.write_text(text[: len(text) // 2])
        case "number":  # JSON as before, of another step
            state.write_text(text.replace('["step", 2]', '["step", 3]'))
        case "name":  # by someone who knows how to make a checksum
            body = json.loads(text.replace("shard-0000.safetensors", "../../../etc/passwd"))["state"]
            checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
            state.write_text(json.dumps({"sha256": checksum, "state": body}))
        case "huge":
            state.write_bytes(b"[" * (checkpoint.TEXT + 1))
        case "pickle":
            shard.write_bytes(pickle.dumps({"v": torch.ones(8)}))
    with pytest.raises(checkpoint.Torn, match=said):
        checkpoint.read(folder)
    step, tree, wrong = checkpoint.latest(tmp_path)
    assert step == 1 and torch.equal(tree["v"], torch.ones(8)) and len(wrong) == 1
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(checkpoint.Torn):
        checkpoint.latest(tmp_path)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_others_go(tmp_path, monkeypatch):
    checkpoint.write(tmp_path, 1, {"step": 1}, 1)
    synced = []
    monkeypatch.setattr(checkpoint, "sync", lambda folder: synced.append((folder, sorted(checkpoint.steps(tmp_path)))))
    checkpoint.write(tmp_path, 2, {"step": 2}, 1)
    (draft, before), (place, after) = synced
    assert draft.name.startswith(".step-00000002") and before == [1]
    assert place == tmp_path and after == [1, 2] and list(checkpoint.steps(tmp_path)) == [2]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    config = TrainConfig(steps=8, batch=4, log_every=1, checkpoint_every=2)
    put, writes = checkpoint.put, itertools.count()

    def full(path, data):
        if next(writes) > 4:
            path.write_bytes(data[:10])
            raise OSError(28, "No space left on device")
        put(path, data)

    monkeypatch.setattr(checkpoint, "put", full)
    with pytest.raises(OSError, match="No space left"):
        train(tiny(), TASK, config, tmp_path / "run")
    step, _, wrong = checkpoint.latest(tmp_path / "run" / "checkpoints")
    assert step == 4 and not wrong
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    monkeypatch.setattr(checkpoint, "put", put)
    again, plain = tiny(), tiny()
    train(again, TASK, config, tmp_path / "run")
    train(plain, TASK, config, tmp_path / "other")
    assert torch.equal(again.embed.weight, plain.embed.weight)
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == (tmp_path / "other" / "log.jsonl").read_bytes()


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path):
    """Real processes: killed between steps and in the middle of a checkpoint's files, by three signals."""
    kills = {
        "kill": ("SIGKILL", 15, "data"),
        "term": ("SIGTERM", 12, "data"),
        "interrupt": ("SIGINT", 20, "data"),
        "in-a-shard": ("SIGKILL", 5, "write"),
        "in-the-json": ("SIGKILL", 4, "write"),
    }
    plain = process("training_run.py", tmp_path / "plain")
    running = {name: process("training_run.py", tmp_path / name, *how) for name, how in kills.items()}
    assert plain.wait(120) == 0
    for name, one in running.items():
        code = one.wait(120)
        assert code == (-9 if kills[name][0] == "SIGKILL" else code) != 0, name
        assert not (tmp_path / name / "model").exists(), name
    again = {name: process("training_run.py", tmp_path / name) for name in kills}
    log = (tmp_path / "plain" / "log.jsonl").read_bytes()
    weights = (tmp_path / "plain" / "model" / "model.safetensors").read_bytes()
    assert log.count(b"\n") == 11
    for name, one in again.items():
        assert one.wait(120) == 0, name
        assert (tmp_path / name / "log.jsonl").read_bytes() == log, name
        assert (tmp_path / name / "model" / "model.safetensors").read_bytes() == weights, name


def test_a_paused_run_goes_on_bit_for_bit(tmp_path):
    config = TrainConfig(
        steps=12, batch=4, log_every=5, checkpoint_every=100, optimiser="lbfgs", clip=None, lr=0.1, ema=0.9
    )
    whole, parts = tiny(), tiny()
    train(whole, TASK, config, tmp_path / "whole")
    for until in (3, 7, 12):
        assert not (tmp_path / "parts" / "model").exists()
        assert train(parts, TASK, config, tmp_path / "parts", until=until).step == until
        parts = tiny(seed=5) if until < 12 else parts  # all comes from the folder
    for mine, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert (tmp_path / "whole" / "log.jsonl").read_bytes() == (tmp_path / "parts" / "log.jsonl").read_bytes()


def test_what_was_known_of_a_run_is_known_when_it_goes_on(tmp_path):
    config = TrainConfig(
        steps=10, batch=4, lr=1e-9, dims=Ramp(start=1, stop=3), advance=0.99, advance_after=1, log_every=1
    )
    whole = train(tiny(), TASK, config)
    train(tiny(), TASK, config, tmp_path, until=6)
    train(tiny(), TASK, config, tmp_path)
    again = train(tiny(), TASK, config, tmp_path)  # it has ended
    assert replace(again, seconds=0.0, first_step=0.0) == replace(whole, seconds=0.0, first_step=0.0) and again.stuck
    first = next(row["loss"] for row in rows(tmp_path / "log.jsonl") if "loss" in row)
    assert checkpoint.latest(tmp_path / "checkpoints")[1]["first_loss"] == first  # what a divergence is held against


def test_a_torn_last_checkpoint_costs_only_its_own_steps(tmp_path):
    config = TrainConfig(steps=8, batch=4, log_every=1, checkpoint_every=3)
    train(tiny(), TASK, config, tmp_path / "run", until=6)
    shard = tmp_path / "run" / "checkpoints" / "step-00000006" / "shard-0000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    again, plain = tiny(seed=4), tiny()
    with pytest.warns(UserWarning, match="going on from step 3: .*its checksum differs"):
        train(again, TASK, config, tmp_path / "run")
    train(plain, TASK, config, tmp_path / "plain")
    assert torch.equal(again.embed.weight, plain.embed.weight)
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == (tmp_path / "plain" / "log.jsonl").read_bytes()


def test_a_torn_checkpoint_never_outlives_a_whole_one(tmp_path):
    config = TrainConfig(steps=40, batch=4, log_every=1, checkpoint_every=10)
    train(tiny(), TASK, config, tmp_path, until=20)
    shard = tmp_path / "checkpoints" / "step-00000020" / "shard-0000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="going on from step 10"), pytest.raises(OutOfTime, match="at step 11"):
        train(tiny(), TASK, config, tmp_path, deadline=0.0)
    assert list(checkpoint.steps(tmp_path / "checkpoints")) == [11]
    assert train(tiny(), TASK, config, tmp_path).step == 40


def test_a_log_that_did_not_travel_with_its_checkpoint_is_begun_again(tmp_path):
    config = TrainConfig(steps=4, batch=4, log_every=1)
    train(tiny(), TASK, config, tmp_path, until=2)
    (tmp_path / "log.jsonl").unlink()
    train(tiny(), TASK, config, tmp_path)
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [3, 4]


def test_a_run_goes_on_in_its_own_precision_alone(tmp_path):
    config = TrainConfig(steps=4, batch=4, log_every=1)
    train(tiny().double(), TASK, config, tmp_path, until=2)
    with pytest.raises(ValueError, match=r"of the model must be torch\.float64 as in .*; got torch\.float32"):
        train(tiny(), TASK, config, tmp_path)
    assert train(tiny().double(), TASK, config, tmp_path).step == 4


def test_weights_that_are_not_finite_are_no_checkpoint(tmp_path):
    config = TrainConfig(steps=2, batch=4, lr=1e38, clip=None, warmup=0, schedule="constant", checkpoint_every=1)
    with pytest.raises(TrainingDiverged, match=r"weights are no longer finite after step 1; no checkpoint.*smaller lr"):
        train(tiny(), TASK, config, tmp_path)
    assert not list(checkpoint.steps(tmp_path / "checkpoints"))


def test_weights_that_are_not_finite_are_no_result_without_a_folder_either():
    config = TrainConfig(steps=1, batch=4, lr=1e38, clip=None, warmup=0, schedule="constant")
    with pytest.raises(TrainingDiverged, match="weights are no longer finite after step 1"):
        train(tiny(), TASK, config)


def test_a_trained_model_is_pickled_in_the_room_of_its_weights():
    model = tiny()
    before = len(pickle.dumps(model))
    train(model, TASK, TrainConfig(steps=2, batch=4))
    assert len(pickle.dumps(model)) < 1.1 * before


def test_the_first_size_of_a_curriculum_is_tried_before_any_work(tmp_path):
    config = TrainConfig(steps=4, batch=4, dims=Ramp(start=2, stop=3))
    with pytest.raises(ValueError, match="nonzeros must be at most the 2 active coordinates; got 3"):
        train(tiny(), SparseLinear(d=3, n=6, nonzeros=3, dense=True), config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_step_and_a_batch_that_cannot_be_are_refused():
    config = TrainConfig(steps=2, batch=4)
    for call, message in (
        (lambda: train(tiny(), TASK, config, until=1.5), "until must be an integer; got 1.5"),
        (lambda: train(tiny(), TASK, config, watch=Watch(0, dict)), "watch.every must be at least 1; got 0"),
        (lambda: evaluate(tiny(), TASK, batch=0), "batch must be at least 1; got 0"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_processes_that_share_a_run_stop_for_one_reason(tmp_path, monkeypatch):
    """Another process is out of time, or was asked to stop, and this one is not."""
    config = TrainConfig(steps=4, batch=4, log_every=1)
    for facts, stop in (((False, True), OutOfTime), ((True, False), Interrupted), ((True, True), Interrupted)):
        monkeypatch.setattr("algoformer.training.loop._Run._any", lambda self, *mine, facts=facts: facts[: len(mine)])
        with pytest.raises(stop, match="at step 1 of 4"):
            train(tiny(), TASK, config, tmp_path / stop.__name__ / str(facts))


@pytest.mark.parametrize("place", ["watch", "step"])
def test_a_signal_in_the_last_step_stops_the_caller_too(place, tmp_path, monkeypatch):
    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    sample, draws = LinearRegression.sample, itertools.count()  # the first is to see that all fits

    def drawn(self, *args):
        if next(draws) == 3:
            interrupt()
        return sample(self, *args)

    if place == "step":
        monkeypatch.setattr(LinearRegression, "sample", drawn)
    config = TrainConfig(steps=3, batch=4, log_every=1)
    with pytest.raises(Interrupted, match="stopped after step 3, to which this run was to go"):
        train(tiny(), TASK, config, tmp_path, watch=Watch(100, interrupt) if place == "watch" else None)
    assert (tmp_path / "model" / "config.json").exists()  # and the run is finished


def test_a_second_signal_stops_at_once_and_signals_mean_afterwards_what_they_meant(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def interrupt(model):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt) as found:
        train(tiny(), TASK, TrainConfig(steps=3, batch=4, log_every=1), tmp_path, watch=Watch(1, interrupt))
    assert found.type is KeyboardInterrupt and not list(checkpoint.steps(tmp_path / "checkpoints"))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_run_of_another_config_is_refused_with_the_fields_that_differ(tmp_path):
    config = TrainConfig(steps=4, batch=4, log_every=2)
    train(tiny(), TASK, config, tmp_path)
    with pytest.raises(ValueError, match=r"^train\.lr must be 0\.0003 as in .*; got 0\.1$"):
        train(tiny(), TASK, replace(config, lr=0.1, keep=5), tmp_path)
    with pytest.raises(
        ValueError, match=r"model\.width must be 16 .*; got 32, and train\.dims must be None .*Ramp\(start"
    ):
        train(tiny(width=32), TASK, replace(config, dims=Ramp(start=2, stop=3)), tmp_path)
    with pytest.raises(ValueError, match=r"^task\.class must be LinearRegression as in .*; got SparseLinear$"):
        train(tiny(), SparseLinear(d=3, n=4, dense=True, nonzeros=1), config, tmp_path)
    done = train(tiny(seed=3), TASK, replace(config, keep=5), tmp_path)
    assert done.step == 4
    with pytest.raises(ValueError, match="not a run's"):
        train(tiny(), TASK, config, tmp_path / "model")


def test_one_folder_is_trained_by_one_process_at_a_time(tmp_path):
    config = TrainConfig(steps=4, batch=4, log_every=2)
    refused = []

    def intrude(p):
        with pytest.raises(ValueError, match="must not be in use; another process is training there"):
            train(tiny(), TASK, config, tmp_path / "run")
        refused.append(p.step)

    def fail(p):
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle") as kept:  # whose frames live on
        train(tiny(), TASK, config, tmp_path / "run", progress=fail)
    train(tiny(), TASK, config, tmp_path / "run", progress=intrude)
    assert refused == [2, 4] and kept.tb is not None
    train(tiny(), TASK, config, tmp_path / "run")
    train(tiny(), TASK, config, tmp_path / "alone")
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("run", "alone")]
    assert logs[0] == logs[1]
    names = [sorted(p.name for p in (tmp_path / name).rglob("*")) for name in ("run", "alone")]
    assert names[0] == names[1]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/run"):
        with pytest.raises(ValueError, match=r"folder must be a folder; got .*the file "):
            train(tiny(), TASK, TrainConfig(steps=1), tmp_path / folder)


@pytest.mark.parametrize("optimiser", ["adamw", "lbfgs"])
def test_a_checkpoint_of_averaged_weights_loads_as_its_average(optimiser, tmp_path, generator):
    config = TrainConfig(steps=4, batch=4, log_every=1, ema=0.9, optimiser=optimiser, clip=None)
    model = tiny()
    train(model, TASK, config, tmp_path)
    p = TASK.sample(3, generator).prompt
    assert torch.equal(load(tmp_path / "checkpoints" / "step-00000004").predict(p), model.predict(p))


def test_a_finished_run_loads_from_its_folder_a_checkpoint_or_its_model(tmp_path, generator, monkeypatch):
    config = TrainConfig(steps=4, batch=4, log_every=2, checkpoint_every=2)
    model, half = tiny(), tiny()
    train(model, TASK, config, tmp_path)
    train(half, TASK, config, until=2)
    p = TASK.sample(3, generator).prompt
    for source in (tmp_path, tmp_path / "model", tmp_path / "checkpoints" / "step-00000004"):
        assert torch.equal(load(source).predict(p), model.predict(p)) and not load(source).training
    assert torch.equal(load(tmp_path / "checkpoints" / "step-00000002").predict(p), half.predict(p))
    for source in (tmp_path, tmp_path / "checkpoints" / "step-00000004"):
        assert recipe_of(source) == (model.config, TASK, config)
    with pytest.raises(ValueError, match=r"the task must be given \(--task\) with a model that was saved alone"):
        recipe_of(tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    assert torch.equal(load(tmp_path).predict(p), model.predict(p))
    monkeypatch.chdir(tmp_path / "checkpoints")
    assert torch.equal(load("step-00000004").predict(p), model.predict(p))
    model.save_pretrained(tmp_path / "step-00000007")  # no checkpoint
    assert torch.equal(load(tmp_path / "step-00000007").predict(p), model.predict(p))
    for bad in ("nowhere", "checkpoints"):
        with pytest.raises(ValueError):
            load(tmp_path / bad)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="must hold a model or a checkpoint; got neither"):
        load(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "checkpoints")
    about = json.loads((tmp_path / "config.json").read_text())
    about["model"]["class"] = "os.system"
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="must name a class of algoformer"):
        load(tmp_path)


# Several processes


def test_two_processes_are_one(tmp_path):
    runs = {}
    for dtype in ("float32", "float64"):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        runs[dtype] = [
            process("training_ranks.py", 0, 1, port, dtype, tmp_path / f"{dtype}-one"),
            *(process("training_ranks.py", rank, 2, port, dtype, tmp_path / f"{dtype}-two") for rank in range(2)),
        ]
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-10)):
        assert [one.wait(180) for one in runs[dtype]] == [0, 0, 0]
        one, two, other = (json.loads((tmp_path / f"{dtype}-{n}").read_text()) for n in ("one-0", "two-0", "two-1"))
        assert other["weights"] == two["weights"] and not other["losses"], "averages too, and the first alone tells"
        assert [row[1] for row in one["losses"]] == [row[1] for row in two["losses"]]
        assert {row[1] for row in one["losses"]} == {1, 2, 3}
        assert [row[0] for row in two["losses"]] == pytest.approx([row[0] for row in one["losses"]], rel=tolerance)
        scale = max(map(abs, one["weights"]))
        assert two["weights"] == pytest.approx(one["weights"], rel=0, abs=10 * tolerance * scale)


# Progress


def test_a_bar_shows_loss_size_and_speed_on_standard_error(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    with Bar() as bar:
        train(
            tiny(), TASK, TrainConfig(steps=4, batch=4, log_every=2, dims=Ramp(start=2, stop=3, every=2)), progress=bar
        )
        line = bar.display.tasks[0]
        assert line.completed == line.total == 4
        assert re.fullmatch(r"loss \d\S*  dims 3 loops 3  \S+ steps/s", line.fields["told"])
    shown = capsys.readouterr()
    assert shown.out == "" and "4/4" in shown.err


def test_where_no_terminal_draws_the_bar_there_is_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr("algoformer.training.progress.QUIET", -1)
    with Bar(4) as bar:
        train(tiny(), TASK, TrainConfig(steps=4, batch=4, log_every=2), progress=bar)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" steps, loss ")[0] for line in lines] == ["algoformer: 2 of 4", "algoformer: 4 of 4"]


def test_tensorboard_gets_the_numbers_of_the_log(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = TrainConfig(steps=4, batch=4, log_every=2)
    train(tiny(), TASK, config, tmp_path / "run", progress=TensorBoard(tmp_path / "board"))
    board = event_accumulator.EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [(e.step, e.value) for e in board.Scalars("loss")] == [(r["step"], pytest.approx(r["loss"])) for r in rows]


# Presets, overrides, evaluation


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "lstm"])  # counting 10 x 81 cells takes long
def test_every_preset_fits_its_task_and_is_described(name):
    about = describe(preset(name))
    assert about["parameters"] > 0 and about["flops"] > 0 and about["memory"] > 0
    assert encode(decode(about["task"])) == about["task"]
    assert json.dumps(about)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_trains_in_small(name):
    small = {"train.batch": "4", "train.steps": "2", "train.log_every": "1", "train.precision": "fp32"}
    recipe = preset(name)
    if recipe.train.pool is not None:
        small["train.pool"] = "4"
    for field, value in (("width", "16"), ("heads", "2")):
        if getattr(recipe.model, field, None):
            small[f"model.{field}"] = value
    if hasattr(recipe.model, "loops"):  # a shorter loop, and shorter prompts
        small |= {"model.loops": "3", "train.window": "2", "train.loops": "none"}
        if recipe.train.random_loops:
            small["train.random_loops"] = "1,3"
        if recipe.train.gradient_loops:
            small["train.gradient_loops"] = "3"
    if getattr(recipe.model, "layers", 0) > 3:
        small["model.layers"] = "2"
        if recipe.train.gradient_loops:
            small["train.gradient_loops"] = "2"
    recipe = override(recipe, small)
    result = train(model_of(recipe.model), recipe.task, recipe.train)
    assert result.step == 2 and math.isfinite(result.loss)


def test_fields_are_overridden_by_name_and_unknown_ones_get_the_nearest():
    r = override(
        preset("algoformer"),
        {
            "train.steps": "1_000",
            "train.betas": "0.8,0.9",
            "train.dims": "5:20:1:2000",
            "train.examples": "none",
            "train.fast": "false",
            "model.injection": "true",
            "task.noise": "0.5",
            "train.loss": "eq6",
        },
    )
    assert r.train.steps == 1000 and r.train.betas == (0.8, 0.9) and r.train.dims == Ramp(start=5, stop=20, every=2000)
    assert r.train.fast is False and r.task.noise == 0.5 and r.train.loss == "eq6"
    for change, message in (
        ({"train.step": "3"}, r"did you mean train\.steps\?"),
        ({"model.loop_normal": "3"}, r"did you mean model\.loop_norm\?"),
        ({"traim.steps": "3"}, r"model\., task\. or train\."),
        ({"train.steps": "many"}, r"train\.steps must be an integer; got 'many'"),
        ({"train.loss": "eq7"}, r"one of window, eq6, rao-blackwell; got 'eq7' \(did you mean eq6\?\)"),
        ({"train.dims": "5-20"}, r"start:stop"),
        ({"train.fast": "maybe"}, "true or false"),
        ({"task.covariance": "x"}, "set it in Python"),
    ):
        with pytest.raises(ValueError, match=message):
            override(preset("algoformer"), change)
    with pytest.raises(ValueError, match=r"did you mean algoformer-eq2\?"):
        preset("algoformer-eq")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("yang", {"model.loops": "30"}, "train.loops must end at model.loops = 30; got 15:20:2:500"),
        ("yang", {"train.loops": "2:9"}, "train.loops must end at model.loops = 20; got 2:9:1"),
        ("gatmiry", {"model.layers": "4", "train.random_loops": "1,5"}, "end at model.layers = 4; got 1,5"),
        ("translation-ours", {"model.loops": "30"}, "train.random_loops must end at model.loops = 30; got 3,12"),
        ("numbers", {"model.loops": "5"}, "train.random_loops must end at model.loops = 5; got 2,4"),
        ("algoformer", {"task.d": "3"}, "train.dims must end at most at task.d = 3; got 5:20:1"),
        ("garg", {"task.n": "20"}, "train.examples must end at most at task.n = 20; got 10:40:2:2000"),
        ("algoformer-chain", {"train.dims": "5:20"}, "a curriculum needs a task with a field active"),
    ],
)
def test_a_change_that_a_curriculum_would_not_follow_is_refused(name, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        override(preset(name), change)


def test_a_curriculum_follows_its_model_when_both_are_changed():
    r = override(preset("yang"), {"model.loops": "30", "train.loops": "15:30:2:500", "task.n": "60"})
    assert (r.model.loops, r.train.loops.stop, r.train.examples.stop) == (30, 30, 40)
    r = override(preset("numbers"), {"model.loops": "6", "train.random_loops": "2,6"})
    assert r.train.random_loops == (2, r.model.loops)


def test_tasks_are_found_by_name():
    assert task_named("LinearRegression", {"n": "80", "dense": "true"}) == LinearRegression(n=80, dense=True)
    with pytest.raises(ValueError, match=r"did you mean LinearRegression\?"):
        task_named("LinearRegresion")
    with pytest.raises(ValueError, match=r"did you mean task\.noise\?"):
        task_named("LinearRegression", {"noises": "1"})
    with pytest.raises(ValueError, match=r"task must be one of .*; got 'HalfSubspace'") as found:
        task_named("HalfSubspace")
    offered = str(found.value).removeprefix("task must be one of ").split(";")[0].split(", ")
    assert [type(task_named(name)).__name__ for name in offered] == offered


def test_evaluation_is_the_mean_squared_error_on_fixed_prompts():
    task = LinearRegression(d=3, n=6, dense=True)
    e = evaluate(LeastSquares(), task, prompts=300, batch=128, dtype=torch.float64)
    assert e.steps == [0] and e.zero == pytest.approx(3, rel=0.2)
    assert e.mean[0][0] == pytest.approx(e.zero, rel=0.3) and max(e.mean[0][3:]) < 1e-15
    assert e.mean[0][1] == pytest.approx(2, abs=5 * e.deviation[0][1])
    heard = []
    again = evaluate(
        LeastSquares(), task, prompts=300, batch=128, dtype=torch.float64, progress=lambda *told: heard.append(told)
    )
    assert again == e
    assert heard == [(done, 300, "LeastSquares") for done in (0, 128, 256, 300)]
    model = tiny().double()
    e = evaluate(model, TASK, prompts=10, steps=[0, 5], dtype=torch.float64)
    assert e.steps == [0, 5] and len(e.mean) == 2 and e.variant == "AlgoFormer + injection"


@pytest.mark.parametrize("clean", [False, True])
def test_an_evaluation_is_what_numpy_makes_of_the_errors(clean):
    model, task = tiny().double(), LinearRegression(d=3, n=4, dense=True, noise=0.5)
    e = evaluate(model, task, prompts=10, batch=4, steps=[0, 5], seed=3, dtype=torch.float64, clean=clean)
    errors, squares = [], []
    for i, prompts in enumerate((4, 4, 2)):
        sample = task.sample(prompts, seeded(torch.Generator(), 3, "evaluation", i), torch.float64)
        target = (sample.truth.clean if clean else sample.target)[..., 0].numpy()
        errors.append((model.trace(sample.prompt, 5)[[0, 5], ..., 0].detach().numpy() - target) ** 2)
        squares.append(target**2)
    error, square = np.concatenate(errors, 1), np.concatenate(squares)
    for mine, wanted in (
        (e.mean, error.mean(1)),
        (e.median, np.sort(error, 1)[:, 4]),
        (e.deviation, scipy.stats.sem(error, 1)),
        (e.zeros, square.mean(0)),
        (e.zero, square.mean()),
        (e.last, error[1, :, -1].mean() / square.mean()),
    ):
        np.testing.assert_allclose(mine, wanted, rtol=1e-10)


@pytest.mark.parametrize("prompts", [1, 2])
def test_an_evaluation_of_few_prompts_has_a_standard_error_and_each_number_of_steps_once(prompts):
    solver, task = GradientDescent(steps=2), LinearRegression(d=3, n=4, queries=2)
    e = evaluate(solver, task, prompts=prompts, steps=[2, 0, 2])
    sample = task.sample(prompts, seeded(torch.Generator(), 0, "evaluation", 0))
    error = (solver.trace(sample.prompt)[[0, 2]] - sample.target)[..., 0].numpy() ** 2
    assert e.steps == [0, 2]
    assert e.deviation == pytest.approx(scipy.stats.sem(error, 1) if prompts > 1 else np.zeros((2, 2)))
    np.testing.assert_allclose(e.mean, error.mean(1, dtype=float), rtol=1e-12)


@pytest.mark.parametrize(("task", "batch"), [(LinearRegression(d=2, n=2), 640), (SHARED, 16)])
def test_an_evaluation_is_of_6400_prompts_of_which_640_are_drawn_at_once_or_16_that_share(task, batch):
    heard, grad = [], set()

    class Watched(GradientDescent):
        def read(self, q, state):
            grad.add(torch.is_grad_enabled())
            return super().read(q, state)

    evaluate(Watched(steps=0), task, progress=lambda done, total, what: heard.append((done, total)))
    assert heard == [(done, 6400) for done in range(0, 6401, batch)] and grad == {False}
    with pytest.raises(ValueError, match="prompts must be at least 1; got 0"):
        evaluate(Watched(steps=0), task, prompts=0)


def test_the_last_position_alone_has_the_error_it_has_among_all():
    for task in (TASK, replace(TASK, dense=False, queries=2)):
        whole, alone = (evaluate(tiny(), task, prompts=20, steps=[0, 5], last=last) for last in (False, True))
        for name in ("mean", "median", "deviation"):
            wanted = np.array(getattr(whole, name))[:, -1:] if task.dense else getattr(whole, name)
            np.testing.assert_allclose(getattr(alone, name), wanted, rtol=1e-4)
        assert alone.zeros == pytest.approx(whole.zeros[-1:] if task.dense else whole.zeros)


def test_a_model_has_its_dropout_again_after_an_error():
    model = tiny(dropout=0.5)
    model.embed.eval()
    with pytest.raises(ZeroDivisionError), undropped(model):
        assert not any(part.training for part in model.modules())
        raise ZeroDivisionError
    assert [part for part in model.modules() if not part.training] == [model.embed]


def test_a_chain_of_thought_that_is_not_dense_has_one_answer_a_place():
    assert final(ChainOfThought(d=2, n=3, layers=3), [1.0, 2.0, 6.0]) == 6
    assert final(ChainOfThought(d=2, n=3, layers=3, dense=True), [9.0, 1.0, 2.0, 6.0]) == 3


# Linear transformers reach the optimum


def test_the_looped_linear_transformer_reaches_the_exact_optimum():
    """d = 5, n = 20, three loops: a = 0.7155867 and loss 0.2683422 (zeros of exact Wishart polynomials)."""
    model = LinearTransformer(
        LinearTransformerConfig(features=5, layers=3, looped=True, symmetric=True, init=0.1),
        torch.Generator().manual_seed(1),
    )
    task = LinearRegression(d=5, n=20)
    config = TrainConfig(
        steps=600,
        batch=512,
        loss="rao-blackwell",
        window=1,
        gradient_loops=3,
        lr=0.02,
        warmup=20,
        ema=0.95,
        log_every=100,
    )
    train(model, task, config)
    a = (model.A[0] + model.A[0].mT).detach().double() / 2
    assert float(a.trace()) / 5 == pytest.approx(0.7155867, rel=0.01)
    assert float((a - 0.7155867 * torch.eye(5)).norm() / a.norm()) < 0.02
    g = torch.Generator().manual_seed(9)
    x = torch.randn(100_000, 20, 5, generator=g, dtype=torch.float64)
    eye = torch.eye(5, dtype=torch.float64).expand(len(x), 5, 5)
    with torch.no_grad():
        loss = float(rao_blackwell(model.double(), x, eye, eye).mean())
    assert loss == pytest.approx(0.2683422, rel=0.02)


def test_given_covariances_survive_the_config(generator):
    task = LinearRegression(d=5, n=20, covariance=Spectrum().fixed(5, generator), prior="inverse")
    twin = decode(json.loads(json.dumps(encode(task))))
    assert isinstance(twin.covariance, Given) and torch.equal(twin.covariance.matrix, task.covariance.matrix)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_where_one_was_asked_for_is_a_clear_error():
    for name in ("cuda", "gpu9"):
        with pytest.raises(ValueError, match=f"device must be one that is here; got '{name}'"):
            device_named(name)
    assert device_named(None).type == "cpu"


def test_every_part_of_a_seed_reaches_the_bits_that_a_cpu_takes():
    parts = [("dropout", seed, step, rank) for seed in range(3) for step in (0, 1, 2**20) for rank in range(2)]
    first = {torch.rand((), generator=torch.Generator().manual_seed(seed_of(*p))).item() for p in parts}
    assert len(first) == len(parts)


def test_an_address_without_defaults_tells_only_what_was_chosen():
    config = TrainConfig(steps=7, dims=Ramp(start=2, stop=5))
    told = encode(config, defaults=False)
    assert told == {"class": "TrainConfig", "steps": 7, "dims": {"class": "Ramp", "start": 2, "stop": 5}}
    assert decode(told) == config == decode(encode(config))


@dataclass(frozen=True, kw_only=True)
class Wavy:
    """A part of a task of one's own."""

    period: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Waves(Task):
    """A task that this package does not know."""

    wave: Wavy = Wavy()
    size: float = 1.0

    def sample(self, batch, generator, dtype=torch.float32):
        sample = TASK.sample(batch, generator, dtype)
        return replace(sample, target=self.size * torch.sin(sample.target / self.wave.period))


def test_a_run_on_a_task_of_ones_own_goes_on(tmp_path):
    config = TrainConfig(steps=6, batch=4, log_every=1)
    whole = train(tiny(), Waves(wave=Wavy(period=2.0)), config)
    train(tiny(), Waves(wave=Wavy(period=2.0)), config, tmp_path, until=3)
    found = train(tiny(), Waves(wave=Wavy(period=2.0)), config, tmp_path)
    assert found.step == 6 and found.loss == whole.loss
    with pytest.raises(ValueError, match=r"task\.wave must be Wavy\(period=2\.0\) as in .*; got Wavy\(period=1\.0\)"):
        train(tiny(), Waves(), config, tmp_path)
    with pytest.raises(ValueError, match="must name a class of algoformer; got 'Wav"):
        recipe_of(tmp_path)  # there is nothing at hand to know it by


def test_a_task_of_a_curriculum_is_one_object_while_its_size_stays():
    task = Representation(d=4, n=5, dense=True)
    data = Data(task, TrainConfig(batch=2), torch.device("cpu"), torch.float32)
    phis = []
    for step, dims in enumerate((2, 2, 3, 3)):
        data.batch(step, Size(dims, None, 1))
        phis.append(data.sized[1].phi)
    assert phis[0] is phis[1] and phis[2] is phis[3] and phis[1] is not phis[2]
    assert all(torch.equal(a, b) for a, b in zip(phis[0].weights, task.phi.weights, strict=True))


def test_a_run_goes_on_though_a_field_was_added_since(tmp_path):
    config = TrainConfig(steps=4, batch=4, log_every=2, checkpoint_every=2, window=2)
    train(tiny(), TASK, config, tmp_path, until=2)
    file = tmp_path / "config.json"
    about = json.loads(file.read_text())
    del about["train"]["kernels"]  # as it was before there were any
    file.write_text(json.dumps(about))
    assert train(tiny(), TASK, config, tmp_path).step == 4


def test_an_evaluation_after_no_number_of_steps_is_refused():
    with pytest.raises(ValueError, match="steps must hold at least one number of steps; got none"):
        evaluate(tiny(), TASK, prompts=2, steps=[])


# Numbers of NumPy


def test_configs_of_numpys_numbers_are_those_of_pythons(tmp_path):
    i, f = np.int64, np.float32
    sizes = {"features": 3, "width": 16, "heads": 2, "positions": 16, "loops": 3}
    model = AlgoFormerConfig(**{name: i(v) for name, v in sizes.items()}, dropout=f(0.5))
    task = LinearRegression(d=i(3), n=i(4), noise=f(0.5), dense=True)
    how = TrainConfig(steps=i(4), batch=i(2), warmup=i(1), log_every=i(2), window=i(2), seed=i(1), clip=f(0.5))
    plain = AlgoFormerConfig(**sizes, dropout=0.5), LinearRegression(d=3, n=4, noise=0.5, dense=True)
    plain += (TrainConfig(steps=4, batch=2, warmup=1, log_every=2, window=2, seed=1, clip=0.5),)
    for one, other in zip((model, task, how), plain, strict=True):
        assert one == other and hash(one) == hash(other)
        assert json.dumps(encode(one)) == json.dumps(encode(other))
        assert decode(encode(one)) == other
        assert address("a", 1, one, i(2)) == address("a", 1, other, 2)
    parts = Recipe(model=model, task=task, train=how), Recipe(model=plain[0], task=plain[1], train=plain[2])
    assert key(parts[0]) == key(parts[1])
    ends = []
    for name, recipe in zip(("numpy", "python"), parts, strict=True):
        it = model_of(recipe.model, torch.Generator().manual_seed(0))
        train(it, recipe.task, recipe.train, tmp_path / name)
        it.save_pretrained(tmp_path / name / "saved")
        ends.append(AlgoFormer.from_pretrained(tmp_path / name / "saved").state_dict())
        assert load(tmp_path / name).config == plain[0]
    assert all(torch.equal(v, ends[1][k]) for k, v in ends[0].items())
    with pytest.raises(TypeError, match="must be made of numbers, strings and dataclasses to be saved; got ndarray"):
        encode(np.zeros(2))


def test_a_checkpoint_holds_numbers_of_numpy_as_pythons(tmp_path):
    checkpoint.write(tmp_path, 1, {"lr": np.float32(0.1), "step": np.int64(3)}, keep=1)
    _, tree, _ = checkpoint.latest(tmp_path)
    assert tree == {"lr": float(np.float32(0.1)), "step": 3} and [*map(type, tree.values())] == [float, int]


def test_prompts_that_are_drawn_ahead_are_a_function_of_seed_and_step():
    config, size = TrainConfig(batch=4, ahead=3, seed=5), Size(None, None, 3)
    one, other = (Data(TASK, config, torch.device("cpu"), torch.float32) for _ in range(2))
    forward = [one.batch(step, size) for step in range(7)]
    back = [other.batch(step, size) for step in reversed(range(7))][::-1]
    for a, b in zip(forward, back, strict=True):
        assert torch.equal(a.prompt.x, b.prompt.x) and torch.equal(a.target, b.target)
    drawn = torch.cat([batch.prompt.x for batch in forward]).flatten(1)
    assert len(drawn.unique(dim=0)) == len(drawn) == 28
    small = one.batch(4, Size(2, None, 3))  # another size in the middle of what was drawn
    assert not small.prompt.x[..., 2].any() and torch.equal(one.batch(5, size).target, forward[5].target)
    shares = [Data(TASK, config, torch.device("cpu"), torch.float32, rank=r, world=2).batch(4, size) for r in (0, 1)]
    assert torch.equal(torch.cat([share.target for share in shares]), forward[4].target)
    with pytest.raises(ValueError, match="ahead must be 1 beside a pool"):
        TrainConfig(batch=4, ahead=2, pool=8)


def test_numbers_of_another_library_become_pythons_own(tmp_path):
    config = TrainConfig(steps=np.int64(4), batch=np.int32(4), lr=np.float32(0.25), log_every=2, warmup=0)
    assert [type(v) for v in (config.steps, config.batch, config.lr)] == [int, int, float]
    assert train(tiny(), TASK, config, tmp_path).step == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TrainConfig(lr=float("inf")), "lr must be finite and above 0; got inf"),
        (lambda: TrainConfig(dims=5), "dims must be a Ramp or None; got 5"),
        (lambda: TrainConfig(betas=0.9), r"betas must be two numbers in \[0, 1\); got 0.9"),
        (lambda: TrainConfig(betas=("a", "b")), r"betas must be two numbers in \[0, 1\); got \('a', 'b'\)"),
        (lambda: TrainConfig(kernels="no"), "kernels must be true or false; got 'no'"),
        (lambda: TrainConfig(fast="false"), "fast must be true or false; got 'false'"),
        (lambda: LinearRegression(dense="false"), "dense must be true or false; got 'false'"),
        (lambda: tiny(injection="false"), "injection must be true or false; got 'false'"),
        (lambda: train(Newton(), LinearRegression(), TrainConfig()), "model must be a Model; got Newton"),
        (lambda: train(tiny(), LinearRegression, TrainConfig()), "task must be a Task; got the class LinearRegression"),
        (lambda: train(tiny(), TASK, None), "config must be a TrainConfig; got NoneType"),
        (lambda: train(tiny(), TASK, TrainConfig(steps=1), deadline="x"), "deadline must be a number; got 'x'"),
        (lambda: AlgoFormer.from_pretrained(".", loopz=3), "an option must be one of 'revision', .*; got 'loopz'"),
        (lambda: AlgoFormer.from_pretrained("./typo"), "must be in a folder, or be owner/name .* got './typo'"),
        (lambda: AlgoFormer.from_pretrained("linear-regression-d20"), "those that are shipped: algoformer.pretrained"),
        (lambda: On(Newton(), 3), "reduction must be a Reduction; got int"),
        (lambda: On(3, Newton()), "solver must be an Algorithm; got int"),
        (lambda: compile("newton"), "program must be a Program of algoformer.constructions; got str"),
        (lambda: newton(3, most=-10.0, steps=2), "most must be above 0; got -10"),
    ],
)
def test_wrong_kinds_are_refused_at_the_door(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_fields_may_be_changed_by_numbers():
    changed = override(preset("algoformer"), {"train.steps": 1000, "train.lr": 1e-3, "model.loops": "16"})
    assert (changed.train.steps, changed.train.lr, changed.model.loops) == (1000, 1e-3, 16)
