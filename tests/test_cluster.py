"""Runs spread over pools: tried again when they die, and on a Ray cluster whose machines share no disk."""

import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from algoformer.cli import app
from algoformer.experiments import Store, reproduce
from algoformer.experiments.cluster import answered, keep, packed, work
from algoformer.experiments.reproduction import TRIES, spread
from algoformer.experiments.runs import Run, attempt
from algoformer.files import settle

QUICK, TRAINS = "fu2024_rates", "algoformer2024_fig3"


class Deadly:
    """A pool in which run i dies deaths[i] times; the oldest ends first."""

    def __init__(self, deaths, room):
        self.deaths, self.size = deaths, room
        self.going, self.starts, self.most = [], Counter(), 0

    def room(self):
        return self.size

    def start(self, run):
        self.going.append(run)
        self.starts[run.seed] += 1
        self.most = max(self.most, len(self.going))

    def ended(self):
        run = self.going.pop(0)
        died = self.starts[run.seed] <= self.deaths[run.seed]
        return [(run, run.ended("failed", "killed\nhere") if died else run.ended("made"))]


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(1, 4))
def test_a_run_that_dies_is_tried_twice_more_and_the_rest_go_on(deaths, room):
    pool, outcomes = Deadly(deaths, room), {}
    runs = [Run(QUICK, "smoke", seed, Path()) for seed in range(len(deaths))]
    spread(runs, pool, lambda run, outcome: outcomes.update({run: outcome}))
    assert [outcomes[run].status for run in runs] == ["made" if d < TRIES else "failed" for d in deaths]
    assert all(outcomes[run].message in ("", "killed (3 tries)\nhere") for run in runs)
    assert [pool.starts[run.seed] for run in runs] == [min(d + 1, TRIES) for d in deaths]
    assert pool.most == min(room, len(runs))


def documents(out: Path) -> dict[str, dict]:
    """Every result but where it comes from, and the bytes of every model."""
    found = {str(p.relative_to(out)): json.loads(p.read_text()) | {"provenance": 0} for p in out.glob("*_*/*.json")}
    return found | {str(p.relative_to(out)): p.read_bytes() for p in out.glob("models/*/*") if p.is_file()}


def test_result_and_models_come_back_from_another_disk(tmp_path):
    here, there = Run(TRAINS, "smoke", 0, tmp_path / "here"), tmp_path / "there"
    outcome = keep(here, *work(here, "cpu", there, []))
    assert outcome.status == "made" and not there.exists()
    plain = replace(here, out=tmp_path / "plain")
    assert attempt(plain, "cpu").status == "made"
    assert documents(here.out) == documents(plain.out)
    assert len(list(here.out.glob("models/*"))) > 1
    assert not Store(here.out).records()[1]


def test_models_that_are_kept_go_along_and_are_not_trained_again(tmp_path, monkeypatch):
    run = Run(TRAINS, "smoke", 0, tmp_path / "here")
    attempt(run, "cpu")
    before = documents(run.out)
    monkeypatch.setattr("algoformer.experiments.trained.train", lambda *_: pytest.fail("it was trained again"))
    outcome, files = work(run, "cpu", tmp_path / "there", (packed(p, run.out) for p in run.out.glob("models/*")))
    assert outcome.status == "made"
    assert list(files) == [run.file.relative_to(run.out).as_posix()]
    keep(run, outcome, files)
    assert documents(run.out) == before


def test_models_of_a_run_that_fails_come_back_too(tmp_path, monkeypatch):
    run = Run(TRAINS, "smoke", 0, tmp_path / "here")
    monkeypatch.setattr("algoformer.experiments.algoformer2024_fig3.evaluate", lambda *_, **__: 1 / 0)
    outcome = keep(run, *work(run, "cpu", tmp_path / "there", []))
    assert outcome.status == "failed" and "ZeroDivisionError" in outcome.message
    assert len(list(run.out.glob("models/*/model.safetensors"))) == 1
    assert not run.finished


