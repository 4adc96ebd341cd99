"""Experiments: claims and verdicts, results on disk, runs that are resumed, killed and retried, and every smoke run."""

import dataclasses
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import algoformer.experiments
import experiment_run
from algoformer.algorithm import Algorithm
from algoformer.experiments import EXPERIMENTS, Claim, Knob, Missing, Site, Store, Verdict, judge, load, reproduce
from algoformer.experiments.experiment import ABLE, PRESETS, excess, preset, scale, settings, title
from algoformer.experiments.fingerprints import fingerprint, moved, recorded
from algoformer.experiments.layers import read_layers
from algoformer.experiments.ledger import Ledger, entries
from algoformer.experiments.linear import Looped
from algoformer.experiments.protocol import TEST
from algoformer.experiments.registry import ALSO
from algoformer.experiments.store import address
from algoformer.experiments.trained import kept, key, made, placed, trained
from algoformer.models import LinearSelfAttentionConfig, Transformer, TransformerConfig
from algoformer.prompt import Dense, Series
from algoformer.task import Sample, Task, Truth
from algoformer.tasks import Autoregression, LinearRegression
from algoformer.theory import looped_optimum
from algoformer.training import Recipe, TrainConfig, evaluate, train
from algoformer.training.codec import model_of
from algoformer.training.data import seeded

QUICK = "fu2024_rates"


def claim(measured=0.0, sense="<", bound=1.0, **more):
    return Claim(text="a claim", source="a figure", measured=measured, sense=sense, bound=bound, **more)


@given(st.floats(allow_nan=True), st.floats(allow_nan=False, allow_infinity=False))
def test_a_claim_holds_where_its_inequality_does(measured, bound):
    assert claim(measured, "<", bound).holds == (measured < bound)
    assert claim(measured, ">", bound).holds == (measured > bound)


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ([claim(0.5)] * 3, Verdict.HOLDS),
        ([claim(0.5), claim(0.5), claim(1.5)], Verdict.FAILS),
        ([claim(math.nan)] * 3, Verdict.FAILS),
        ([claim(0.5)] * 2, Verdict.ONE),
        ([claim(0.5, exact=True)], Verdict.HOLDS),
        ([claim(1.5, exact=True)], Verdict.FAILS),
        ([claim(0.5, errors=(0.1, 0.5))] * 3, Verdict.UNTESTED),
        ([claim(0.5, errors=(0.1, 0.49))] * 3, Verdict.HOLDS),
        ([claim(0.5, errors=(0.1,)), claim(0.5, errors=(math.nan,)), claim(0.5)], Verdict.UNTESTED),
        ([claim(0.5, errors=(0.7,))], Verdict.UNTESTED),
    ],
)
def test_verdicts_need_able_models_and_three_runs(claims, verdict):
    (found,) = judge([[c] for c in claims])
    assert found.verdict == verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Half(Algorithm):
    """Half of another algorithm's answer."""

    other: Algorithm
    kinds: ClassVar[tuple[type, ...]] = (Series,)
    steps: ClassVar[int] = 0
    limit: ClassVar[int] = 0

    def init(self, p):
        return self.other.predict(p) / 2

    def step(self, p, s, t):
        raise AssertionError("a closed form has no step")

    def read(self, p, s):
        return s


def test_half_of_the_bayes_answer_is_a_quarter_of_the_way_to_zero_whatever_the_noise():
    """E|c - o|^2 = E|c|^2 - E|o|^2 for the mean o of the posterior of c, so E|c - o/2|^2 = E|c|^2 - 3/4 E|o|^2."""
    task = Autoregression(d=20, n=30, every=True)
    measured = partial(evaluate, task=task, prompts=640, clean=True)
    half, oracle = measured(Half(other=task.oracle)), measured(task.oracle)
    found = excess(half.mean[-1][-1], oracle.mean[-1][-1], half.zeros[-1])
    assert found == pytest.approx(0.25, abs=0.03)
    noisy = evaluate(task.oracle, task, prompts=640)
    assert noisy.last > ABLE  # the oracle itself is not below half of the zero predictor's error
    floor = noisy.mean[-1][-1] - oracle.mean[-1][-1]
    assert floor == pytest.approx(task.noise**2, abs=0.03)


