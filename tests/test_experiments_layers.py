"""What layers know, how it is kept, and the maps that are made of it."""

import dataclasses
import shutil
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from algoformer.algorithm import Algorithm
from algoformer.analysis import Candidate, induced_trace, readings
from algoformer.experiments import Site, load, maps, reproduce
from algoformer.experiments.answers import kept, sources
from algoformer.experiments.fingerprints import numbers
from algoformer.experiments.layers import (
    Read,
    Weighed,
    fixed,
    layer_answers,
    read_layers,
    read_outs,
    weigh_layers,
)
from algoformer.experiments.softmax import TINY, Softmax, stored
from algoformer.models import LinearSelfAttentionConfig, Transformer, TransformerConfig
from algoformer.prompt import Dense
from algoformer.solvers import GradientDescent, LeastSquares, Newton
from algoformer.task import Sample, Task, Truth
from algoformer.tasks import LinearRegression
from algoformer.training import Recipe, TrainConfig

TASK = LinearRegression(d=3, n=6, dense=True)
SOFTMAX = [
    "fu2024_fig2", "fu2024_fig3", "fu2024_fig6", "fu2024_fig9", "fu2024_fig12", "fu2024_fig13", "fu2024_fig20",
    "fu2024_fig21", "fu2024_fig27", "fu2024_table1",
]  # fmt: skip


# Kept answers


def recipe() -> Recipe:
    model = LinearSelfAttentionConfig(features=2, layers=1, heads=1)
    return Recipe(model=model, task=LinearRegression(d=2, n=4), train=TrainConfig(steps=3, batch=4, warmup=1))


def third(shape=(2, 3)):
    return {"a": torch.full(shape, 1 / 3, dtype=torch.float64), "b": torch.arange(4.0)}


def test_answers_are_made_once_and_read_from_then_on_with_the_same_rounding(tmp_path):
    site = Site(answers=tmp_path)
    made = kept("test", recipe(), (8,), site, third)
    again = kept("test", recipe(), (8,), site, lambda: pytest.fail("it was made again"))
    nowhere = kept("test", recipe(), (8,), Site(), third)
    for found in (made, again, nowhere):
        assert found.keys() == {"a", "b"}
        assert np.array_equal(found["a"].numpy(), np.full((2, 3), np.float32(1 / 3), dtype=np.float64))
    assert len(list(tmp_path.iterdir())) == 1


def test_answers_of_another_seed_size_kind_or_recipe_are_others(tmp_path, monkeypatch):
    site = Site(answers=tmp_path)
    other = dataclasses.replace(recipe(), task=LinearRegression(d=2, n=5))
    for what, made_by, sizes, place in (
        ("test", recipe(), (8,), site),
        ("other", recipe(), (8,), site),
        ("test", other, (8,), site),
        ("test", recipe(), (8, 2), site),
        ("test", recipe(), (2, 8), site),
        ("test", recipe(), (8,), dataclasses.replace(site, seed=1)),
        ("test", recipe().task, (8,), site),
        ("test", other.task, (8,), site),
    ):
        kept(what, made_by, sizes, place, third)
    assert len(list(tmp_path.iterdir())) == 8
    monkeypatch.setattr("algoformer.experiments.answers.FORM", 0)
    kept("test", recipe(), (8,), site, third)
    assert len(list(tmp_path.iterdir())) == 9


def test_answers_are_kept_whatever_their_order_and_their_room_in_memory(tmp_path):
    v = torch.arange(6.0).view(2, 3)

    def views():
        return {"b": v.T, "a": v, "c": v[1:]}

    for _ in range(2):
        found = kept("test", recipe(), (8,), Site(answers=tmp_path), views)
        assert {name: w.tolist() for name, w in found.items()} == {name: w.tolist() for name, w in views().items()}


def test_a_changed_cut_or_moved_file_of_answers_is_refused_by_name(tmp_path):
    site = Site(answers=tmp_path)
    kept("test", recipe(), (8,), site, third)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()

    def refused(message):
        with pytest.raises(ValueError, match=rf"{file.name} {message}"):
            kept("test", recipe(), (8,), site, third)

    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused("must hold the tensors it was written with")
    with safe_open(file, framework="pt") as opened:
        about = opened.metadata()
    a, b = (v.float() for v in third().values())
    for changed in ({"b": a, "a": b}, {"a": a.T.contiguous(), "b": b}, {"a": a, "c": b}):
        file.write_bytes(save(changed, about))
        refused("must hold the tensors it was written with")
    file.write_bytes(whole[:-5])
    refused("must be a safetensors file")
    with pytest.raises(ValueError, match=rf"{file.name} must be a safetensors file"):
        list(sources(tmp_path))
    file.write_bytes(save({"a": torch.zeros(1)}))
    refused("must say what it was made from")
    kept("test", recipe(), (9,), site, third)
    (other,) = set(tmp_path.iterdir()) - {file}
    file.write_bytes(other.read_bytes())
    refused("must lie at the hash")


