"""How models are compared: the same for all, chosen by pilots, tested on the same prompts, judged by intervals."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

import algoformer.models
import algoformer.tasks
import algoformer.training
from algoformer.experiments import Claim, Site, Verdict, judge, load, protocol
from algoformer.experiments.comparison import Race, above, below, draw_all, flattened, race
from algoformer.experiments.estimate import MEASURED, flops, seconds_a_step, work
from algoformer.experiments.experiment import t_interval
from algoformer.experiments.ledger import Ledger, entries
from algoformer.experiments.protocol import (
    PILOT_SEED,
    RATES,
    TEST,
    VALIDATION,
    Measured,
    PowerLaw,
    at,
    fall,
    measured,
    oracles,
    reached,
    watch,
    zeros,
)
from algoformer.experiments.registry import EXPERIMENTS
from algoformer.experiments.softmax import TINY, Rate, Softmax, stored
from algoformer.experiments.trained import trained
from algoformer.models import LinearSelfAttentionConfig
from algoformer.tasks import ChainOfThought, LinearRegression, Representation
from algoformer.training import Recipe, TrainConfig, Watch, evaluate, train
from algoformer.training.codec import encode, model_of
from algoformer.training.data import seeded
from algoformer.training.evaluation import final
from algoformer.training.loop import hold

COMPARED = [
    "algoformer2024_fig2a", "algoformer2024_fig2b", "algoformer2024_fig2c", "ours_linear", "ours_parts",
    "ours_controls", "ours_second_phi",
]  # fmt: skip
KEPT = [
    "algoformer2024_fig2a", "algoformer2024_fig3", "algoformer2024_fig4", "algoformer2024_fig5", "ours_noise",
    "ours_outside",
]  # fmt: skip


# Verdicts


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_the_interval_is_students(values):
    low, high = t_interval(values)
    mean, error = np.mean(values), scipy.stats.sem(values)
    if error > 1e-9:
        assert (low, high) == pytest.approx(scipy.stats.t.interval(0.95, len(values) - 1, mean, error), rel=1e-6)


def paired(*values, errors=((0.1, 0.1),) * 8, **more):
    claims = [
        Claim(text="a", source="b", measured=v, bound=0.0, errors=e, paired=True, **{"sense": "<", **more})
        for v, e in zip(values, errors, strict=False)
    ]
    return judge([[c] for c in claims])[0]


def test_a_paired_claim_holds_where_its_interval_does():
    assert paired(-1.0, -1.1, -0.9).verdict == Verdict.HOLDS
    assert paired(-1.0, -0.01, -2.0).verdict == Verdict.FAILS  # every seed is below 0, the interval is not
    assert paired(-1.0, -0.01, -2.0).label == "fails: not separated"
    assert paired(1.0, 1.1, 0.9).label == "fails"
    assert paired(-1.0, -1.1).verdict == Verdict.ONE
    found = paired(-1.0, -1.1, -0.9)
    assert found.interval == pytest.approx(scipy.stats.t.interval(0.95, 2, -1.0, scipy.stats.sem([-1, -1.1, -0.9])))
    assert found.margin == pytest.approx(-found.interval[1])
    mirrored = paired(1.0, 1.1, 0.9, sense=">")
    assert (mirrored.verdict, mirrored.margin) == (Verdict.HOLDS, pytest.approx(found.margin))
    assert paired(1.0, 0.01, 2.0, sense=">").label == "fails: not separated"


def test_a_stuck_seed_counts_and_a_model_that_never_learned_is_no_comparison():
    stuck = ((1.0, 0.1), (0.01, 0.1), (0.01, 0.1))
    assert paired(1.0, -1.0, -1.0, errors=stuck).verdict == Verdict.FAILS
    never = ((0.01, 1.0),) * 3
    assert paired(-2.0, -2.0, -2.1, errors=never).verdict == Verdict.UNTESTED
    assert paired(-1.0, -1.1, -0.9, comparable=False).verdict == Verdict.UNTESTED
    runs = [
        [Claim(text="a", source="b", measured=-1.0, sense="<", bound=0.0, paired=True, comparable=i != 1)]
        for i in range(3)
    ]
    assert judge(runs)[0].verdict == Verdict.UNTESTED  # one that is no comparison is enough


def raced(a, b, *, flops=(1.0, 1.0), parameters=(1, 1)):
    """Two models with learning curves [(step, error), ..] and test errors at their ends."""
    names = ("AlgoFormer", "looped")
    lines = {
        name: {"step": [s for s, _ in curve], "last": [e for _, e in curve]}
        for name, curve in zip(names, (a, b), strict=True)
    }
    return Race(
        errors={name: [[1.0, line["last"][-1]]] for name, line in lines.items()},
        oracle=[[0.0, 0.0]],
        zero=[[1.0, 1.0]],
        outcomes=dict.fromkeys(names, "finished"),
        curves={name: line | {"mean": line["last"]} for name, line in lines.items()},
        rates=dict.fromkeys(names, 1e-3),
        pilots={name: {} for name in names},
        flops=dict(zip(names, flops, strict=True)),
        parameters=dict(zip(names, parameters, strict=True)),
    )  # fmt: skip


def test_each_axis_has_a_verdict_of_its_own():
    """error = 1 / step for one; the other has 2 / step and costs a quarter of it a step."""
    steps = (1, 10, 100)
    race = raced([(s, 1 / s) for s in steps], [(s, 2 / s) for s in steps], flops=(4.0, 1.0), parameters=(3, 1))
    by_steps, by_mean, by_flops, by_parameters = below(race, "AlgoFormer", "looped", "a test")
    assert by_steps.measured == pytest.approx(-math.log10(2)) and by_steps.holds
    assert by_mean.measured == pytest.approx(math.log10((1 + 0.01) / (1 + 0.02)))
    assert by_flops.measured == pytest.approx(math.log10(2))  # 25 steps of one cost what 100 of the other do
    assert not by_parameters.comparable and by_steps.comparable
    assert all(c.paired for c in (by_steps, by_mean, by_flops, by_parameters))
    as_large = dataclasses.replace(race, parameters={"AlgoFormer": 1, "looped": 1})
    assert below(as_large, "AlgoFormer", "looped", "a test")[3].comparable


def test_a_figure_has_a_line_for_every_seed_and_names_what_stuck():
    line = [(1, 1.0), (10, 0.1)]
    races = [raced(line, [(s, factor * e) for s, e in line]) for factor in (1.0, 2.0, 0.5)]
    races[1].outcomes["looped"] = "stuck"
    _, middle, right = draw_all(races).axes
    assert len(middle.lines) == len(right.lines) == 2 * 3
    assert sorted(float(v.get_ydata()[-1]) for v in middle.lines[3:]) == pytest.approx([0.05, 0.1, 0.2])
    key = [t.get_text() for t in middle.get_legend().get_texts()]
    assert key == ["AlgoFormer, lr 0.001", "looped, lr 0.001, 1 of 3 stuck at half time"]


def test_a_figure_shows_no_errors_where_nothing_but_noise_is_asked():
    line = [(1, 1.0), (10, 0.1)]
    race = dataclasses.replace(raced(line, line), oracle=[[0.0, 0.05]], zero=[[0.0, 1.0]])
    left, *_ = draw_all([race]).axes
    assert [list(drawn.get_xdata()) for drawn in left.lines] == [[1]] * 4
    assert left.get_ylim() == pytest.approx((0.05, 2))


@pytest.mark.parametrize(("exponent", "flat"), [(0.1, True), (1.0, False)])
def test_a_curve_has_flattened_that_falls_by_less_than_a_tenth_in_its_last_third(exponent, flat):
    steps = range(1, 301)
    line = [(s, s**-exponent) for s in steps]
    assert fall(tuple(map(list, zip(*line, strict=True)))) == pytest.approx(1 - (2 / 3) ** exponent)
    assert flattened(raced(line, line)).holds is flat
    noisy = flattened(dataclasses.replace(raced(line, line), oracle=[[0.0, 0.9]]))  # nine tenths of the error is noise
    error = [0.9 + 0.1 * s**-exponent for s in (200, 300)]
    assert noisy.measured == pytest.approx(1 - error[1] / error[0]) and noisy.holds


def test_a_curve_that_is_noise_about_the_oracle_has_flattened():
    assert fall(([1, 60, 80, 100], [1e-3, -1e-6, -1e-6, -1e-6])) == pytest.approx(0)


@given(st.floats(0.5, 200))
def test_a_curve_is_read_between_its_points_on_a_line_of_logarithms(step):
    steps, errors = [1, 7, 50, 100], [1.0, 0.5, 0.01, 0.02]
    wanted = np.exp(np.interp(np.log(step), np.log(steps), np.log(errors)))
    assert at((steps, errors), step) == pytest.approx(wanted)


def test_a_power_law_is_found_and_says_where_it_comes_to_an_error():
    steps = [10.0, 20.0, 50.0, 90.0]
    law = PowerLaw.of(steps, [3 * s**-0.7 for s in steps])
    assert (law.scale, law.exponent) == pytest.approx((3, 0.7))
    assert 3 * law.steps(1e-3) ** -0.7 == pytest.approx(1e-3)
    assert PowerLaw.of(steps, [1.0] * 4).steps(0.5) == math.inf
    assert PowerLaw(1.0, 1e-9).steps(1e-3) == PowerLaw(1.0, 5e-3).steps(1e-3) == math.inf


# What is the same for all


@pytest.mark.parametrize("name", COMPARED)
def test_models_of_a_comparison_are_trained_alike_but_for_window_and_rate(name):
    config = load(name).GPU
    made = list(config.recipes())
    pilots = [r for r in made if r.train.seed == PILOT_SEED]
    rest = [r for r in made if r.train.seed != PILOT_SEED]
    assert len(rest) == len(config.entrants) and len({r.task for r in made}) == 1
    free = {"lr": 1.0, "window": None, "gradient_loops": None}
    assert len({dataclasses.replace(r.train, **free) for r in rest}) == 1
    assert len({dataclasses.replace(r.train, **free) for r in pilots}) == 1
    assert {r.train.lr for r in pilots} == set(RATES) and {r.train.steps for r in pilots} == {10_000}
    assert {r.train.batch for r in made} == {64} and {r.train.schedule for r in made} == {"constant"}
    assert config.prompts == 6400


def test_the_runs_are_those_of_the_plan():
    steps = {
        "algoformer2024_fig2a": 60_000, "algoformer2024_fig2b": 60_000, "algoformer2024_fig2c": 30_000,
        "algoformer2024_fig3": 30_000, "algoformer2024_fig4": 30_000, "algoformer2024_fig5": 60_000,
        "ours_linear": 24_000, "ours_headline": 200_000, "ours_stuck": 10_000, "fu2024_fig15": 100_000,
        "fu2024_fig2": 100_000, "giannou2024_fig8": 20_000,
    }  # fmt: skip
    assert {name: load(name).GPU.steps for name in steps} == steps
    softmax = [name for name in steps if not name.startswith("giannou")]
    assert {load(name).PAPER.steps for name in softmax} == {500_000}
    chain = load("algoformer2024_fig2c").GPU.subject
    assert (chain.n + 1) * (chain.layers + 1) == 140
    headline = load("ours_headline").GPU
    *long, better, surer = list(headline.recipes())[-5:]
    assert [r.train.steps for r in long] == [200_000, 200_000, 300_000]
    assert {(r.train.schedule, r.train.ema, r.train.dims.start) for r in long} == {("constant", 0.999, 5)}
    assert (better.train.steps, better.train.schedule, better.train.ema) == (24_000, "cosine", 0.999)
    assert surer == list(load("fu2024_fig3").GPU.recipes())[-1]  # one training, read by both
    assert headline.choice("standard, cosine", Site()) == (surer.train.lr, {})


def test_no_training_has_the_seed_of_the_test():
    assert len({PILOT_SEED, VALIDATION, TEST}) == 3 and min(PILOT_SEED, VALIDATION, TEST) > 10**5


@pytest.mark.parametrize(
    "task", [LinearRegression(d=3, n=4, dense=True), ChainOfThought(d=2, n=3, layers=2, dense=True)]
)
def test_the_zero_predictor_has_the_mean_squares_of_the_test_prompts(task):
    target = task.sample(50, seeded(torch.Generator(), TEST, "evaluation", 0)).target.numpy().astype(float)
    found = zeros(task, 50)
    assert np.allclose(found, (target**2).mean((0, 2)))
    states = getattr(task, "layers", 1)
    assert final(task, found) == pytest.approx((target[:, -states:] ** 2).mean())
    assert oracles(task, Site(), 50)[-1] < 1e-3 * found[-1] or states > 1
    again = protocol.tested(task.oracle, task, prompts=80)[-1]  # on the prompts of the models
    assert np.array_equal(oracles(task, Site(), 80), np.float32(again))


def test_errors_are_those_before_noise_on_the_prompts_of_the_test(tmp_path):
    task, site = LinearRegression(d=3, n=4, noise=2.0, dense=True), Site(answers=tmp_path)
    for prompts, seed in ((50, TEST), (50, VALIDATION), (20, TEST)):  # each kept at its own place
        sample = task.sample(prompts, seeded(torch.Generator(), seed, "evaluation", 0))
        clean = sample.truth.clean.numpy().astype(float)
        assert zeros(task, prompts, seed) == pytest.approx((clean**2).mean((0, 2)), rel=1e-5)
        wanted = ((task.oracle.predict(sample.prompt).numpy() - clean) ** 2).mean((0, 2))
        assert protocol.tested(task.oracle, task, prompts=prompts, seed=seed)[-1] == pytest.approx(wanted, rel=1e-4)
        assert oracles(task, site, prompts, seed) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    "name", ["algoformer2024_fig2a", "algoformer2024_fig2b", "algoformer2024_fig2c", "ours_headline"]
)
def test_the_errors_of_oracles_that_are_kept_are_those_of_the_code(name, monkeypatch):
    task, root = load(name).GPU.subject, Path(__file__).parents[1] / "results"
    fresh = oracles(task, Site(), protocol.WATCHED, VALIDATION)
    monkeypatch.setattr(protocol, "tested", lambda *_, **__: pytest.fail("they are not kept"))
    stored = oracles(task, Site(seed=3, answers=root / "answers"), protocol.WATCHED, VALIDATION)
    np.testing.assert_allclose(stored, fresh, rtol=1e-3, atol=1e-9)


def test_series_of_autoregression_stay_bounded():
    task = load("algoformer2024_fig2b").GPU.subject
    x = task.sample(2000, torch.Generator().manual_seed(0)).prompt.x
    assert float(x.abs().max()) < 20 and float((x.abs() > 10).float().mean()) < 1e-3


def test_the_work_of_a_step_is_half_of_its_operations():
    for name in ("algoformer2024_fig2a", "algoformer2024_fig2c"):
        for recipe in list(load(name).GPU.recipes())[-3:]:
            assert flops(recipe) == pytest.approx(2 * work(recipe), rel=0.2)
    defaults = list(load("ours_linear").GPU.recipes())[-3:]
    assert [seconds_a_step(r) for r in defaults] == pytest.approx([MEASURED[type(r.model)] for r in defaults])


# Measuring


def test_an_error_is_reached_at_the_first_look_that_has_it():
    curve = [10, 20, 30, 40], [0.5, 0.05, 0.06, 0.01]
    assert [reached(curve, e) for e in (0.6, 0.05, 0.02, 0.001)] == [10, 20, 40, None]


def tiny(**train) -> Recipe:
    model = LinearSelfAttentionConfig(features=2, layers=1, heads=1)
    how = {"steps": 6, "batch": 4, "warmup": 1, "ema": 0.5, "log_every": 2, "checkpoint_every": 2} | train
    return Recipe(model=model, task=LinearRegression(d=2, n=4), train=TrainConfig(**how))


def place(folder, seed=0) -> Site:
    parts = {part: folder / part for part in ("models", "answers")}
    ledger = Ledger(folder / "runs.jsonl", "a test", seed, "0", "smoke", "cpu")
    return Site(seed=seed, **parts, folder=folder / "unfinished", ledger=ledger)


def test_the_curve_ends_where_the_model_does_and_changes_nothing(tmp_path):
    recipe, site = tiny(), Site()
    model, plain = (model_of(recipe.model, torch.Generator().manual_seed(0)) for _ in range(2))
    train(model, recipe.task, recipe.train, tmp_path / "a", watch=watch(recipe.task, 6, site))
    train(plain, recipe.task, recipe.train, tmp_path / "b")
    assert all(torch.equal(v, plain.state_dict()[k]) for k, v in model.state_dict().items())
    rows = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    curve = [row for row in rows if row.get("event") == "error"]
    assert [row["step"] for row in curve] == [1, 2, 3, 4, 5, 6]
    assert [watch(recipe.task, steps, site).every for steps in (10_000, 24_000, 60_000)] == [1000, 1000, 2000]
    known = evaluate(model, recipe.task, prompts=640, seed=VALIDATION, clean=True).mean[-1]
    assert curve[-1]["last"] == pytest.approx(known[-1], rel=1e-6)


def test_what_keys_leave_out_is_as_it_was_when_models_were_kept():
    """A key holds what differs from the defaults: with another default it would name another model.

    A new field must by default make of every model what it was without the field; then it is added to the file.
    """
    known = json.loads(Path(__file__).with_name("defaults.json").read_text())
    rooms = algoformer.models, algoformer.tasks, algoformer.training
    assert {name: encode(getattr(room, name)()) for room in rooms for name in room.__all__ if name in known} == known


def test_a_measured_model_is_not_needed_again(tmp_path):
    site = place(tmp_path)
    first = measured(tiny(), site, fresh=True, prompts=16, loops=(0, 1))
    shutil.rmtree(site.models)
    again = measured(tiny(), site, fresh=False, prompts=16, loops=(0, 1))
    assert again == first and first.outcome == "finished" and np.shape(first.errors) == (2, 1)
    assert not any((tmp_path / "unfinished").iterdir())  # nothing of a finished training has to travel


def test_what_is_measured_otherwise_is_no_kept_measurement(tmp_path):
    site, usual = place(tmp_path), {"prompts": 16, "loops": (0, 1), "seed": TEST}
    first = measured(tiny(), site, fresh=True, **usual)
    model = trained(tiny(), site, fresh=False)
    for other in ({"prompts": 8}, {"loops": (1, 0)}, {"loops": (1, 1)}, {"loops": ()}, {"seed": VALIDATION}):
        how = usual | other
        found = measured(tiny(), site, fresh=False, **how)
        rows = [protocol.tested(model, tiny().task, **how | {"loops": (loop,)})[0] for loop in how["loops"] or (1,)]
        assert np.allclose(found.errors, rows) and found.loops == [*how["loops"]]
        assert found.errors != first.errors and found.last == first.last


def test_pilots_are_measured_and_not_kept(tmp_path):
    experiment, site = load("algoformer2024_fig2a"), place(tmp_path)
    result = experiment.run(experiment.SMOKE, site)
    assert len(list(site.models.iterdir())) == len(result.errors) == 3
    told = [e.purpose.partition(":")[0] for e in entries(tmp_path / "runs.jsonl")]
    assert told.count("pilot") == 6 and len(told) == 9 and all(len(tried) == 2 for tried in result.pilots.values())
    assert not any((tmp_path / "unfinished").iterdir())


def test_a_diverged_run_counts_as_the_zero_predictor_and_is_told(tmp_path):
    site, sick = place(tmp_path), tiny(lr=1e30, clip=None, warmup=0, steps=40)
    found = measured(sick, site, fresh=True, prompts=16)
    assert found.outcome == "diverged"
    assert found.errors == [pytest.approx(zeros(sick.task, 16))]
    shutil.rmtree(site.answers)
    again = measured(sick, site, fresh=False, prompts=16, loops=(0, 1))  # and is not tried again
    assert again.outcome == "diverged" and again.errors == found.errors * 2
    (told,) = entries(tmp_path / "runs.jsonl")
    assert told.outcome == "diverged" and told.steps < told.of == 40 and told.minutes >= 0


def test_the_rate_is_the_best_of_its_pilots(monkeypatch):
    settings = Softmax(**TINY | {"rates": (1e-4, 3e-4, 1e-3)})
    task = settings.task("linear")
    seen = []

    def measure(recipe, site, **how):
        seen.append((site.seed, how["seed"], recipe.train.steps))
        errors = {1e-4: 2.0, 3e-4: 1.0, 1e-3: math.nan}[recipe.train.lr]
        return dataclasses.make_dataclass("Found", ["errors"])([[errors] * 5])

    monkeypatch.setattr("algoformer.experiments.softmax.measured", measure)
    rate = settings.rate(settings.standard(task, 1), task, Site(seed=7))
    assert rate.lr == 3e-4 and list(rate.tried) == [1e-4, 3e-4, 1e-3]
    assert rate.tried[1e-4] == pytest.approx(2 * rate.tried[3e-4])
    assert set(seen) == {(PILOT_SEED, VALIDATION, settings.pilot)}
    assert dataclasses.replace(settings, rates=()).rate(None, task, Site()) == (settings.lr, {})


def test_a_part_takes_the_rate_of_the_model_it_is_a_part_of(monkeypatch):
    config = load("ours_parts").SMOKE
    monkeypatch.setattr(
        Softmax, "rate", lambda self, model, *_, **__: Rate(1e-3 if model.pre and model.post else 1e-5, {})
    )
    parts = [name for name, e in config.entrants.items() if e.like]
    assert len(parts) == 2 and all(config.chosen(name, Site()).train.lr == 1e-3 for name in parts)


def test_a_race_is_above_the_oracle_of_the_prompts_that_were_asked(monkeypatch):
    """Curves are of the prompts of validation, errors of those of the test; a chain asks several states a position."""
    config = load("algoformer2024_fig2c").SMOKE
    task = config.subject

    def of_oracle(prompts, seed):
        return evaluate(task.oracle, task, prompts=prompts, seed=seed, clean=True)

    def shares(values, seen, last):
        asked = slice(-task.layers, None) if last else slice(None)
        floor, zero = np.mean(seen.mean[-1][asked]), np.mean(seen.zeros[asked])
        return pytest.approx([(v - floor) / (zero - floor) for v in values], rel=1e-4)

    monkeypatch.setattr("algoformer.experiments.comparison.WATCHED", 64)
    validation, test = of_oracle(64, VALIDATION), of_oracle(config.prompts, TEST)
    asked = [0.1 + 0.01 * i for i in range(task.layers * (task.n + 1))]
    found = Measured(outcome="finished", loops=[], errors=[asked], steps=[1, 2], last=[0.5, 0.2], mean=[0.6, 0.3])
    monkeypatch.setattr("algoformer.experiments.comparison.measured", lambda *_, **__: found)
    monkeypatch.setattr(Softmax, "rate", lambda *_, **__: Rate(1e-3, {}))
    result = race(config, Site())
    for name, curve in result.curves.items():
        assert curve["last"] == shares([0.5, 0.2], validation, True)
        assert curve["mean"] == shares([0.6, 0.3], validation, False)
        assert [above(result, name)] == shares([np.mean(asked[-task.layers :])], test, True)
        assert [above(result, name, mean=True)] == shares([np.mean(asked)], test, False)


@pytest.mark.parametrize("name", KEPT)
def test_a_comparison_is_made_again_without_its_models(tmp_path, name):
    experiment, site = load(name), place(tmp_path)
    first = experiment.run(experiment.SMOKE, site)
    shutil.rmtree(site.models)
    assert experiment.run(stored(experiment.SMOKE), site) == first


def test_in_small_figure_5_asks_encoders_and_claims_nothing_of_the_papers():
    experiment = load("algoformer2024_fig5")
    small = experiment.CPU
    recipes = list(small.recipes())
    assert len(recipes) == len(small.noises) * len(small.pairs) == 6
    for recipe in recipes:
        assert not recipe.model.causal and recipe.model.positions == 0
        assert (recipe.task.dense, recipe.task.queries, recipe.task.n) == (False, 10, 10)
    assert [r.task.noise for r in recipes] == [0.0, 0.0, 0.1, 0.1, 1.0, 1.0]
    tiny = dataclasses.replace(experiment.SMOKE, queries=3, precisions=())
    sources = [{c.source for c in experiment.claims(experiment.run(c, Site()))} for c in (tiny, experiment.SMOKE)]
    assert sources == [{"ours"}, {"ours", experiment.SOURCE}]


def test_the_headline_is_matched_within_a_fifth():
    experiment = load("ours_headline")
    race = experiment.run(experiment.SMOKE, Site())

    def with_error(value):
        errors = {name: [[1.0] * 4 + [value]] for name in race.errors}
        return dataclasses.replace(race, errors=errors, oracle=[[0.0] * 5], zero=[[1.0] * 5])

    assert above(with_error(5.7e-4), "standard") == pytest.approx(5.7e-4)
    for value, there in ((5.7e-4, True), (5.8e-4, False)):
        claims = [c for c in experiment.claims(with_error(value)) if "of the standard transformer" in c.text]
        assert [c.holds for c in claims] == [there, there]  # with and without a cosine


def test_a_model_without_injection_is_trained_through_every_loop():
    config = load("ours_stuck").GPU
    with_, without = (r.train.gradient_loops for r in list(config.recipes())[7:9])
    assert with_ is None and without == config.loops


def test_a_look_sees_the_averaged_weights_and_gives_the_others_back(tmp_path):
    recipe, seen = tiny(ema=0.9), []
    model = model_of(recipe.model, torch.Generator().manual_seed(0))

    def look(shown):
        seen.append([v.detach().clone() for v in shown.parameters()])
        return {"last": 0.0, "mean": 0.0}

    train(model, recipe.task, recipe.train, tmp_path, watch=Watch(6, look))
    assert len(seen) == 1 and all(torch.equal(a, b) for a, b in zip(seen[0], model.parameters(), strict=True))


def test_the_second_representation_is_another():
    first, second = (Representation(d=4, n=2, seed=seed) for seed in (0, load("ours_second_phi").GPU.phi))
    x = torch.ones(1, 1, 4)
    assert not torch.allclose(first.phi(x), second.phi(x))


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        # by place among the models: the rate that training tells on one H200 over 300 steps; linear attention by bench
        ("algoformer2024_fig2b", {0: 3.06, 1: 2.10, 2: 1.95}),
        ("algoformer2024_fig2c", {0: 8.07, 1: 4.92, 2: 3.80}),
        ("giannou2024_fig7", {2: 1.78, 4: 5.92}),
        ("giannou2024_fig2", {4: 3.77}),
        ("fu2024_fig6", {0: 1.61, 3: 1.47}),
    ],
)
def test_the_estimate_of_a_step_is_within_a_third_of_what_was_measured(name, milliseconds):
    recipes = {r.model: r for r in load(name).GPU.recipes()}.values()
    found = [1000 * seconds_a_step(r) for r in recipes]
    assert [found[i] for i in milliseconds] == pytest.approx(list(milliseconds.values()), rel=0.34)


def test_every_training_on_a_gpu_is_one_that_train_takes():
    trainings = {}
    for config in (load(name).GPU for name in EXPERIMENTS):
        for r in config.recipes() if hasattr(config, "recipes") else ():
            trainings[type(r.model), repr(r.task), r.train.window, r.train.ahead] = r  # rates and widths are no reason
    assert len(trainings) > 30
    for r in trainings.values():
        hold(model_of(r.model), r.task, r.train)


def test_a_step_in_tf32_is_estimated_to_take_longer():
    exact, quick = (Softmax().recipe(Softmax().standard(Softmax().task("linear"), 12), Softmax().task("linear"),
                                     precision=p) for p in ("tf32", "auto"))  # fmt: skip
    assert seconds_a_step(exact) == pytest.approx(7.57 / 3.92 * seconds_a_step(quick))


def test_a_run_that_diverged_at_once_has_a_curve_that_ends_at_the_zero_predictor(tmp_path):
    task = LinearRegression(d=2, n=4, dense=True)
    model = LinearSelfAttentionConfig(features=2, layers=2, heads=1, init=5.0)
    recipe = Recipe(model=model, task=task, train=TrainConfig(steps=40, batch=4, lr=50.0, warmup=0, log_every=5))
    found = measured(recipe, Site(folder=tmp_path), fresh=True, prompts=8)
    nothing = zeros(task, protocol.WATCHED, VALIDATION)
    assert found.outcome == "diverged" and found.steps[-1] == 40
    assert found.last[-1] == pytest.approx(nothing[-1]) and found.mean[-1] == pytest.approx(np.mean(nothing))


def test_the_last_position_alone_has_the_error_that_it_has_among_all():
    task = LinearRegression(d=2, n=5, noise=0.5, dense=True)
    solver = task.oracle
    all_of_them, one = (protocol.tested(solver, task, prompts=30, last=last) for last in (False, True))
    assert one[-1] == pytest.approx([all_of_them[-1][-1]])
