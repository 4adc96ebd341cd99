"""The fast path gives the plain path's loss and gradients; the fused pass gives the plain blocks'."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from algoformer.models import (
    AlgoFormer,
    AlgoFormerConfig,
    LinearSelfAttentionConfig,
    LinearTransformerConfig,
    LSTMConfig,
)
from algoformer.tasks import LinearRegression, NumberWords
from algoformer.training import Ramp, TrainConfig, train
from algoformer.training.codec import model_of
from algoformer.training.data import Data, Size
from algoformer.training.step import Step, compiled, settings

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
TASK = LinearRegression(d=5, n=10, dense=True)


def made():
    config = AlgoFormerConfig(features=5, width=64, heads=2, positions=32, loops=6)
    return AlgoFormer(config, torch.Generator().manual_seed(0)).cuda()


def gradients(config, weights, step, fast):
    device, model = torch.device("cuda"), made()
    model.load_state_dict(weights)
    one = Step(model, TASK, replace(config, fast=fast), device)
    data = Data(TASK, config, device, torch.float32, padded=one.graphs)
    with settings(one.precision, False, device), compiled(model, one.fast):
        for i in range(5 if fast else 1):  # the fifth is a replay
            model.load_state_dict(weights)
            row = one(0, data.batch(step, Size(None, None, 6)), 6).clone()
            if fast and i == 4:
                assert len(one.captured) == 1
        return row, [v.grad.clone() for v in one.weights]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mark", [pytest.param(None, marks=gpu)])
def test_the_captured_step_is_the_plain_step(precision, mark):
    config = TrainConfig(batch=32, window=4, precision=precision, lr=1e-12, warmup=0)
    weights = made().state_dict()
    row, fast = gradients(config, weights, 3, True)
    wanted, plain = gradients(config, weights, 3, False)
    _, exact = gradients(replace(config, precision="fp32"), weights, 3, False)

    def apart(one, other):
        total = torch.stack([v.norm() for v in other]).norm()
        return float(torch.stack([(a - b).norm() for a, b in zip(one, other, strict=True)]).norm() / total)

    if precision == "fp32":
        torch.testing.assert_close(row, wanted, rtol=1e-5, atol=0)
        assert apart(fast, plain) < 1e-5
    else:  # both round: the fast path at most a little more
        assert apart(fast, exact) < 1.5 * apart(plain, exact) + 1e-4


@pytest.mark.parametrize("mark", [pytest.param(None, marks=gpu)])
def test_a_curriculum_over_loops_dimensions_and_points_runs_on_graphs(mark):
    config = TrainConfig(
        steps=40, batch=16, window=3, dims=Ramp(start=2, stop=5, every=5), examples=Ramp(start=4, stop=10, every=5),
        loops=Ramp(start=3, stop=6, every=10), log_every=1, precision="fp32",
    )  # fmt: skip
    losses = {fast: [] for fast in (True, False)}
    for fast in losses:
        train(made(), TASK, replace(config, fast=fast), progress=lambda p, f=fast: losses[f].append(p.loss))
    assert losses[True] == pytest.approx(losses[False], rel=1e-3)


@pytest.mark.parametrize(
    "shape",
    [
        LinearTransformerConfig(features=5, layers=2),
        LinearSelfAttentionConfig(features=5, layers=3, heads=4, width=64, scratch=3, hidden=False, clip=10.0),
        LinearSelfAttentionConfig(features=5, layers=2, heads=2, width=32, norm=True),
        LSTMConfig(features=5, layers=3),
    ],
    ids=lambda shape: type(shape).__name__,
)
@pytest.mark.parametrize("mark", [pytest.param(None, marks=gpu)])
def test_models_without_regions_are_captured_too(mark, shape):
    losses = {fast: [] for fast in (True, False)}
    for fast in losses:
        model = model_of(shape, torch.Generator().manual_seed(0)).cuda()
        config = TrainConfig(steps=20, batch=64, lr=1e-2, fast=fast, precision="fp32", log_every=1)
        train(model, LinearRegression(d=5, n=10), config, progress=lambda p, f=fast: losses[f].append(p.loss))
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)


@pytest.mark.parametrize("some", ["few", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["blocks", "models", "text", "dropout", "attention", "linear", "lstm", "adam"])
def test_the_fused_pass_is_the_plain_one(what, some):
    """On a GPU as it is, elsewhere in Triton's interpreter; outside this process, whose shape checks it cannot bear."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here.parent / "src"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-W", "ignore", str(here / "fused_cases.py"), what]
    command += ["few"] if some == "few" else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("mark", [pytest.param(None, marks=gpu)])