def test_a_chain_of_thought_has_one_curve_for_each_of_its_positions():
    experiment = load("algoformer2024_fig2c")
    result = experiment.run(experiment.SMOKE, Site())
    task = experiment.SMOKE.subject
    sample = task.sample(8, seeded(torch.Generator(), TEST, "evaluation", 0))
    states = sample.prompt.chains.numpy().astype(float)  # [b n l d], from the given state on
    assert np.allclose(result.zero, (states[:, :, 1:] ** 2).mean((0, 3)).T, rtol=1e-6)
    for curves in (*result.errors.values(), result.oracle):
        assert np.shape(curves) == (task.layers, task.n + 1)


def test_a_smoke_run_tests_no_claim_unless_it_is_exact():
    assert judge([[claim(0.5)]] * 3, smoke=True)[0].verdict == Verdict.UNTESTED
    assert judge([[claim(0.5, exact=True)]], smoke=True)[0].verdict == Verdict.HOLDS


def test_one_run_each_still_says_whether_it_held():
    assert judge([[claim(0.5)]])[0].label == "one run each: held"
    assert judge([[claim(0.5)], [claim(2.0)]])[0].label == "one run each: did not hold"


def test_the_margin_of_several_runs_is_the_least():
    (found,) = judge([[claim(m)] for m in (0.2, 0.9, 0.5)])
    assert found.margin == pytest.approx(0.1)
    assert found.measured == (0.2, 0.9, 0.5)
    for values in itertools.permutations((0.2, math.nan, 0.5)):
        (found,) = judge([[claim(m)] for m in values])
        assert math.isnan(found.margin) and found.verdict == Verdict.FAILS


def test_runs_that_make_other_claims_are_not_judged_together():
    with pytest.raises(ValueError, match="same claims"):
        judge([[claim()], [claim(), claim()]])


def test_a_knob_holds_one_row_for_each_place_of_the_slider():
    with pytest.raises(ValueError, match="2 rows of 3"):
        Knob(label="t", values=[1, 2], x=[0, 1, 2], lines={"a": [[1, 2, 3]]}, xlabel="x", ylabel="y")


def test_the_list_of_experiments_is_the_files():
    folder = Path(algoformer.experiments.__file__).parent
    files = {p.stem for p in folder.glob("*_*.py") if not p.stem.startswith("__")}
    assert files == set(EXPERIMENTS)
    assert len(set(EXPERIMENTS)) == len(EXPERIMENTS)


def test_an_unknown_experiment_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean gatmiry2024_fig"):
        load("gatmiry_fig3")
    with pytest.raises(ValueError, match="there are ahn2023"):
        load("xyz")


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(ValueError, match="'smoke', 'cpu', 'gpu', 'paper'"):
        reproduce([QUICK], preset="huge")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_setting_says_where_it_comes_from(name):
    experiment = load(name)
    assert preset(experiment, "paper") == experiment.Config()
    for _, _, source in settings(experiment.PAPER):
        assert source in ("stated", "authors' code", "assumed")
    for size in PRESETS:
        assert dataclasses.is_dataclass(preset(experiment, size))
    assert scale(experiment, experiment.SMOKE) == "smoke"
    paper, figure, what = title(experiment)
    assert paper and figure and what


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_smoke_run_makes_numbers_claims_and_a_picture(name):
    experiment = load(name)
    result = experiment.run(experiment.SMOKE, Site())
    plain = dataclasses.asdict(result)
    assert experiment.Result(**json.loads(json.dumps(plain))) == result or "NaN" in json.dumps(plain)
    claims = experiment.claims(result)
    assert claims and len({c.text for c in claims}) == len(claims)
    drawn = experiment.plot(result)
    assert isinstance(drawn, Figure)
    keys = [key for ax in drawn.axes if (key := ax.get_legend()) is not None]
    assert not any(key.get_frame_on() for key in keys)  # a white frame in a dark page hides what it holds
    if hasattr(experiment, "knob"):
        assert isinstance(experiment.knob(result), Knob)
    assert dataclasses.asdict(result) == plain or "NaN" in json.dumps(plain)  # claims and plot change nothing
    known = recorded().get(name)
    again = f"record it: python -m algoformer.experiments {name}"
    assert known is not None, f"{name} has no fingerprint; {again}"
    fields = moved(known["numbers"], fingerprint(result))
    if known["revision"] == experiment.REVISION:
        assert not fields, f"the numbers of {fields} moved and REVISION did not: raise it and {again}"
    else:
        pytest.fail(f"REVISION is not that of the fingerprint; {again}")


