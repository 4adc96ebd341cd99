"""The benchmarks run and measure what they say; no test depends on the clock."""

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from algoformer.bench import median_seconds, solvers, train
from algoformer.solvers import Newton


def test_contestants_take_turns():
    calls = []
    times = median_seconds(lambda: calls.append("a"), lambda: calls.append("b"), repeats=3)
    assert calls == ["a", "b"] + ["a", "b"] * 3
    assert len(times) == 2
    assert all(t >= 0 for t in times)


def test_the_numpy_loop_that_newton_races_computes_the_same(monkeypatch):
    monkeypatch.setattr(solvers, "PREFIXES", 12)
    dense = solvers._dense(5, torch.float64, batch=3)
    ours = Newton(steps=solvers.STEPS).predict(dense).numpy()[:, 1:]
    np.testing.assert_allclose(ours, solvers._loop(dense), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_training_step_is_timed_side_by_side():
    (table,) = train.run()
    assert [row[0][:3] for row in table.rows][-1] == "(d)"
    assert table.rows[-1][2] == 1
    assert all(row[1] > 0 for row in table.rows)


# Modules that are commands


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("algoformer.claims page.md nope", "a claim must be one that there is; got 'nope'"),
        ("algoformer.experiments nope", "an experiment must be one that there is; got 'nope'"),
        ("algoformer.experiments.headless nope", "an experiment must be one that there is; got 'nope'"),
        ("algoformer.bench.zoo nope", "a pretrained model of numbers must be one that there is; got 'nope'"),
        (
            "algoformer.bench.zoo numbers-de-en",
            "got 'numbers-de-en': there are autoregression-d20, chain-of-thought-d20, linear",
        ),
        ("algoformer.bench.translation trial --data nowhere", "nowhere/multi30k_de_en must hold either valid.de or"),
    ],
)
def test_a_command_that_is_refused_says_so_in_one_line(line, told, tmp_path, monkeypatch, capsys):
    assert command(line, tmp_path, monkeypatch) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"{line.split()[0]}: ") and told in error
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("name", ["claims", "experiments", "experiments.headless", "bench.zoo", "bench.translation"])
def test_help_is_printed_and_nothing_is_done(name, tmp_path, monkeypatch, capsys):
    assert command(f"algoformer.{name} --help", tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out.startswith(f"usage: algoformer.{name} ")
    assert not list(tmp_path.iterdir())


def command(line: str, folder: Path, monkeypatch) -> int:
    """The exit code of `python -m line` in a folder."""
    monkeypatch.chdir(folder)
    module, *arguments = line.split()
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with warnings.catch_warnings(), pytest.raises(SystemExit) as end:
        warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
        runpy.run_module(module, run_name="__main__")
    return end.value.code