def test_text_of_several_widths_runs_on_graphs(mark, dropout):
    task = NumberWords(size=500, vocabulary=300, mask="prefix" if dropout else "causal")
    sizes = {"vocabulary": 300, "positions": 64, "width": 64, "heads": 2, "loops": 3, "dropout": dropout}
    config = TrainConfig(
        steps=120, batch=512, random_loops=(2, 3), window=1, gradient_loops=3, smoothing=0.1, log_every=20,
        precision="fp32", lr=1e-4, warmup=0, schedule="constant",
    )  # fmt: skip
    losses = {fast: [] for fast in (True, False)}
    for fast in losses:
        model = AlgoFormer(AlgoFormerConfig(**sizes), torch.Generator().manual_seed(0)).cuda()
        train(model, task, replace(config, fast=fast), progress=lambda p, f=fast: losses[f].append(p.loss))
    # the kernels draw other numbers
    assert losses[True] == pytest.approx(losses[False], rel=0.02 if dropout else 1e-3)


@pytest.mark.parametrize("mark", [pytest.param(None, marks=gpu)])
def test_at_most_twelve_graphs_are_held(mark):
    config = TrainConfig(
        steps=120, batch=4, window=2, loops=Ramp(start=2, stop=20, every=6), log_every=10, precision="fp32"
    )
    model = AlgoFormer(replace(made().config, loops=20)).cuda()
    one = Step(model, TASK, config, torch.device("cuda"))
    data = Data(TASK, config, torch.device("cuda"), torch.float32, padded=True)
    with settings(one.precision, False, torch.device("cuda")), compiled(model, True):
        for i in range(19 * 5):
            one(i, data.batch(i, Size(None, None, 2 + i // 5)), 2 + i // 5)
    assert len(one.captured) == 12


@pytest.mark.slow
@pytest.mark.parametrize("text", [False, True])
def test_the_compiled_step_is_the_plain_step_on_a_cpu(tmp_path, text):
    """torch.compile takes minutes here, and does not go with the shape checks of this process."""
    code = TEXT_CODE if text else NUMBERS_CODE
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=900)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


NUMBERS_CODE = """
import torch
from algoformer.models import AlgoFormer, AlgoFormerConfig
from algoformer.tasks import LinearRegression
from algoformer.training import TrainConfig, train

out = []
for fast in (False, True):
    config = AlgoFormerConfig(features=5, width=32, heads=2, loops=6, positions=32)
    model = AlgoFormer(config, torch.Generator().manual_seed(0))
    train(
        model,
        LinearRegression(d=5, n=10, dense=True),
        TrainConfig(steps=5, batch=8, log_every=1, window=3, fast=fast, random_loops=(4, 7)),
        progress=lambda p: out.append((p.loss, p.row["gradient"])),
    )
for plain, fast in zip(out[:5], out[5:]):
    torch.testing.assert_close(torch.tensor(fast), torch.tensor(plain), rtol=1e-5, atol=0)
print("equal")
"""

TEXT_CODE = """
import torch
from algoformer.models import AlgoFormer, AlgoFormerConfig
from algoformer.tasks import NumberWords
from algoformer.training import TrainConfig, train

out = []
for fast in (False, True):
    config = AlgoFormerConfig(vocabulary=300, positions=64, width=32, heads=2, loops=3)
    model = AlgoFormer(config, torch.Generator().manual_seed(0))
    train(
        model,
        NumberWords(size=500, vocabulary=300),
        TrainConfig(steps=12, batch=256, log_every=1, window=1, fast=fast, random_loops=(2, 3), gradient_loops=3),
        progress=lambda p: out.append((p.loss, p.row["gradient"])),
    )
for plain, fast in zip(out[:12], out[12:]):
    torch.testing.assert_close(torch.tensor(fast), torch.tensor(plain), rtol=1e-5, atol=0)
print("equal")
"""