def test_a_moved_number_is_noticed():
    @dataclasses.dataclass
    class Result:
        curve: list[float]
        other: float

    before = fingerprint(Result([1.0, 2.0, 3.0], 5.0))
    assert moved(before, fingerprint(Result([1.0, 2.0, 3.0 + 1e-9], 5.0))) == []
    assert moved(before, fingerprint(Result([1.0, 2.0, 3.1], 5.0))) == ["curve"]
    assert moved(before, fingerprint(Result([1.0, 2.0, 3.0, 0.0], 5.0))) == ["curve"]
    assert moved(before, fingerprint(Result([-1.0, 4.0, 3.0], 5.0))) == ["curve"]  # the same mean
    assert moved(fingerprint(Result([0.0], 3e-16)), fingerprint(Result([0.0], 2e-16))) == []  # rounding errors
    assert moved(fingerprint(Result([0.0], 3e-9)), fingerprint(Result([0.0], 2e-9))) == ["other"]


def run_quickly(out: Path, seeds=1, **more):
    return reproduce([QUICK], preset="smoke", seeds=seeds, out=out, **more)


def test_finished_work_is_not_repeated(tmp_path, monkeypatch):
    assert [o.status for o in run_quickly(tmp_path).outcomes] == ["made"]
    monkeypatch.setattr(load(QUICK), "run", lambda config, site: pytest.fail("it ran again"))
    assert [o.status for o in run_quickly(tmp_path).outcomes] == ["kept"]


def test_a_stored_result_is_the_result_with_its_origin(tmp_path):
    run_quickly(tmp_path)
    (record,), broken = Store(tmp_path).records()
    experiment = load(QUICK)
    assert not broken and record.current
    assert record.config == experiment.SMOKE
    assert record.result == experiment.run(experiment.SMOKE, Site())
    assert {"commit", "versions", "device", "seconds"} <= record.provenance.keys()


def test_an_address_is_a_function_of_what_is_asked_alone():
    config = load(QUICK).SMOKE
    first = address(QUICK, 1, config, 0)
    assert first == address(QUICK, 1, dataclasses.replace(config), 0)
    others = [
        address("ahn2023_fig1", 1, config, 0),
        address(QUICK, 2, config, 0),
        address(QUICK, 1, dataclasses.replace(config, d=5), 0),
        address(QUICK, 1, config, 1),
    ]
    assert len({first, *others}) == 5


def test_results_of_another_revision_are_kept_marked_and_not_mixed(tmp_path, monkeypatch):
    run_quickly(tmp_path)
    monkeypatch.setattr(load(QUICK), "REVISION", load(QUICK).REVISION + 1)
    assert [o.status for o in run_quickly(tmp_path).outcomes] == ["made"]
    for back in (0, 1):  # to the code of before, for which the later result is the other one
        now = load(QUICK).REVISION - back
        monkeypatch.setattr(load(QUICK), "REVISION", now)
        records, broken = Store(tmp_path).records()
        assert len(records) == 2 and [r.revision for r in records if r.current] == [now]
        assert not broken


