"""The benchmarks run and measure what they say; no test depends on the clock."""

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
