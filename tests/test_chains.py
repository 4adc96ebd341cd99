"""How near to Bayes: what is measured of the models of chains, and what is claimed of it."""

import pytest

from algoformer.experiments import Site, ours_chains
from algoformer.experiments.ours_chains import Result


def result(**models):
    above = dict.fromkeys(models, 0.1)
    return Result(few=1, bayes=[0.7, 0.4, 0.1], straight=[1.0, 0.5, 0.11], models=models, above=above)


def test_an_error_is_that_of_bayes_and_the_squared_distance_to_it():
    found = result(a=[0.71, 0.42, 0.3])
    assert found.distance(found.models["a"]) == pytest.approx([0.01, 0.02, 0.2])


def test_the_claims_hold_models_against_least_squares_with_few_chains_and_with_all():
    found = ours_chains.claims(result(a=[0.71, 0.42, 0.3], b=[0.71, 0.55, 0.105]))
    assert [c.measured for c in found] == pytest.approx([0.2, 20.0, 1.5, 0.5])
    assert [c.holds for c in found] == [True, True, False, False]


def test_the_lines_are_by_chains_seen_in_the_mean_over_states():
    found = ours_chains.run(ours_chains.SMOKE, Site())
    assert {len(line) for line in (found.bayes, found.straight, *found.models.values())} == {5}  # 0 to 4 chains
    assert found.straight[0] == pytest.approx(1.0)  # it says 0
    assert max(found.straight[2:] + found.bayes[2:]) < 1e-3  # two chains are all there is to know of two dimensions
    assert found.bayes[0] < 0.95
    assert list(found.models) == ["AlgoFormer", "looped", "standard"] == list(found.above)
