"""The models that are shipped: whole, as good as their cards say, and usable as estimators."""

import shutil
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split

import algoformer
from algoformer import InContextRegressor, On, zoo
from algoformer.bench import zoo as bench
from algoformer.models import AlgoFormerConfig
from algoformer.solvers import Ridge, Windows
from algoformer.tasks import Autoregression, ChainOfThought, LinearRegression
from algoformer.training import TrainConfig, load, train
from algoformer.training.codec import decode, model_of

TINY = AlgoFormerConfig(features=3, width=8, heads=2, loops=2)
NUMBERS = [name for name in zoo.NAMES if name not in zoo.TRANSLATORS]


@pytest.mark.parametrize("name", zoo.NAMES)
def test_a_shipped_model_is_small_has_a_card_and_asks_no_network(name, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("it asked the network"))
    assert algoformer.pretrained(name) is not None
    files = list((zoo.HOME / name).iterdir())
    assert sum(file.stat().st_size for file in files) <= 5e6
    card = (zoo.HOME / name / "README.md").read_text()
    assert all(word in card for word in ("**Model.**", "**Training.**", "**Quality.**", "**Again.**"))


def test_all_shipped_models_together_are_small():
    assert sum(file.stat().st_size for file in zoo.HOME.rglob("*") if file.is_file()) <= 25e6


@pytest.mark.parametrize("name", NUMBERS)
def test_a_shipped_model_of_numbers_is_as_good_as_its_card_says(name):
    facts = zoo.about(name)
    model = algoformer.pretrained(name)
    assert model.context == facts["context"]
    found = bench.relative(model, decode(facts["task"]), facts["error"]["prompts"])
    assert found == pytest.approx(facts["error"]["relative"], rel=0.05)


def test_the_model_of_a_run_is_shipped_once_in_half_precision(tmp_path, monkeypatch):
    task = LinearRegression(d=3, n=4, dense=True)
    train(model_of(TINY), task, TrainConfig(steps=2, batch=4), tmp_path / "run")
    shelf = tmp_path / "zoo"
    shelf.mkdir()
    for place in (zoo, bench):
        monkeypatch.setattr(place, "HOME", shelf)
    monkeypatch.setattr(zoo, "NAMES", ("tiny",))
    bench.ship(tmp_path / "run", "tiny")
    assert [folder.name for folder in shelf.iterdir()] == ["tiny"]
    found, half = algoformer.pretrained("tiny"), load(tmp_path / "run").half().float()
    assert found.context == 4
    sample = task.sample(8, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found(sample.prompt), half(sample.prompt), rtol=0, atol=0)
    facts = zoo.about("tiny")
    assert decode(facts["task"]) == task
    assert facts["error"]["relative"] == pytest.approx(bench.relative(half, task, facts["error"]["prompts"]))
    with pytest.raises(ValueError, match="must have a new name; got 'tiny'"):
        bench.ship(tmp_path / "run", "tiny")


@pytest.mark.parametrize(
    "task",
    [
        LinearRegression(d=10, n=4, dense=True),
        Autoregression(d=10, n=4, every=True),
        ChainOfThought(d=10, n=12, layers=2, dense=True),
    ],
    ids=lambda task: type(task).__name__,
)
def test_the_facts_of_a_card_are_those_of_the_task_and_have_the_oracle_beside_them(task):
    pairs = isinstance(task, LinearRegression)
    model = model_of(replace(TINY, features=10, labels=1 if pairs else 10, loops=4))
    loops, outside = bench.by_loop(model, task, 32), bench.outside(model, task, 32)
    assert [*loops] == ["1", "2", "3", "4", "6", "12", "the oracle"]
    told = [name for name in outside if not name.endswith("oracle")]
    assert [*outside] == told + [f"{name}, the oracle" for name in told]
    most = 1 if isinstance(task, ChainOfThought) else 100
    assert all(outside[f"{n} examples, the oracle"] <= outside[f"{n} examples"] for n in (10, most))
    assert ("another phi" in told) == isinstance(task, Autoregression)
    timed = [name for name in bench.speed(model, task) if name.endswith("loops")]
    assert len(timed) == (4 if pairs else 2)  # a series or a chain has one question


def test_the_states_of_a_chain_have_errors_of_their_own_whose_mean_is_told():
    task = ChainOfThought(d=10, n=6, layers=2, dense=True)
    model = model_of(replace(TINY, features=10, labels=10))
    found = bench.by_state(model, task, 32)
    assert [*found] == ["state 1", "state 2", "state 1, the oracle", "state 2, the oracle"]
    assert all(found[f"state {i}, the oracle"] < found[f"state {i}"] for i in (1, 2))
    low, high = sorted(found[f"state {i}"] for i in (1, 2))
    assert low < bench.relative(model, task, 32) < high


def test_a_file_that_is_not_as_it_was_shipped_is_refused(tmp_path, monkeypatch):
    shutil.copytree(zoo.HOME / "numbers-de-en", tmp_path / "numbers-de-en")
    monkeypatch.setattr(zoo, "HOME", tmp_path)
    file = tmp_path / "numbers-de-en" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="as it was shipped; its checksum differs"):
        algoformer.pretrained("numbers-de-en")


@pytest.mark.parametrize("name", [None, 3, Path("linear-regression-d20")])
def test_a_name_that_is_no_string_is_refused(name):
    for ask in (algoformer.pretrained, zoo.about):
        with pytest.raises(TypeError, match="a pretrained model must be given by its name; got"):
            ask(name)


def test_ridge_that_is_not_told_phi_is_best_on_series_at_the_strength_that_the_page_gives_it():
    sample = Autoregression().sample(1280, torch.Generator().manual_seed(0))
    error = {}
    for strength in (30.0, 100.0, 300.0, 1000.0, 3000.0):
        answer = On(Ridge(strength=strength), Windows(q=3)).predict(sample.prompt)
        error[strength] = float((answer - sample.truth.clean).square().mean())
    page = (Path(__file__).parent.parent / "docs" / "zoo.md").read_text()
    assert f"Ridge(strength={min(error, key=error.get)})" in page


def test_a_shipped_transformer_is_an_estimator_on_real_data():
    model = algoformer.pretrained("linear-regression-d20")
    X, y = load_diabetes(return_X_y=True)
    X, others, y, hidden = train_test_split(X, y, test_size=60, random_state=0)
    fitted = InContextRegressor(method=model, subsets=4, random_state=0).fit(X, y)
    assert fitted.contexts_.shape == (4, 40)
    assert fitted.score(others, hidden) > InContextRegressor().fit(X, y).score(others, hidden) - 0.25
    again = InContextRegressor(method=model, subsets=4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict(others), fitted.predict(others))
    with pytest.raises(ValueError, match="at most 20 features; got 30"):
        InContextRegressor(method=model).fit(*load_breast_cancer(return_X_y=True))
