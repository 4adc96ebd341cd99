"""Models asked with noise: what is measured loop by loop, and what is claimed of it."""

import dataclasses

import pytest

from algoformer.experiments import Site, ours_noise
from algoformer.experiments.ours_noise import Result


def test_the_claims_are_about_the_noise_where_they_hold_least():
    models = {
        "0": {"a, short": [1.0, 0.3, 0.2], "a, long": [1.0, 0.2, 0.1]},
        "1": {"a, short": [1.0, 0.4, 0.5], "a, long": [1.0, 0.6, 0.7]},
        "3": {"a, short": [1.0, 0.8, 0.7], "a, long": [1.0, 0.8, 1.4]},
    }
    solver = {noise: [1.0, 0.5, 0.5] for noise in models}
    found = ours_noise.claims(Result(models=models, conjugate=solver, exact=dict.fromkeys(models, 0.5), oracle={}))
    assert [c.measured for c in found] == pytest.approx([2, 1.0, 1, 1.4, 0.5, 1.4, 2.0])
    assert [c.holds for c in found] == [False, False, True, True, True, True, True]


def test_the_solvers_end_where_they_should_and_models_have_a_line_by_loop():
    config = dataclasses.replace(ours_noise.SMOKE, prompts=512)
    found = ours_noise.run(config, Site())
    assert list(found.models) == ["0", "1"] == list(found.oracle)
    for noise, lines in found.models.items():
        assert list(lines) == [f"{name}, {steps} steps" for name in ("looped", "AlgoFormer") for steps in (2, 3)]
        assert {len(line) for line in (found.conjugate[noise], *lines.values())} == {config.loops + 1}
        assert found.conjugate[noise][0] == pytest.approx(1.0)  # it says 0
        assert found.conjugate[noise][-1] == pytest.approx(found.exact[noise], rel=1e-3, abs=1e-6)  # two dimensions
    assert found.oracle["0"] <= found.exact["0"] < 1e-6 < found.oracle["1"] < found.exact["1"]