def test_a_result_of_another_version_is_refused(tmp_path, monkeypatch):
    run = Run(QUICK, "smoke", 0, tmp_path / "here")
    back = work(run, "cpu", tmp_path / "there", [])
    monkeypatch.setattr("algoformer.experiments.fu2024_rates.REVISION", 1000)
    outcome = keep(run, *back)
    assert outcome.status == "failed" and "every machine needs the same algoformer" in outcome.message
    assert not run.out.exists()


def test_what_is_not_possible_at_a_scale_is_said_from_afar_too(tmp_path):
    run = Run(TRAINS, "cpu", 0, tmp_path / "here")
    outcome = keep(run, *work(run, "cpu", tmp_path / "there", []))
    assert outcome.status == "untested" and "--preset gpu" in outcome.message
    assert not run.out.exists()


def test_the_first_of_two_folders_gets_the_name(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        settle(tmp_path / name, tmp_path / "home")
    assert (tmp_path / "home" / "file").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["home"]
    with pytest.raises(OSError):
        settle(tmp_path / "three", tmp_path / "nowhere" / "home")


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'algoformer\[sweep\]'"):
        reproduce([QUICK], preset="smoke", on="ray", out=tmp_path)
    found = CliRunner().invoke(app, ["reproduce", QUICK, "--preset", "smoke", "--on", "ray", "--out", str(tmp_path)])
    assert found.exit_code == 2
    assert "pip install 'algoformer[sweep]'" in found.stderr


def test_where_and_on_what_must_be_known(tmp_path):
    with pytest.raises(ValueError, match="on must be one of 'ray'; got 'slurm'"):
        reproduce([QUICK], preset="smoke", on="slurm", out=tmp_path)
    with pytest.raises(ValueError, match="device must be one of 'cpu', 'cuda'; got 'cuda:1'"):
        reproduce([QUICK], preset="smoke", on="ray", device="cuda:1", out=tmp_path)


def test_a_cluster_that_is_not_there_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        answered(address)
    with pytest.raises(ConnectionError, match=f"got {address}: .*refused"):
        answered(address)
    for named in ("", "auto", "local"):
        answered(named)


@pytest.fixture
def ray():
    return pytest.importorskip("ray", reason="Ray is not installed: pip install 'algoformer[sweep]'")


@pytest.fixture
def two_nodes(ray, monkeypatch):
    """Two nodes of one core each on this machine, as a cluster that is already there."""
    from ray.cluster_utils import Cluster

    nodes = Cluster()
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=1, include_dashboard=False)
        monkeypatch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes
    finally:
        nodes.shutdown()


def left(run: Run) -> list[Path]:
    """The folders in which a run is, or was, at work."""
    return list(Path(tempfile.gettempdir()).glob(f"algoformer-*-{run.file.stem}"))


def worker(run: Run) -> int | None:
    """The process, among those below this one, that is at work on a run and has begun to train."""
    import psutil  # comes with Ray

    if not any((folder / "unfinished").exists() for folder in left(run)):
        return None
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] == [f"ray::{run.name}-{run.seed}"]:
                return process.pid
        except psutil.Error:
            continue
    return None


def killing(run: Run, killed: list[int], stop: threading.Event) -> None:
    while not stop.is_set() and not killed:
        if (pid := worker(run)) is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        time.sleep(0.02)


@pytest.mark.slow
def test_a_worker_killed_on_a_cluster_changes_no_result(tmp_path, ray, two_nodes):
    victim = Run(TRAINS, "smoke", 0, tmp_path / "ray")
    before = left(victim)
    stop, killed = threading.Event(), []
    killer = threading.Thread(target=killing, args=(victim, killed, stop))
    killer.start()
    try:
        found = reproduce([TRAINS, QUICK], preset="smoke", seeds=2, on="ray", out=tmp_path / "ray")
    finally:
        stop.set()
        killer.join()
    assert killed
    assert [o.status for o in found.outcomes] == ["made"] * 4 and found.ok
    assert not ray.is_initialized()
    assert left(victim) == before  # the second try went on in the folder of the first, and cleared it
    assert reproduce([TRAINS, QUICK], preset="smoke", seeds=2, jobs=2, out=tmp_path / "jobs").ok
    assert documents(tmp_path / "ray") == documents(tmp_path / "jobs")
    assert len(documents(tmp_path / "ray")) > 4