@pytest.mark.parametrize("text", ["", "{", "[]", '{"experiment": "fu2024_rates"}'])
def test_a_broken_result_is_named_and_does_not_count(tmp_path, text):
    run_quickly(tmp_path)
    (file,) = tmp_path.glob("*/*.json")
    file.write_text(text)
    records, broken = Store(tmp_path).records()
    assert records == [] and list(broken) == [file]
    assert [o.status for o in run_quickly(tmp_path).outcomes] == ["made"]  # and is made again


def test_a_result_whose_numbers_make_no_claim_is_broken(tmp_path):
    run_quickly(tmp_path)
    (file,) = tmp_path.glob("*/*.json")
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"result": dict.fromkeys(document["result"], "text")}))
    records, broken = Store(tmp_path).records()
    assert records == [] and "its numbers must make claims" in broken[file]
    assert [o.status for o in run_quickly(tmp_path).outcomes] == ["made"]  # and is made again


def test_results_come_in_the_order_of_the_experiments_and_of_the_seeds(tmp_path):
    wanted = [
        ("ahn2023_fig3", 0),
        ("ahn2023_fig3", 1),
        ("ahn2023_fig3", 2),
        ("fu2024_fig2", 1),
        ("algoformer2024_fig3", 0),
    ]
    for name, seed in reversed(wanted):
        about = {"experiment": name, "revision": 0, "config": {}, "seed": seed, "result": {}, "provenance": {}}
        file = tmp_path / name / f"{address(name, 0, {}, seed)}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(about))
    names = [file.stem for file in sorted(tmp_path.glob("ahn2023_fig3/*"))]
    assert names != [address("ahn2023_fig3", 0, {}, seed) for seed in range(3)]  # which are in no order of their own
    assert [(r.experiment, r.seed) for r in Store(tmp_path).records()[0]] == wanted


def test_a_result_or_config_of_other_fields_is_broken(tmp_path):
    run_quickly(tmp_path)
    (file,) = tmp_path.glob("*/*.json")
    document = json.loads(file.read_text())
    (one, *rest), settings = document["result"].items(), document["config"]
    config = settings | {"more": 1}
    for changed in (
        {"result": document["result"] | {"more": 1}},
        {"result": dict(rest)},
        {"result": dict(rest) | {"more": one[1]}},
        {"result": []},
        {"config": config},
    ):
        place = file.with_name(f"{address(QUICK, document['revision'], changed.get('config', settings), 0)}.json")
        place.write_text(json.dumps(document | changed))
        assert "it must have the fields" in Store(tmp_path).records()[1][place]


def test_results_go_into_a_folder_and_runs_to_a_device_that_is_here(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="out must be a folder"):
        run_quickly(tmp_path / "file")
    with pytest.raises(ValueError, match="device must be one that is here; got 'abacus'"):
        run_quickly(tmp_path, device="abacus")


def test_a_result_at_another_address_is_broken(tmp_path):
    run_quickly(tmp_path)
    (file,) = tmp_path.glob("*/*.json")
    stray = file.with_name("0123456789abcdef.json")
    elsewhere = tmp_path / "ahn2023_fig1" / file.name
    elsewhere.parent.mkdir()
    for place in (stray, elsewhere):
        place.write_text(file.read_text())
    found = run_quickly(tmp_path)
    assert set(found.broken) == {stray, elsewhere}
    assert not found.ok


def test_a_failing_run_is_reported_and_the_rest_go_on(tmp_path, monkeypatch):
    experiment = load(QUICK)
    real = experiment.run

    def run(config, site):
        if site.seed == 0:
            raise ArithmeticError("no luck")
        return real(config, site)

    monkeypatch.setattr(experiment, "run", run)
    found = run_quickly(tmp_path, seeds=2)
    assert [o.status for o in found.outcomes] == ["failed", "made"]
    assert "no luck" in found.outcomes[0].message
    assert not found.ok


