"""Runs that stop themselves in time and go on elsewhere, the ledger of all runs, the plan, and the page of results."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import experiment_run
from algoformer.cli import app
from algoformer.experiments import Missing, Site, Store, load, reproduce
from algoformer.experiments import luggage as luggage_
from algoformer.experiments.answers import kept
from algoformer.experiments.clock import RESERVE, TRAVELS, Clock
from algoformer.experiments.estimate import MEASURED, START, parameters, seconds
from algoformer.experiments.experiment import preset
from algoformer.experiments.headless import main as headless
from algoformer.experiments.ledger import Ledger, append, entries
from algoformer.experiments.luggage import Packing, pack, unpack
from algoformer.experiments.processes import Processes, _child
from algoformer.experiments.tiers import MINUTES, ROWS, plan
from algoformer.experiments.trained import EARLY, _Limit, made
from algoformer.models import LinearSelfAttentionConfig, TransformerConfig
from algoformer.report import build, markdown, write
from algoformer.report.docs import ledger as ledger_page
from algoformer.tasks import LinearRegression
from algoformer.training import Interrupted, OutOfTime, Progress, Recipe, TrainConfig, checkpoint, train
from algoformer.training.codec import model_of
from algoformer.training.curriculum import Curriculum
from algoformer.training.data import Size

QUICK = "fu2024_rates"


def recipe(**train) -> Recipe:
    model = LinearSelfAttentionConfig(features=2, layers=1, heads=1)
    how = {"steps": 400, "batch": 4, "warmup": 1, "log_every": 10, "checkpoint_every": 100} | train
    return Recipe(model=model, task=LinearRegression(d=2, n=4), train=TrainConfig(**how))


def ledger(folder: Path, **about) -> Ledger:
    return Ledger(**{"file": folder / "runs.jsonl", "experiment": "a", "seed": 0, "config": "c", "preset": "smoke",
                     "device": "cpu"} | about)  # fmt: skip


# In time


def test_a_run_stops_at_its_deadline_and_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("algoformer.training.loop.time", experiment_run.by_looks())
    r = recipe()
    whole, parts = (model_of(r.model, torch.Generator().manual_seed(0)) for _ in range(2))
    train(whole, r.task, r.train, tmp_path / "whole")
    for deadline in (150, 300):  # one look at the clock a step, and 400 steps
        with pytest.raises(OutOfTime, match="run again to go on"):
            train(parts, r.task, r.train, tmp_path / "parts", deadline=deadline)
        assert len(list((tmp_path / "parts" / "checkpoints").iterdir())) == 1  # no other has to travel
        parts = model_of(r.model, torch.Generator().manual_seed(1))
    train(parts, r.task, r.train, tmp_path / "parts")
    assert all(torch.equal(v, parts.state_dict()[k]) for k, v in whole.state_dict().items())
    one, other = ((tmp_path / name / "log.jsonl").read_text() for name in ("whole", "parts"))
    assert one == other


def test_a_command_that_stops_in_time_goes_on_on_other_machines_to_the_same_result(tmp_path, monkeypatch):
    """Real processes; between them all that is new travels in parts, and the folder they worked in is gone."""
    script = [sys.executable, str(Path(experiment_run.__file__))]
    calls, home = 0, tmp_path / "home"
    while calls < 5:
        there = tmp_path / f"machine{calls}"
        if home.exists():
            shutil.copytree(home, there)
        begin = time.time()
        done = subprocess.run([*script, str(there), "2"], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        calls += 1
        assert done.returncode in (0, 3)
        made = pack(there, tmp_path / f"parts{calls}", since=begin)
        assert not made.left
        unpack(tmp_path / f"parts{calls}", home)
        shutil.rmtree(there)
        if done.returncode == 0:
            break
    assert calls == 3  # 300 steps, about 100 a call
    monkeypatch.setattr(load(experiment_run.NAME), "SMOKE", experiment_run.CONFIG)
    monkeypatch.setattr("algoformer.experiments.softmax.TrainConfig", experiment_run.TRAIN)
    assert reproduce([experiment_run.NAME], preset="smoke", seeds=1, out=tmp_path / "whole").ok
    (mine,), (wanted,) = (Store(out).records()[0] for out in (home, tmp_path / "whole"))
    assert mine.result == wanted.result
    assert not list((home / "unfinished").glob("*"))
    told = entries(home / "runs.jsonl")
    assert [e.outcome for e in told if not e.key] == ["stopped"] * (calls - 1) + ["finished"]
    trainings = [e for e in told if e.key]
    assert trainings[0].begun == 0 and trainings[-1].steps == trainings[-1].of == 300
    assert [e.begun for e in trainings[1:]] == [e.steps for e in trainings[:-1]]


def test_what_there_is_no_time_for_waits_and_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("algoformer.experiments.clock.Clock.over", property(lambda clock: clock.deadline is not None))
    found = reproduce([QUICK], preset="smoke", seeds=2, out=tmp_path, minutes=1)
    assert [o.status for o in found.unfinished] == ["waiting", "waiting"] and found.ok
    line = ["reproduce", QUICK, "--preset", "smoke", "--seeds", "1", "--out", str(tmp_path)]
    stopped = CliRunner().invoke(app, [*line, "--minutes", "1"])
    assert stopped.exit_code == 3 and "the same command goes on" in stopped.stderr
    assert CliRunner().invoke(app, line).exit_code == 0
    with pytest.raises(ValueError, match="minutes must be"):
        reproduce([QUICK], preset="smoke", out=tmp_path, minutes=-1)
    with pytest.raises(ValueError, match="minutes must be left out"):
        reproduce([QUICK], preset="smoke", out=tmp_path, minutes=1, on="ray")


def test_a_clock_keeps_twelve_seconds_to_write_and_at_least_half_of_its_minutes_to_work(monkeypatch):
    now = SimpleNamespace(time=lambda: 1000.0)
    monkeypatch.setattr("algoformer.experiments.clock.time", now)
    assert Clock.of(None) == Clock() and not Clock().over and Clock().fits(1e9)
    assert Clock.of(9, 6) == Clock(1000 + 528, 1000 + 888)
    assert Clock.of(0.2) == Clock(1000 + 6, 1000)  # and what cannot travel is not begun
    clock = Clock.of(9)
    for later, over, fits in (
        (0, False, [True, True, False, False]),
        (528, False, [False] * 4),
        (529, True, [False] * 4),
    ):
        now.time = lambda later=later: 1000.0 + later
        assert (clock.over, [clock.fits(s) for s in (1, 527, 528, 529)]) == (over, fits)
    for minutes, more, said in ((None, 1, "more must be left out without minutes"), (0, 0, "minutes"), (9, -1, "more")):
        with pytest.raises(ValueError, match=said):
            Clock.of(minutes, more)


def test_a_run_that_cannot_travel_is_not_begun_if_it_cannot_end(tmp_path, monkeypatch):
    monkeypatch.setattr("algoformer.experiments.trained.TRAVELS", 0)
    now = time.time()
    site = Site(folder=tmp_path / "unfinished", ledger=ledger(tmp_path), clock=Clock(now + 100, now + 1))
    with pytest.raises(OutOfTime, match=r"was not begun .* must end on one machine"):
        made(recipe(steps=10**7), site)
    assert not list(tmp_path.glob("unfinished/*/checkpoints/*"))
    (told,) = entries(tmp_path / "runs.jsonl")
    assert told.outcome == "stopped" and told.steps == 0
    assert made(recipe(steps=20), dataclasses.replace(site, clock=Clock(now + 100, now + 100))).outcome == "finished"


def test_a_run_that_is_interrupted_tells_how_far_it_came_and_then_where_it_went_on(tmp_path):
    class Stopping(LinearRegression):
        def sample(self, *args, **kwargs):
            if next(drawn) == 30:
                signal.raise_signal(signal.SIGINT)
            return super().sample(*args, **kwargs)

    drawn = itertools.count()
    r, site = recipe(steps=60), Site(folder=tmp_path / "unfinished", ledger=ledger(tmp_path))
    r = dataclasses.replace(r, task=Stopping(d=2, n=4))
    with pytest.raises(Interrupted, match=r"stopped at step \d+ of 60"):
        made(r, site)
    (told,) = entries(tmp_path / "runs.jsonl")
    (last,) = tmp_path.glob("unfinished/*/checkpoints/*")
    assert told.outcome == "stopped" and 0 < told.steps < 40 and last.name == f"step-{told.steps:08}"
    made(r, site)
    rest = next(e for e in entries(tmp_path / "runs.jsonl") if e.id != told.id)
    assert (rest.outcome, rest.begun, rest.steps, rest.key) == ("finished", told.steps, 60, told.key)


def test_before_a_gpu_is_used_the_estimate_decides(tmp_path, monkeypatch):
    monkeypatch.setattr("algoformer.experiments.trained.train", lambda *_, **__: pytest.fail("it was begun"))
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    config, now = load("ours_linear").GPU, time.time()
    standard = list(config.recipes())[-1]  # 24,000 steps of 2.44 ms: a minute
    site = Site(device="cuda", folder=tmp_path, clock=Clock(now + 100, now + 30))
    with pytest.raises(OutOfTime, match="its checkpoint of 153 MB does not travel"):
        made(standard, site)
    with pytest.raises(pytest.fail.Exception, match="it was begun"):
        made(standard, dataclasses.replace(site, clock=Clock(now + 100, now + 200)))


def test_runs_go_without_the_packages_of_the_command_line(tmp_path):
    blocked = "import sys; sys.modules.update(dict.fromkeys(('matplotlib', 'typer', 'rich', 'sklearn', 'scipy')))\n"
    code = blocked + "from algoformer.experiments.headless import main; sys.exit(main(sys.argv[1:]))"
    line = ["ours_linear", "--preset", "smoke", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", code, *line, "--pack", str(tmp_path / "away")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ours_linear, seed 0: made" in done.stdout and "packed: results-" in done.stdout
    name = next((tmp_path / "out" / "ours_linear").iterdir()).name
    assert f"ours_linear/{name}" in unpack(tmp_path / "away", tmp_path / "in")


def test_headless_has_the_exit_codes_of_the_command(tmp_path, monkeypatch):
    line = [QUICK, "--preset", "smoke", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path)]
    monkeypatch.setattr(load(QUICK), "run", lambda config, site: 1 / 0)
    assert headless(line) == 1
    monkeypatch.setattr("algoformer.experiments.clock.Clock.over", property(lambda clock: True))
    assert headless(line) == 3


# The ledger


def tell(folder: str, many: int) -> None:
    for i in range(many):
        with ledger(Path(folder), seed=i).entry("x" * 300):
            pass


def test_processes_share_a_ledger_and_every_line_stays_whole(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=tell, args=(str(tmp_path), 60)) for _ in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    found = entries(tmp_path / "runs.jsonl")
    assert len(found) == 120 and {e.outcome for e in found} == {"finished"}


def test_every_end_is_told(tmp_path):
    book = ledger(tmp_path)
    for error in (ArithmeticError, KeyboardInterrupt):
        with pytest.raises(error), book.entry("one"):
            raise error
    with book.entry("two") as entry:
        entry.outcome, entry.steps = "stuck", 7
    with pytest.raises(Missing), book.entry("three") as entry:
        entry.outcome = "untested"
        raise Missing
    found = entries(book.file)
    assert [e.outcome for e in found] == ["failed", "stopped", "stuck", "untested"] and found[2].steps == 7


def test_runs_at_once_say_so(tmp_path):
    assert reproduce([QUICK], preset="smoke", seeds=2, jobs=2, out=tmp_path).ok
    assert reproduce([QUICK], preset="smoke", seeds=3, out=tmp_path).ok
    assert sorted((e.seed, e.at_once) for e in entries(tmp_path / "runs.jsonl")) == [(0, 2), (1, 2), (2, 1)]


@pytest.mark.parametrize(("device", "gpus", "share"), [("cpu", 0, 3), ("cuda", 2, 2), ("cuda", 1, 3), ("cuda:1", 2, 3)])
def test_runs_share_the_device_they_are_given(device, gpus, share, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert Processes(device, 3, Clock()).at_once == share


def test_a_process_of_several_has_its_share_of_the_cores_and_leaves_interrupts_to_its_parent(monkeypatch):
    told, sent = [], []
    monkeypatch.setattr("algoformer.experiments.processes.attempt", lambda *given: given)
    monkeypatch.setattr("os.cpu_count", lambda: 9)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(signal, "signal", lambda *given: told.append(given))
    for jobs, cores in ((2, 4), (20, 1)):
        _child("run", "cuda:1", Clock(5.0, 6.0), jobs, 3, SimpleNamespace(send=sent.append))
        assert told[-2:] == [(signal.SIGINT, signal.SIG_IGN), cores]
    assert sent == [("run", "cuda:1", Clock(5.0, 6.0), 3)] * 2


def test_a_request_to_end_is_heard_while_processes_work_and_in_the_main_thread_alone():
    def heard():
        with Processes("cpu", 2, Clock()):
            return signal.getsignal(signal.SIGTERM)

    before, found = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(SystemExit, match="143"):
        heard()(signal.SIGTERM, None)
    assert signal.getsignal(signal.SIGTERM) is before
    thread = threading.Thread(target=lambda: found.append(heard()))
    thread.start()
    thread.join()
    assert found == [before]


def test_a_killed_run_has_begun_and_told_no_end(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path; import test_minutes;\n"
        "with test_minutes.ledger(Path(sys.argv[1])).entry('long'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parent, check=False)
    assert done.returncode == -signal.SIGKILL
    (told,) = entries(tmp_path / "runs.jsonl")
    assert told.outcome == "killed" and told.purpose == "long"


def test_runs_of_several_machines_stand_in_the_order_of_their_beginning_and_killed_ones_without_an_end(
    tmp_path,
):
    begun = {"at": "2026-01-02T03:04:05Z", "experiment": "a", "seed": 0, "config": "c", "preset": "gpu", "device": "d"}
    there = begun | {"id": "there", "purpose": "on", "key": "k", "begun": 2000, "of": 3000}
    with ledger(tmp_path).entry("here"):
        pass
    append(tmp_path / "runs.jsonl", json.dumps(there).encode() + b"\n")
    assert [e.purpose for e in entries(tmp_path / "runs.jsonl")] == ["on", "here"]
    assert "| on | killed | 2,000 to ? of 3,000 | ? | gpu | 0 | d | `k` |" in ledger_page(tmp_path)


def test_a_ledger_with_a_torn_line_names_it(tmp_path):
    append(tmp_path / "runs.jsonl", b'{"id": "a", ')
    with pytest.raises(ValueError, match="line 1 of"):
        entries(tmp_path / "runs.jsonl")
    (tmp_path / "runs.jsonl").write_bytes(b'{"id": "a", "outcome": "finished"}\n')
    with pytest.raises(ValueError, match="must have begun"):
        entries(tmp_path / "runs.jsonl")


def test_a_failing_experiment_is_in_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(load(QUICK), "run", lambda config, site: 1 / 0)
    reproduce([QUICK], preset="smoke", seeds=1, out=tmp_path)
    (told,) = entries(tmp_path / "runs.jsonl")
    assert (told.experiment, told.preset, told.outcome) == (QUICK, "smoke", "failed")


# Luggage


def stored(out: Path) -> dict[str, bytes]:
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_what_is_packed_comes_out_as_it_was_in_parts_of_a_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(luggage_, "PART", 4096)
    out = tmp_path / "out"
    assert reproduce(["ours_linear"], preset="smoke", seeds=1, out=out).ok
    put = pack(out, tmp_path / "parts")
    assert len(put.files) > 2 and all(p.stat().st_size <= 4096 for p in put.files) and not put.left
    unpack(tmp_path / "parts", tmp_path / "in")
    assert stored(tmp_path / "in") == stored(out)
    unpack(tmp_path / "parts", tmp_path / "in")  # twice is once: no line of the ledger is doubled
    assert stored(tmp_path / "in") == stored(out)


def test_the_command_packs_and_unpacks(tmp_path):
    line = ["reproduce", QUICK, "--preset", "smoke", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, [*line, "--pack", str(tmp_path / "parts")]).exit_code == 0
    done = CliRunner().invoke(app, ["unpack", str(tmp_path / "parts"), "--out", str(tmp_path / "in")])
    assert done.exit_code == 0 and "2 files" in done.stdout
    assert Store(tmp_path / "in").records()[0][0].experiment == QUICK
    assert CliRunner().invoke(app, ["unpack", str(tmp_path / "out")]).exit_code == 2


def test_work_that_goes_on_is_packed_meanwhile(tmp_path, monkeypatch):
    """Whatever moment its machine goes: what a folder holds is unpacked as it was a moment ago."""
    tries = iter([FileNotFoundError("it went while it was read")])

    def once_torn(*paths, **how):
        if (error := next(tries, None)) is not None:
            raise error
        return pack(*paths, **how)

    monkeypatch.setattr(luggage_, "pack", once_torn)
    out, parts = results(tmp_path / "out", {"answers/a.safetensors": "a"}, 1000), tmp_path / "parts"

    def arrives(wanted):
        for i in range(500):
            with contextlib.suppress(ValueError, FileNotFoundError):  # no package yet, or the next one takes its place
                unpack(parts, tmp_path / f"in-{wanted}-{i}")
                if wanted in stored(tmp_path / f"in-{wanted}-{i}"):
                    return True
            time.sleep(0.02)
        return False

    with Packing(out, parts, every=0.02) as packing:
        assert arrives("answers/a.safetensors")
        results(out, {"answers/b.safetensors": "b"}, 2000)
        assert arrives("answers/b.safetensors")
        results(out, {"answers/c.safetensors": "c"}, 3000)
    assert list(parts.iterdir()) == packing.made.files
    unpack(parts, tmp_path / "in")
    assert stored(tmp_path / "in") == stored(out)


def test_an_interrupt_leaves_a_package_and_a_refusal_none(tmp_path):
    out = results(tmp_path / "out", {"answers/a.safetensors": "a"}, 1000)
    for end, packed in ((KeyboardInterrupt, True), (ValueError, False)):
        with pytest.raises(end), Packing(out, tmp_path / end.__name__):
            raise end
        assert (tmp_path / end.__name__).exists() == packed
    line = ["no_such", "--device", "cpu", "--out", str(out), "--pack", str(tmp_path / "none")]
    with pytest.raises(SystemExit):
        headless(line)
    assert not (tmp_path / "none").exists()


def test_small_things_go_first_and_what_has_no_room_is_named(tmp_path):
    for name, size in {
        "models/b/w": 9000,
        "unfinished/r/k/c": 5000,
        "ours_linear/a.json": 10,
        "answers/x.safetensors": 10,
    }.items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(bytes(size))
    put = pack(tmp_path / "out", tmp_path / "parts", most=20_480)
    assert put.left == [tmp_path / "out" / "models" / "b"]
    assert sorted(unpack(tmp_path / "parts", tmp_path / "in")) == [
        "answers/x.safetensors",
        "ours_linear/a.json",
        "unfinished/r/k/c",
    ]


def test_a_package_of_many_small_files_has_no_more_bytes_than_it_may(tmp_path):
    results(tmp_path / "out", {f"answers/{i}.safetensors": "x" for i in range(60)}, 1000.5)
    most = 11 * 10_240 - 1  # an archive is whole records of 10,240
    put = pack(tmp_path / "out", tmp_path / "parts", most=most)
    assert 0 < sum(file.stat().st_size for file in put.files) <= most
    assert len(put.left) + len(unpack(tmp_path / "parts", tmp_path / "in")) == 60 and len(put.left) < 15


def test_of_what_is_finished_the_new_alone_goes_and_the_newest_models_first(tmp_path):
    def wrote(at, *names):
        results(tmp_path / "out", dict.fromkeys(names, "x" * 512), at)
        for model in (tmp_path / "out").glob("models/*"):
            os.utime(model, (ages[model.name],) * 2)

    ages = {"old": 1000, "one": 3000, "two": 4000, "draft.12.tmp": 5000}
    wrote(1000, "answers/old.safetensors", "ours_linear/old.json", "unfinished/r/k/c", "models/old/w")
    wrote(3000, "answers/new.safetensors", "ours_linear/new.json", *(f"models/{name}/w" for name in ages))
    put = pack(tmp_path / "out", tmp_path / "parts", since=2000, most=10_240)
    assert put.left == [tmp_path / "out" / "models" / "one"]
    assert sorted(unpack(tmp_path / "parts", tmp_path / "in")) == [
        "answers/new.safetensors",
        "models/two/w",
        "ours_linear/new.json",
        "unfinished/r/k/c",
    ]


def test_a_package_that_leads_outside_of_its_folder_is_refused_and_takes_nothing_away(tmp_path):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("unfinished/../../other"))
    digest = hashlib.sha256(whole.getvalue()).hexdigest()[:16]
    results(tmp_path, {"other/mine": "mine", "in/unfinished/r/k/c": "c"}, 1000)
    before = stored(tmp_path)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / f"results-{digest}-0-of-1.part").write_bytes(whole.getvalue())
    with pytest.raises(ValueError, match="the paths of a package must lie inside of it"):
        unpack(tmp_path / "parts", tmp_path / "in")
    shutil.rmtree(tmp_path / "parts")
    assert stored(tmp_path) == before


def test_parts_that_are_missing_changed_or_mixed_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(luggage_, "PART", 4096)
    (tmp_path / "out" / "answers").mkdir(parents=True)
    (tmp_path / "out" / "answers" / "a.safetensors").write_bytes(os.urandom(6000))
    files = pack(tmp_path / "out", tmp_path / "parts").files
    data = files[-1].read_bytes()
    files[-1].write_bytes(b"x" + data[1:])
    with pytest.raises(ValueError, match="their hash is another"):
        unpack(tmp_path / "parts", tmp_path / "in")
    files[-1].unlink()
    with pytest.raises(ValueError, match=f"must hold {len(files)} parts"):
        unpack(tmp_path / "parts", tmp_path / "in")
    with pytest.raises(ValueError, match="must hold the parts of a package; got none"):
        unpack(tmp_path / "out", tmp_path / "in")
    assert not (tmp_path / "in").exists()


def results(out: Path, files: dict[str, str], at: float) -> Path:
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
        os.utime(out / name, (at, at))
    return out


def test_all_packages_of_a_folder_are_unpacked_the_oldest_first(tmp_path):
    line = "unfinished/r/k/checkpoints/step-{:08d}/state.json".format
    first = results(tmp_path / "first", {"answers/a.safetensors": "old", line(100): "100"}, 1000)
    second = results(tmp_path / "second", {"answers/a.safetensors": "new", line(200): "200"}, 2000)
    for older, newer in ((first, second), (second, first)):  # whenever they were packed
        parts, into = tmp_path / f"{older.name}-parts", tmp_path / f"{older.name}-in"
        assert len(pack(older, parts).files) == len(pack(newer, parts).files) == 1
        assert sorted(unpack(parts, into)) == ["answers/a.safetensors", line(100), line(200)]
        assert stored(into) == {"answers/a.safetensors": b"new", line(200): b"200"}


def test_a_package_that_is_not_whole_is_told_after_the_others_are_put(tmp_path):
    for name in ("a", "b"):
        (torn,) = pack(results(tmp_path / name, {f"answers/{name}.safetensors": name}, 1000), tmp_path / "parts").files
    torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(ValueError, match="their hash is another"):
        unpack(tmp_path / "parts", tmp_path / "in")
    assert stored(tmp_path / "in") == {"answers/a.safetensors": b"a"}


def test_an_old_package_takes_nothing_back_of_what_went_on(tmp_path):
    home, line = tmp_path / "home", "unfinished/{}/k/checkpoints/step-{:08d}/state.json".format
    away = {line("r", 100): "100", line("s", 100): "100", line("done", 100): "100"}
    pack(results(tmp_path / "away", away, 1000), tmp_path / "parts")
    results(home, {"ours_linear/done.json": "{}"}, 500)
    for name, step in (("r", 300), ("r", 99_999_999), ("s", 50)):
        checkpoint.write(home / "unfinished" / name / "k" / "checkpoints", step, {"step": step}, 2)
    kept = {name: data for name, data in stored(home).items() if "unfinished/s/" not in name}
    assert unpack(tmp_path / "parts", home) == [line("done", 100), line("s", 100)]
    assert stored(home) == kept | {line("s", 100): b"100"}


def test_of_a_training_whose_model_came_no_state_stays(tmp_path):
    home, line = tmp_path / "home", "unfinished/r/{}/checkpoints/step-00000100/state.json".format
    results(home, {line("k"): "100", line("on"): "100"}, 500)
    pack(results(tmp_path / "away", {"models/k/config.json": "{}"}, 1000), tmp_path / "parts")
    unpack(tmp_path / "parts", home)
    assert stored(home) == {"models/k/config.json": b"{}", line("on"): b"100"}


def test_parts_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    out = results(tmp_path / "out", {"answers/a.safetensors": "a"}, 1000)
    monkeypatch.setattr("algoformer.files.os.fsync", lambda handle: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pack(out, tmp_path / "parts")
    assert not list((tmp_path / "parts").iterdir())


def test_a_checkpoint_of_an_algoformer_travels_and_its_files_are_small():
    model = model_of(list(load("ours_linear").GPU.recipes())[-3].model)
    size = 3 * sum(v.nbytes for v in model.parameters())
    assert 2 * size < luggage_.MOST and size < TRAVELS < luggage_.MOST
    assert luggage_.PART == 15 * 2**20 and luggage_.MOST == 4 * luggage_.PART
    page = " ".join((Path(__file__).parent.parent / "docs" / "experiments.md").read_text().split())
    assert "into at most four files of at most 15 MiB" in page


# The plan and the page


def test_a_row_of_the_plan_goes_when_its_results_are_there(tmp_path, monkeypatch):
    row = dataclasses.replace(ROWS[0], names=(QUICK,), preset="smoke")
    monkeypatch.setattr("algoformer.experiments.tiers.ROWS", (row,))
    (before,) = plan(tmp_path)
    assert before.missing == 1 and before.minutes == 0 and QUICK in before.row.command
    assert reproduce([QUICK], preset="smoke", seeds=1, out=tmp_path).ok
    assert plan(tmp_path) == []


def test_the_plan_counts_no_training_whose_errors_are_kept(tmp_path, monkeypatch):
    row = dataclasses.replace(ROWS[0], names=("ours_linear",))
    monkeypatch.setattr("algoformer.experiments.tiers.ROWS", (row,))
    monkeypatch.setattr("algoformer.experiments.tiers.seconds", lambda recipe: 60.0)
    assert plan(tmp_path)[0].minutes == 12  # nine pilots, three models
    config, nothing = load("ours_linear").GPU, {"errors": torch.zeros(1)}
    model, task, window = config.entrants["looped"].model, config.subject, config.window
    chosen = config.recipe(model, task, window=window, lr=3e-4)
    first, second, _ = config.pilots(model, task, window=window)
    for recipe in (dataclasses.replace(first, task=LinearRegression(d=2, n=4)), second, chosen):  # one is of no row
        kept("measured", recipe, (1,), Site(seed=recipe.train.seed, answers=tmp_path / "answers"), lambda: nothing)
    kept("oracle", task, (1,), Site(answers=tmp_path / "answers"), lambda: nothing)
    assert plan(tmp_path)[0].minutes == 10
    row = dataclasses.replace(ROWS[0], names=("giannou2024_fig2",))
    monkeypatch.setattr("algoformer.experiments.tiers.ROWS", (row,))
    assert plan(tmp_path)[0].minutes == 5  # one, two, three, four and six layers
    config = load("giannou2024_fig2").GPU
    kept("errors", config.recipe(6, config.task(10.0)), (1,), Site(answers=tmp_path / "answers"), lambda: nothing)
    assert plan(tmp_path)[0].minutes == 4


def test_the_plan_counts_the_seeds_without_a_result_and_pilots_once(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "algoformer.experiments.tiers.ROWS", (dataclasses.replace(ROWS[0], names=("ours_linear",), seeds=3),)
    )
    monkeypatch.setattr("algoformer.experiments.tiers.seconds", lambda recipe: 60.0)
    for finished, missing, minutes in (((), 3, 9 + 9), ((1,), 2, 9 + 6), ((0,), 2, 6)):  # pilots are those of any seed
        monkeypatch.setattr(Store, "has", lambda self, name, config, seed, finished=finished: seed in finished)
        (planned,) = plan(tmp_path)
        assert (planned.missing, planned.minutes) == (missing, minutes)


def test_the_command_of_a_row_asks_for_what_the_row_says(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "algoformer.experiments.reproduce",
        lambda names, **how: asked.append((names, how)) or SimpleNamespace(ok=True, outcomes=[], unfinished=[]),
    )
    for row in ROWS:
        CliRunner().invoke(app, row.command.split()[1:])
        names, how = asked.pop()
        assert (tuple(names), how["preset"], how["seeds"], how["device"]) == (
            row.names,
            row.preset,
            row.seeds,
            row.device,
        )
        assert (how["minutes"], how["more"]) == ((9, row.more) if row.device == "cuda" else (None, 0))


def test_every_training_that_cannot_travel_can_end_in_the_minutes_of_its_row():
    for row in (row for row in ROWS if row.device == "cuda"):
        for name in row.names:
            config = preset(load(name), row.preset)
            for r in config.recipes():
                if (4 if r.train.ema else 3) * 4 * parameters(r) > TRAVELS:
                    assert seconds(r) + RESERVE < 60 * (MINUTES + row.more), (name, seconds(r) / 60)
    assert {row.more for row in ROWS} > {0}


def test_the_plan_counts_a_shared_training_once(tmp_path, monkeypatch):
    rows = tuple(dataclasses.replace(ROWS[0], names=(name,)) for name in ("fu2024_fig2", "fu2024_fig3"))
    monkeypatch.setattr("algoformer.experiments.tiers.ROWS", rows)
    first, second = plan(tmp_path)
    assert first.minutes == pytest.approx((START + 100_000 * MEASURED[TransformerConfig]) / 60)
    assert second.minutes == 0


def test_the_page_shows_steps_seeds_and_runs(tmp_path, monkeypatch):
    experiment = load("ours_linear")
    monkeypatch.setattr(experiment, "GPU", dataclasses.replace(experiment.SMOKE, steps=4))
    monkeypatch.setattr("algoformer.report.docs.plan", lambda results: [])
    assert reproduce(["ours_linear"], preset="gpu", seeds=3, out=tmp_path / "results").ok
    shared = ledger(tmp_path / "results", experiment="ours_linear", preset="gpu", at_once=2)
    alone, smoke = dataclasses.replace(shared, at_once=1), dataclasses.replace(shared, at_once=1, preset="smoke")
    for book, key in ((shared, "k"), (smoke, "k"), (alone, "")):  # of none of these is the speed told
        with book.entry("looped: otherwise", key=key, steps=4, of=4):
            pass
    page = write(tmp_path / "results", tmp_path / "docs" / "results.md").read_text()
    assert page == markdown(tmp_path / "results")
    assert "### AlgoFormer project, linear regression: 4 steps, 3 seeds" in page
    assert "(figures/ours_linear.svg)" in page and (tmp_path / "docs" / "figures" / "ours_linear.svg").exists()
    assert "Nothing yet" not in page
    runs = [json.loads(line) for line in (tmp_path / "results" / "runs.jsonl").read_text().splitlines()]
    told = (tmp_path / "docs" / "runs.md").read_text()
    assert told == ledger_page(tmp_path / "results")
    assert told.count("| finished |") == 6 and told.count("| stuck |") == 9  # of four steps nobody comes far
    assert len(runs) == 2 * 15 and told.count(", one of 2 at once |") == 1
    assert "AlgoFormer: AlgoFormer + injection on LinearRegression, lr 0.0001" in told
    assert all(
        run["commit"] and run["torch"] == version("torch")
        for run in runs
        if "at" in run and "otherwise" not in run["purpose"]
    )
    ((commit, device),) = {(run["commit"], run["device"]) for run in runs if run.get("commit")}
    place = f"torch {version('torch')} on {device}"
    command = "algoformer reproduce ours_linear --preset gpu --seeds 3 --device cuda"
    assert f"Seeds 0, 1, 2; commit {commit}; {place}" in page and f"`{command}`" in page
    assert "ours): d 2 (20), n 4 (40), width 8 (256), heads 2 (8), steps 4 (500,000)" in page
    errors = [r.result.errors["looped"][0][-1] / r.result.zero[0][-1] for r in Store(tmp_path / "results").records()[0]]
    assert f"| looped | {', '.join(f'{e:.3g}' for e in errors)} |" in page and "stuck, stuck, stuck" in page
    told = [e for e in entries(tmp_path / "results" / "runs.jsonl") if e.purpose.startswith("looped: ")][:3]
    ms = 60e3 * sum(e.minutes for e in told) / (3 * 4)
    speed = f"| `ours_linear` | looped | {told[0].device} | {ms:.2f} |  | never | never | never |"
    assert len(told) == 3 and speed in page
    html = build(tmp_path / "results", tmp_path / "index.html").page.read_text()
    assert "gpu, 4 steps, 3 runs" in html and "stuck, stuck, stuck" in html


def test_a_page_without_results_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("algoformer.report.docs.plan", lambda results: [])
    page = markdown(tmp_path)
    assert (
        "Nothing yet" in page
        and "is empty" in ledger_page(tmp_path)
        and "Every row of the plan has its results" in page
    )


def test_a_run_that_cannot_travel_is_held_to_the_best_pace_of_its_first_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("algoformer.experiments.trained.TRAVELS", 0)
    r, now = recipe(steps=10_000), time.time()
    site = Site(folder=tmp_path, clock=Clock(now + 1000, now + 1000))

    def lines(*rates, begun=0):
        limit = _Limit(r, model_of(r.model), site, begun)
        for i, rate in enumerate(rates, 1):
            limit(Progress(begun + 10 * i, 10_000, 1.0, rate, 9e9, Size(None, None, 1), {}))

    lines(0.1, 50.0, *[5.0] * (EARLY - 2))  # 200 s
    with pytest.raises(OutOfTime, match=r"a run of 33\.0 minutes was not begun"):
        lines(*[5.0] * EARLY)
    lines(*[5.0] * EARLY, begun=20)  # what is begun goes on
    monkeypatch.setattr("algoformer.experiments.trained.TRAVELS", 10**6)
    lines(*[5.0] * EARLY)  # which can go on elsewhere


def test_the_pace_of_a_run_is_that_of_its_steps(monkeypatch):
    """A step takes 0.01 s, and what the curriculum makes of a line of the log 100."""
    now = [0.0]

    def passed(seconds, value):
        now[0] += seconds
        return value

    clock = SimpleNamespace(perf_counter=lambda: now[0], time=time.time)
    monkeypatch.setattr("algoformer.training.loop.time", clock)
    monkeypatch.setattr(Curriculum, "observe", lambda self, step, losses: passed(100, None))
    monkeypatch.setattr(Curriculum, "note", lambda self, step: passed(0.01, None))
    r, rates = recipe(steps=100), []
    train(model_of(r.model), dataclasses.replace(r.task, dense=True), r.train, progress=lambda p: rates.append(p.rate))
    assert rates == pytest.approx([100.0] * 10) and now[0] > 900


def test_a_line_that_has_no_room_is_an_error_and_spoils_no_other(tmp_path, monkeypatch):
    file, write = tmp_path / "runs.jsonl", os.write
    append(file, b"one\n")
    with monkeypatch.context() as full, pytest.raises(OSError, match="must have room for 4 bytes; 2 were written"):
        full.setattr(os, "write", lambda handle, data: write(handle, data[:2]))
        append(file, b"two\n")
    append(file, b"three\n")
    assert file.read_bytes() == b"one\nthree\n"


def test_a_torn_checkpoint_does_not_keep_a_whole_one_out(tmp_path):
    here, away = tmp_path / "here", tmp_path / "away"
    place = Path("unfinished") / "a" / "b"
    for root, until in ((away, 100), (here, 200)):
        how = recipe()
        model = model_of(how.model, torch.Generator().manual_seed(0))
        train(model, how.task, how.train, root / place, until=until)
    pack(away, tmp_path / "parts", since=0)
    for shard in (here / place).glob("checkpoints/*/*.safetensors"):
        shard.write_bytes(b"")
    unpack(tmp_path / "parts", here)
    assert [p.name for p in (here / place / "checkpoints").iterdir()] == ["step-00000100"]


def test_a_model_that_another_experiment_trained_has_its_learning_curve(tmp_path):
    """`ours_represented` trains what Figure 2a asks; whoever comes first, both have their results."""
    for name in ("ours_represented", "algoformer2024_fig2a"):
        assert reproduce([name], preset="smoke", seeds=1, out=tmp_path).ok
    assert not Store(tmp_path).records()[1]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found by /proc")
def test_runs_at_once_end_with_the_command_that_began_them(tmp_path):
    """By SIGTERM, as of a batch system, and by a SIGKILL that leaves no time: no child works on."""
    command = [sys.executable, "-m", "algoformer.experiments.headless", "gatmiry2024_fig3", "--preset", "cpu",
               "--seeds", "2", "--jobs", "2", "--device", "cpu", "--out"]  # fmt: skip
    for sign, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
        parent = subprocess.Popen([*command, str(tmp_path / sign.name)], stderr=subprocess.DEVNULL)
        while len(born := children(parent.pid)) < 2 and parent.poll() is None:
            time.sleep(0.05)
        time.sleep(1)
        parent.send_signal(sign)
        assert parent.wait(300) == code
        begin = time.time()
        while any(Path(f"/proc/{pid}").exists() for pid in born):
            assert time.time() < begin + 300  # it may still be importing
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    """The processes of the runs that a process began, without the one that tracks its resources."""
    found = [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [n for n in found if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]
