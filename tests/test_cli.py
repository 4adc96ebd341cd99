import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import algoformer
from algoformer.cli import app


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_version_is_the_packages():
    assert run("--version").stdout.strip() == algoformer.__version__


def test_list_names_every_solver_and_task_with_what_it_is():
    found = json.loads(run("list", "--json").stdout)
    assert {"Newton", "LeastSquares", "DampedNewton", "OnlineGradientDescent"} <= set(found["solvers"])
    assert {"LinearRegression", "Autoregression", "ChainOfThought"} <= set(found["tasks"])
    assert {"Quadrants", "ScaledInputs"} <= set(found["shifts"])
    assert not {"Regression", "Pairs", "Shift"} & {*found["tasks"], *found["shifts"]}
    assert all(what for entries in found.values() for what in entries.values())
    assert "phi([x" in run("list", "tasks").stdout.replace("\n", "")


def test_an_error_is_one_line_and_exit_code_2_without_debug(tmp_path):
    for arguments, message in (
        (["list", "birds"], "algoformer: the kind must be one of 'tasks', 'shifts'"),
        (["bench", "birds"], "algoformer: a benchmark must be one of"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(message)
        assert result.stderr.count("\n") == 1
    assert isinstance(run("--debug", "list", "birds").exception, ValueError)


def test_a_demo_that_cannot_write_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("demo", "--out", str(tmp_path / "file" / "page"))
    assert result.exit_code == 2
    assert "Not a directory" in result.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    result = subprocess.run(
        [sys.executable, "-m", "algoformer", "demo", "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    return out, json.loads(result.stdout)


def test_the_demo_races_the_solvers(demo):
    _, numbers = demo
    race = {row["steps to"]: row for row in numbers["race"]}
    assert int(race["Newton, from I"]["1e-6, isotropic"]) < int(race["conjugate gradients"]["1e-6, isotropic"])
    assert race["gradient descent"]["1e-6, isotropic"].startswith(">")
    errors = {row["error with"]: row for row in numbers["context"]}
    assert errors["ridge (Bayes)"]["20"] == min(row["20"] for row in errors.values())
    assert numbers["provenance"]["versions"]["torch"]


def test_the_page_of_the_demo_asks_for_nothing_from_outside(demo):
    html = (demo[0] / "index.html").read_text()
    links = re.findall(r'(?:src|href)="([^"#][^"]*)"', html) + re.findall(r"url\(([^)#][^)]*)\)", html)
    assert not [link for link in links if not link.startswith("data:")]
    assert html.count("<svg") == html.count("<figure")
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