def test_what_cannot_be_tested_at_a_scale_is_no_failure_and_no_result(tmp_path, monkeypatch):
    def run(config, site):
        raise Missing("a model that is not there")

    monkeypatch.setattr(load(QUICK), "run", run)
    found = run_quickly(tmp_path)
    assert [o.status for o in found.outcomes] == ["untested"]
    assert found.ok and Store(tmp_path).records()[0] == []


def test_an_experiment_killed_while_it_trains_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    script = [sys.executable, str(Path(experiment_run.__file__)), str(tmp_path / "killed")]
    process = subprocess.Popen(script, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while not (saved := list(checkpoints(tmp_path))) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL and saved
    reached = max(checkpoints(tmp_path))

    monkeypatch.setattr(load(experiment_run.NAME), "SMOKE", experiment_run.CONFIG)
    monkeypatch.setattr("algoformer.experiments.softmax.TrainConfig", experiment_run.TRAIN)
    steps: dict[str, list[int]] = {}
    for part in ("killed", "whole"):
        seen = steps[part] = []

        def note(*args, progress, seen=seen, **more):
            return train(*args, progress=lambda now: (seen.append(now.step), progress(now)), **more)

        monkeypatch.setattr("algoformer.experiments.trained.train", note)
        assert reproduce([experiment_run.NAME], preset="smoke", seeds=1, out=tmp_path / part).ok
    assert steps["whole"][0] <= reached < steps["killed"][0]  # the steps of the log that were made
    assert steps["whole"][-len(steps["killed"]) :] == steps["killed"]
    (killed,), (whole,) = (Store(tmp_path / part).records()[0] for part in ("killed", "whole"))
    assert killed.result == whole.result
    assert not (tmp_path / "killed" / "unfinished").exists()
    one, other = (sorted((tmp_path / part / "models").glob("*/checkpoints/*/*")) for part in ("killed", "whole"))
    assert one and [file.read_bytes() for file in one] == [file.read_bytes() for file in other]


def checkpoints(folder: Path):
    return (int(p.name.split("-")[1]) for p in folder.glob("killed/unfinished/*/*/checkpoints/step-*"))


def killing(seed: int, times: int, stop: threading.Event) -> list[int]:
    """Kill the process of one seed as often as asked."""
    killed: list[int] = []
    while not stop.is_set() and len(killed) < times:
        for child in multiprocessing.active_children():
            if child.name == f"{QUICK}-{seed}" and child.pid not in killed and child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                killed.append(child.pid)
        time.sleep(0.02)
    return killed


def with_kills(out: Path, times: int):
    stop = threading.Event()
    killer = threading.Thread(target=killing, args=(0, times, stop))
    killer.start()
    try:
        return run_quickly(out, seeds=2, jobs=2)
    finally:
        stop.set()
        killer.join()


def test_a_killed_run_is_tried_again_and_gives_the_same_numbers(tmp_path):
    found = with_kills(tmp_path / "two", times=1)
    assert [o.status for o in found.outcomes] == ["made", "made"]
    run_quickly(tmp_path / "one", seeds=2)
    first, second = (Store(tmp_path / part).records()[0] for part in ("one", "two"))
    assert [(r.seed, r.result) for r in first] == [(r.seed, r.result) for r in second]


@pytest.mark.slow
def test_a_run_that_dies_three_times_is_reported_and_the_rest_go_on(tmp_path):
    found = with_kills(tmp_path, times=3)
    assert [o.status for o in found.outcomes] == ["failed", "made"]
    assert "exit code -9 (3 tries)" in found.outcomes[0].message


def test_progress_counts_the_runs_that_are_not_kept(tmp_path):
    seen = []
    run_quickly(tmp_path)
    run_quickly(tmp_path, seeds=2, progress=lambda *now: seen.append(now))
    assert seen[0][:2] == (0, 1) and seen[-1][:2] == (1, 1)


def test_seeds_and_streams_draw_apart():
    drawn = {Site(seed=seed).generator(stream).initial_seed() % 2**32 for seed in range(4) for stream in ("", "a", "b")}
    assert len(drawn) == 12


def small_recipe() -> Recipe:
    model = LinearSelfAttentionConfig(features=2, layers=1, heads=1)
    return Recipe(model=model, task=LinearRegression(d=2, n=4), train=TrainConfig(steps=3, batch=4, warmup=1))


def test_a_model_is_trained_once_and_loaded_from_then_on(tmp_path, monkeypatch):
    site = Site(models=tmp_path / "models", folder=tmp_path / "unfinished")
    first = trained(small_recipe(), site)
    monkeypatch.setattr("algoformer.experiments.trained.train", lambda *_: pytest.fail("it was trained again"))
    second = trained(small_recipe(), site, fresh=False)
    prompt = small_recipe().task.sample(3, torch.Generator().manual_seed(0)).prompt
    assert torch.equal(first.predict(prompt), second.predict(prompt))
    assert (next((tmp_path / "models").iterdir()) / "config.json").exists()


def test_seeds_train_models_of_their_own(tmp_path):
    models = [trained(small_recipe(), Site(seed=seed, models=tmp_path)) for seed in (0, 1)]
    assert len(list(tmp_path.iterdir())) == 2
    assert not torch.equal(next(models[0].parameters()), next(models[1].parameters()))


def test_every_seed_has_first_weights_of_its_own(monkeypatch):
    def begun(model, task, config, *_, **__):
        raise Missing({name: v.clone() for name, v in model.state_dict().items()}, config.seed)

    monkeypatch.setattr("algoformer.experiments.trained.train", begun)
    for seed in (0, 1):
        with pytest.raises(Missing) as stop:
            trained(small_recipe(), Site(seed=seed))
        first, told = stop.value.args
        wanted = model_of(small_recipe().model, torch.Generator().manual_seed(seed)).state_dict()
        assert told == seed and all(torch.equal(v, wanted[name]) for name, v in first.items())


def test_the_models_of_a_seed_are_those_that_are_kept_whole(tmp_path):
    for seed in (0, 1):
        trained(small_recipe(), Site(seed=seed, models=tmp_path))
    homes = {seed: tmp_path / key(placed(small_recipe(), Site(seed=seed))) for seed in (0, 1)}
    shutil.copytree(homes[1], tmp_path / f"{homes[1].name}.123.tmp")  # a draft that was not finished
    assert {seed: kept(tmp_path, seed) for seed in (0, 1, 2)} == {0: [homes[0]], 1: [homes[1]], 2: []}


def test_the_key_of_a_model_is_the_hash_of_what_was_chosen_of_model_task_and_training():
    """Models of earlier versions lie at their keys."""
    told = [
        {"class": "LinearSelfAttentionConfig", "features": 2, "layers": 1, "heads": 1},
        {"class": "LinearRegression", "d": 2, "n": 4},
        {"class": "TrainConfig", "steps": 3, "batch": 4, "seed": 5, "warmup": 1},
    ]
    wanted = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    assert key(placed(small_recipe(), Site(seed=5))) == wanted


def test_a_training_that_stuck_is_told_so_in_the_ledger_and_of_its_model(tmp_path, monkeypatch):
    def stuck(model, task, config, folder, **_):
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_text('{"step": 2, "event": "stuck"}\n')
        return SimpleNamespace(step=3, stuck=True)

    monkeypatch.setattr("algoformer.experiments.trained.train", stuck)
    book = Ledger(tmp_path / "runs.jsonl", "a", 9, "c", "smoke", "cpu")
    site = Site(seed=4, folder=tmp_path / "unfinished", models=tmp_path / "models", ledger=book)
    assert [made(small_recipe(), site).outcome for _ in range(2)] == ["stuck"] * 2  # when it is loaded too
    (told,) = entries(book.file)
    assert (told.outcome, told.steps, told.of, told.seed) == ("stuck", 3, 3, 4)
    assert told.key == key(placed(small_recipe(), site))


def test_a_model_for_which_there_is_no_folder_of_models_stays_where_it_was_trained(tmp_path):
    place = tmp_path / key(placed(small_recipe(), Site()))
    for keep, stays in ((True, True), (False, False)):
        model = made(small_recipe(), Site(folder=tmp_path), keep=keep).model
        assert model is not None and place.exists() == stays


def test_a_model_that_must_be_there_and_is_not_is_missing(tmp_path):
    with pytest.raises(Missing, match="--preset gpu"):
        trained(small_recipe(), Site(models=tmp_path), fresh=False)


@pytest.mark.parametrize("name", ["algoformer2024_fig2a", "fu2024_fig9", "fu2024_fig20", "giannou2024_fig7"])
def test_a_cpu_preset_trains_no_softmax_model(tmp_path, name):
    found = reproduce([name], preset="cpu", seeds=1, out=tmp_path)
    assert [o.status for o in found.outcomes] == ["untested"]
    assert "run with --preset gpu" in found.outcomes[0].message


def test_a_looped_model_learns_the_exact_optimum(generator):
    made = Looped(d=3, n=10, loops=2, steps=400, batch=200, lr=0.02).train(generator)
    best = looped_optimum(3, 10, 2)
    assert float((made.A[0] - float(best.a) * torch.eye(3)).abs().max()) < 0.03
    assert made.losses[-1] == pytest.approx(float(best.loss), rel=0.2)


class Sums(Task):
    """y = sum of x, in every prompt: a linear read-out of the tokens of x knows it."""

    def sample(self, batch, generator, dtype=torch.float32):
        x = torch.randn(batch, 5, 2, generator=generator, dtype=dtype)
        y = x.sum(-1, keepdim=True)
        return Sample(Dense(x, y), y, Truth(y, None))


def test_what_a_stream_holds_linearly_is_read_out_of_it(generator):
    model = Transformer(TransformerConfig(features=2, width=8, heads=2, layers=2), generator)
    known, unknown = (read_layers(model, t, 200, Site()) for t in (Sums(), LinearRegression(d=2, n=4, dense=True)))
    assert known.answers.shape == (3, 200, 5, 1)
    assert float(known.errors[:-1].max()) < 1e-3  # the last is seen behind the norm
    assert float(unknown.errors.min()) > 0.5  # the weights differ from prompt to prompt, and nothing is trained
    answers, target = known.answers.numpy()[:, :, -1], known.prompt.y.numpy()[:, -1]
    assert np.allclose(known.errors.numpy(), ((answers - target) ** 2).mean((1, 2)) / (target**2).mean())


def test_the_maps_of_known_algorithms_are_the_reference():
    """Matches of Newton steps 0 to 5 with gradient steps, and similarities of step 3, seed 0 of the recipe."""
    experiment = load("fu2024_fig26")
    config = dataclasses.replace(experiment.PAPER, newton=5, descent=16, prompts=160, draws=20)
    result = experiment.run(config, Site())
    assert result.best == [1, 1, 2, 3, 4, 6]
    row = dict(zip(result.descent, result.similarity[3], strict=True))
    for step, value in {1: 0.9624, 2: 0.9838, 4: 0.9787, 8: 0.9346, 16: 0.8624}.items():
        assert row[step] == pytest.approx(value, abs=0.006)


def test_a_paper_of_two_years_has_one_name_for_its_results(tmp_path):
    both = ["algoformer2025_table1", "algoformer2024_table1"]
    (outcome,) = reproduce(both, preset="smoke", seeds=1, out=tmp_path).outcomes
    assert (outcome.experiment, outcome.status) == ("algoformer2024_table1", "made")
    assert set(ALSO.values()) <= set(EXPERIMENTS) and not set(ALSO) & set(EXPERIMENTS)