@pytest.mark.parametrize("name", [*SOFTMAX, "giannou2024_fig2", "giannou2024_fig3", "giannou2024_fig8"])
def test_a_figure_is_made_again_from_kept_answers_without_the_model(tmp_path, name):
    experiment = load(name)
    site = Site(models=tmp_path / "models", answers=tmp_path / "answers", folder=tmp_path / "unfinished")
    first = experiment.run(experiment.SMOKE, site)
    assert any(site.models.iterdir())
    shutil.rmtree(site.models)
    again = experiment.run(stored(experiment.SMOKE), site)
    both = [list(numbers(dataclasses.asdict(result))) for result in (again, first)]
    np.testing.assert_allclose(*both, rtol=1e-9, atol=1e-12)  # where memory lies may round a product otherwise


def test_a_run_keeps_answers_beside_its_results(tmp_path):
    assert reproduce(["fu2024_fig9"], preset="smoke", seeds=1, out=tmp_path).ok
    assert len(list((tmp_path / "answers").glob("*.safetensors"))) == 2  # of every layer, and their weights
    assert len(list((tmp_path / "fu2024_fig9").glob("*.json"))) == 1


def test_kept_answers_to_other_prompts_are_refused(tmp_path):
    settings, site = Softmax(**TINY), Site(answers=tmp_path)
    task = settings.task("linear")
    config = settings.standard(task, 1)
    y = fixed(task, settings.prompts, Site(seed=1)).y
    kept("read", settings.recipe(config, task), (settings.prompts,), site, lambda: {"y": y, "answers": y[None]})
    with pytest.raises(ValueError, match="the prompts drawn here"):
        layer_answers(settings, config, task, site)


def test_all_answers_of_a_model_of_the_paper_are_small():
    b, n, d, layers = 320, 40, 20, 12
    weighed = load("fu2024_fig9").GPU.weighed
    assert load("fu2024_fig3").GPU.prompts == b
    answers = 4 * (layers + 2) * b * (n + 1)
    weights = 4 * weighed * (n + 1 + layers * n * (d + 1))
    assert answers + weights < 2.2e6


# What layers know


def test_fixed_prompts_are_a_function_of_the_seed():
    assert torch.equal(fixed(TASK, 4, Site()).x, fixed(TASK, 4, Site()).x)
    assert not torch.equal(fixed(TASK, 4, Site()).x, fixed(TASK, 4, Site(seed=1)).x)
    assert not torch.equal(fixed(TASK, 4, Site()).x, fixed(TASK, 4, Site(), stream=2).x)


def test_a_layer_says_the_same_of_a_prefix_as_of_the_whole(generator):
    model = Transformer(TransformerConfig(features=3, width=8, heads=2, layers=2), generator)
    reader = read_outs(model, TASK, 16, Site())
    dense = fixed(TASK, 5, Site())
    whole = reader.trace(dense)
    for i in range(7):
        torch.testing.assert_close(reader.trace(dense.prefix(i))[:, :, 0], whole[:, :, i], rtol=1e-4, atol=1e-5)


class Taught(Task):
    """Every label is what a model says of the pairs before it."""

    def __init__(self, model):
        self.model = model

    def sample(self, batch, generator, dtype=torch.float32):
        x = torch.randn(batch, 5, 3, generator=generator, dtype=dtype)
        y = torch.zeros(batch, 5, 1, dtype=dtype)
        with torch.no_grad():
            for i in range(5):
                y[:, i] = self.model(Dense(x, y))[:, i]
        return Sample(Dense(x, y), y, Truth(y, None))


def test_the_last_read_out_can_say_what_the_model_says(generator):
    model = Transformer(TransformerConfig(features=3, width=8, heads=2, layers=2), generator)
    with torch.no_grad():
        model.answer.norm.weight.normal_(generator=generator)
    errors = read_layers(model, Taught(model), 100, Site()).errors
    assert errors[-1] < 1e-9 < 1e-3 < errors[-2]


class Held(NamedTuple):
    h: torch.Tensor
    layout: Any = SimpleNamespace(rows=slice(None))


class Holding(Algorithm):
    """A model whose stream holds the query, and after one layer twice the answer of least squares."""

    steps = limit = 1
    kinds = (Dense,)
    answer = SimpleNamespace(norm=torch.nn.Identity())

    def prepare(self, p: Any) -> Any:
        return p

    def init(self, p):
        asked = p.x if isinstance(p, Dense) else p.queries
        return Held(asked)

    def step(self, p, s, t):
        answer = LeastSquares().predict(p)
        return Held(2 * answer)


Holding.__abstractmethods__ = frozenset()


def test_a_layer_that_holds_least_squares_induces_its_weights():
    found = weigh_layers(Holding(), TASK, 2000, 6, Site())
    assert found.w.shape == (1, 6, 6, 3, 1)
    x, y = found.prompt.x.numpy(), found.prompt.y.numpy()
    for b in range(6):
        for i in range(1, 7):
            wanted = np.linalg.lstsq(x[b, :i], y[b, :i])[0]
            assert np.abs(found.w[0, b, i - 1].numpy() - wanted).max() < 0.03
    assert float(found.linearity.mean()) > 0.99
    embedded, solved = read_layers(Holding(), TASK, 2000, Site()).errors.tolist()
    assert embedded > 0.9 and solved < 1e-3


# Maps


def newton_layers(steps):
    """A model whose layers are steps of Newton's iteration."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(48, 21, 8, generator=g, dtype=torch.float64)
    prompt = Dense(x, x @ torch.randn(48, 8, 1, generator=g, dtype=torch.float64))
    answers = readings(Newton(scale="frobenius"), prompt, steps)
    return Read(prompt, torch.cat([torch.zeros_like(answers[:1]), answers]))


def test_layers_that_are_every_second_newton_step_are_found_on_a_line():
    steps = list(range(1, 17, 2))
    families = {
        "Newton": Candidate(Newton(scale="frobenius"), list(range(18))),
        "gradient descent": Candidate(GradientDescent(eta=0.01, gradient="sum"), maps.doubling(512)),
    }
    found = maps.error_maps(newton_layers(steps), families, Site())
    assert found.best["Newton"] == steps
    assert found.slopes["Newton"] == pytest.approx(2)
    assert found.straight["Newton"] == pytest.approx(1)
    assert found.best_similarity["Newton"] == pytest.approx([1.0] * 8)
    assert set(found.verdicts) == {"Newton"}
    middle = np.log2(found.best["gradient descent"][2:6])
    assert found.doublings["gradient descent"] == pytest.approx(np.polyfit(range(4), middle, 1)[0])
    assert maps.linear(found, "Newton", "a test").holds and maps.leads(found, "a test").holds
    assert not maps.linear(found, "Newton", "a test", more=2.5).holds


def test_a_growth_that_ends_at_the_last_step_tried_is_not_judged():
    families = {"Newton": Candidate(Newton(scale="frobenius"), [0, 1, 2, 3])}
    found = maps.error_maps(newton_layers(list(range(1, 17, 2))), families, Site())
    assert found.best["Newton"] == [1] + [3] * 7
    assert np.isnan(found.slopes["Newton"])
    claim = maps.linear(found, "Newton", "a test")
    assert not claim.holds and not claim.tested


def test_the_steps_to_try_are_all_at_first_and_then_two_to_a_doubling():
    assert maps.doubling(70) == [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 32, 45, 64]


def weighed(config, w):
    """Weights in place of a trained model's, and a model that has learned."""
    prompt = fixed(config.regression, config.weighed, Site())
    prompt = prompt.to(dtype=torch.float64)
    w = w(Dense(prompt.x[:, :-1], prompt.y[:, :-1]))
    read = Read(prompt, prompt.y[None].expand(config.layers + 1, -1, -1, -1))
    return read, Weighed(prompt, w, torch.ones(w.shape[:3]))


def with_weights(monkeypatch, experiment, config, w):
    read, found = weighed(config, w)
    monkeypatch.setattr(experiment, "layer_answers", lambda *_: read)
    monkeypatch.setattr(experiment, "layer_weights", lambda *_: found)
    return experiment.run(config, Site())


def test_layers_with_the_weights_of_newton_steps_are_matched_with_them(monkeypatch):
    experiment = load("fu2024_fig9")
    config = dataclasses.replace(experiment.SMOKE, d=4, n=8, layers=4, newton=12, descent=64, weighed=12)

    def w(pairs):
        g = torch.Generator().manual_seed(5)
        return torch.stack([f.w for f in induced_trace(Newton(scale="frobenius"), pairs, g, [1, 4, 7, 10])])

    result = with_weights(monkeypatch, experiment, config, w)
    assert result.best["Newton"] == [1, 4, 7, 10]
    assert result.slopes["Newton"] == pytest.approx(3)
    assert max(map(abs, result.null)) < 0.5 < min(result.best_similarity["Newton"])


@pytest.mark.parametrize("inside", [True, False])
def test_weights_of_an_iteration_lie_in_the_span_and_random_ones_do_not(monkeypatch, inside):
    experiment = load("fu2024_fig27")
    config = dataclasses.replace(experiment.SMOKE, d=6, n=8, layers=1, weighed=400)

    def w(pairs):
        g = torch.Generator().manual_seed(5)
        if inside:
            return induced_trace(GradientDescent(), pairs, g, [4])[0].w[None]
        return torch.randn(1, 400, 8, 6, 1, generator=g, dtype=torch.float64)

    result = with_weights(monkeypatch, experiment, config, w)
    assert result.examples == [1, 2, 3, 4, 5]
    outside = np.array(result.outside[0])
    wanted = np.zeros(5) if inside else 1 - np.arange(1, 6) / 6
    assert np.abs(outside - wanted).max() < (1e-10 if inside else 0.05)
    assert [c.holds for c in experiment.claims(result)] == [inside, inside]
