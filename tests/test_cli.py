import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

import algoformer
from algoformer import training, zoo
from algoformer.cli import app
from algoformer.terminal import print_table


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_version_is_the_packages():
    assert run("--version").stdout.strip() == algoformer.__version__


def test_list_names_every_solver_and_task_with_what_it_is():
    found = json.loads(run("list", "--json").stdout)
    assert {"Newton", "LeastSquares", "DampedNewton", "OnlineGradientDescent"} <= set(found["solvers"])
    assert {"LinearRegression", "Autoregression", "ChainOfThought"} <= set(found["tasks"])
    assert {"Quadrants", "ScaledInputs"} <= set(found["shifts"])
    assert set(found["pretrained"]) == set(zoo.NAMES)
    assert "(Gao et al. 2024, Figure 2b): 40 values" in found["pretrained"]["autoregression-d20"]
    assert not {"Regression", "Pairs", "Shift"} & {*found["tasks"], *found["shifts"]}
    assert all(what for entries in found.values() for what in entries.values())
    assert "phi([x" in run("list", "tasks").stdout.replace("\n", "")
    told = re.sub(r"[\s│]+", " ", run("translate", "--help").stdout)
    assert f"one that is shipped: {', '.join(zoo.TRANSLATORS)}." in told


def test_an_error_is_one_line_and_exit_code_2_without_debug(tmp_path):
    for arguments, message in (
        (["list", "birds"], "algoformer: the kind must be one of 'tasks', 'shifts'"),
        (["bench", "solvers", "birds"], "algoformer: a benchmark must be one of"),
        (["bench", "--gpu", "solvers"], "algoformer: gpu must be left out without train; got solvers"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(message)
        assert result.stderr.count("\n") == 1
    assert isinstance(run("--debug", "list", "birds").exception, ValueError)


def test_show_prints_the_card_of_a_model_that_is_shipped():
    for name in zoo.NAMES:
        assert run("show", name).stdout.startswith(f"# {name}\n")


def test_a_shipped_translator_is_scored_on_its_own_text():
    result = run("evaluate", "numbers-de-en", "--prompts", "8")
    assert result.exit_code == 0 and "BLEU 100.00" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["evaluate", "numbers-de-en", "--task", "LinearRegression"],
            "is a translator and must be asked text; got Lin",
        ),
        (
            ["evaluate", "numbers-de-en", "--model.loops", "4"],
            "must begin with task., for the model is made; got 'model",
        ),
        (["evaluate", "tatoeba-de-en"], "data must be given (--data) for tatoeba-de-en, which has no text of its own"),
        (["evaluate", "tatoeba-de-en", "--data", "nowhere"], "nowhere must hold either train.de or train.de.gz"),
        (["evaluate", "linear-regression-d20", "--task", "NumberWords"], "is a model of numbers and must be asked num"),
        (["evaluate", "linear-regression-d20", "--beam", "3"], "beam must be left out for a model of numbers; got 3"),
        (
            ["train", "--dry-run", "--preset", "gatmiry", "--train.smoothing", "0.1"],
            "smoothing must be 0 where numbers",
        ),
        (["train", "--dry-run", "--train.dims", "5:2"], "of train.dims, stop must be at least"),
        (["train", "--dry-run", "--device", "birds"], "device must be one that is here; got 'birds'"),
        (["reproduce", "--more", "5"], "more must be left out without minutes, which it comes after; got 5"),
    ],
)
def test_what_does_not_apply_is_refused(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 4 TB\nframe 0: ..")], ids=repr)
def test_memory_that_is_not_there_is_one_line(monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(training, "train", full)
    result = run("train", "--preset", "gatmiry")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("algoformer: there must be more memory, or less asked at once; ")


def test_the_command_in_the_help_of_train_works():
    told = re.sub(r"[\s│]+", " ", run("train", "--help").stdout)
    fields = re.search(r"Any field may follow: (.*?)\. ", told).group(1).split()
    assert len(fields) == 6 and run("train", *fields, "--dry-run").exit_code == 0


def test_names_stay_whole_in_a_narrow_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert set(json.loads(run("list", "claims", "--json").stdout)["claims"]) <= set(
        run("list", "claims").stdout.split()
    )


def test_sources_that_are_cut_are_told_of():
    result = run("translate", "numbers-de-en", "eins", "einundzwanzig " * 40)
    assert result.stderr == "algoformer: 1 of 2 sources are longer than 32 tokens, and cut there\n"


def test_show_prints_a_program_that_can_be_held_against_its_theorem():
    text = run("show", "newton", "--attention", "softmax").stdout
    assert "AlgoFormer, Lemma A.4 and Theorem 4.1" in text
    assert "u -= 0.5 sum u <x, u>" in text
    assert "layers x heads pre 1 x 2, loop 1 x 2, post 2 x 2" in text
    assert "u = 2 u" in run("show", "newton").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["show", "newtn"],
            "a construction or a model that is shipped must be one that there is; got 'newtn': did you mean",
        ),
        (["show", "linear-regresion-d20"], "got 'linear-regresion-d20': did you mean linear-regression-d20"),
        (["train", "gatmiry"], "a field must be given as --part.name value, and a recipe as --preset; got 'gatmiry'"),
        (["train", "--steps", "400"], "task. or train.; got 'steps' (did you mean train.steps?)"),
        (["show", "newton", "--attention", "hard"], "attention must be one of 'linear', 'relu', 'softmax'; got 'hard'"),
        (["show", "newton", "--attention", "linear"], "does not lower to linear attention"),
        (["train", "--preset", "algofomer", "--dry-run"], "did you mean algoformer?"),
        (["train", "--dry-run", "--train.stepz", "5"], "did you mean train.steps?"),
        (["train", "--dry-run", "--train.steps"], "--train.steps must have a value; got none"),
        (
            ["train", "--dry-run", "steps"],
            "a field must be given as --part.name value, and a recipe as --preset; got 'steps'",
        ),
        (["evaluate", "nowhere"], f"the model must be a folder or one of {', '.join(zoo.NAMES)}; got 'nowhere'"),
        (["evaluate", str(Path(__file__).parent)], "tests must hold a config.json"),
        (["evaluate", "nowhere", "--prompts", "0"], "prompts must be at least 1; got 0"),
        (["dissect", "tatoeba-de-en"], "the model must be a folder or one of autoregression-d20, "),
        (["dissect", "autoregression-d20"], "the task must be one of pairs (x, y); got Autoregression"),
        (["dissect", "linear-regression-d20", "--prompts", "3"], "prompts must be at least 4; got 3"),
        (
            ["dissect", "linear-regression-d20", "--figure", "a.jpg"],
            "the figure's ending must be one of '.svg', '.png', ",
        ),
        (["show", "newton", "--heads", "4"], "heads must be left out without --attention softmax; got 4"),
        (
            ["show", "newton", "--attention", "relu", "--no-masked"],
            "masked must be left out without --attention linear",
        ),
        (["report", "--results", "nowhere"], "results must be a folder of results; got nowhere"),
        (["unpack", "nowhere"], "the folder must be one that `reproduce --pack` wrote; got nowhere"),
        (["verify", "--claim", "ahn.lemma-3"], "a claim must be one that there is; got 'ahn.lemma-3': did you mean"),
    ],
)
def test_a_wrong_argument_says_what_must_be(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr, result.stderr


def test_a_model_is_trained_and_evaluated_from_the_command_line(tmp_path):
    sizes = "--model.width=16 --model.heads=2 --model.features=2 --model.loops=3 --train.window=2 --task.d=2 --task.n=4"
    run_of = "--train.steps=6 --train.batch=8 --train.log_every=2 --train.dims=none"
    folder = tmp_path / "run"
    result = run("train", "--device", "cpu", "--folder", str(folder), "--json", *sizes.split(), *run_of.split())
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["step"] == 6
    found = json.loads(run("evaluate", str(folder), "--prompts", "64", "--steps", "1,3,6", "--json").stdout)
    assert found["model"]["steps"] == [1, 3, 6]
    assert found["oracle"]["mean"][-1][-1] < found["model"]["mean"][-1][-1]
    assert "The oracle's error" in run("evaluate", str(folder), "--prompts", "64").stdout
    assert run("evaluate", str(folder), "--steps", "1,x").exit_code == 2
    noisy = run("evaluate", str(folder), "--prompts", "64", "--task.noise", "0.5", "--json")
    assert json.loads(noisy.stdout)["oracle"]["mean"][-1][-1] > 0.1
    assert "did you mean" in run("evaluate", str(folder), "--task", "LinearRegresion").stderr
    saved = ["evaluate", str(zoo.HOME / "linear-regression-d20"), "--prompts", "4", "--json"]
    assert "the task must be given (--task)" in run(*saved).stderr
    found = json.loads(run(*saved, "--task", "LinearRegression", "--task.dense", "true").stdout)
    assert found["model"]["mean"][-1][-1] < 0.1 * found["model"]["zero"]
    named = ["evaluate", "linear-regression-d20", "--prompts", "4", "--json"]
    assert json.loads(run(*named).stdout) == found
    assert len(json.loads(run(*named, "--task.n", "10").stdout)["model"]["mean"][-1]) == 11
    again = run("train", "--folder", str(folder), *sizes.split(), *run_of.split(), "--train.lr", "0.1")
    assert "train.lr must be 0.0003 as in" in again.stderr


def test_a_model_is_dissected_from_the_command_line(tmp_path):
    asked = ["dissect", "linear-regression-d20", "--prompts", "32", "--steps", "5,20", "--seed", "1"]
    found = json.loads(run(*asked, "--json").stdout)
    assert found["steps"] == [5, 20] and found["error"][1] < 0.1 * found["error"][0] < 0.1
    newton = found["matches"]["Newton"]
    assert 1 < newton["step"][0] < newton["step"][1]
    assert 0.9 < newton["likeness"]["low"][1] < newton["likeness"]["value"][1] < newton["likeness"]["high"][1] < 1
    assert max(found["matches"]["zero"]["likeness"]["value"]) < 0.6
    drawn = tmp_path / "new" / "dissected.svg"
    shown = run(*asked, "--figure", str(drawn)).stdout
    assert str(drawn) in shown and all(name in drawn.read_text() for name in ("<svg", *found["matches"]))
    assert f"{newton['step'][1]} ({newton['likeness']['value'][1]:.3f})" in " ".join(shown.split())
    late = json.loads(run(*asked, "--first", "20", "--json").stdout)["matches"]["Newton"]["likeness"]
    assert max(late["value"]) < 0.9, "where all could be known, likeness is earned"
    far = json.loads(run(*asked[:4], "--steps", "20", "--task.noise", "1", "--json").stdout)
    assert far["error"][0] > 0.02, "noise that no method can know"


def test_a_name_is_printed_as_it_is(tmp_path, monkeypatch):
    from algoformer import training

    monkeypatch.setattr(
        training, "train", lambda *a, **k: training.Result(variant="a [/b] c", step=1, loss=1, stuck=False)
    )
    folder = tmp_path / "run[/b]x:smile:[red]"
    small = ["--model.width", "16", "--model.heads", "2", "--device", "cpu"]
    result = run("train", "--folder", str(folder), *small)
    assert result.exit_code == 0, result.exception
    assert "a [/b] c: loss 1 after 1 steps" in result.stdout
    assert f"Log, checkpoints and model: {folder}\n" in result.stdout


def test_json_has_null_where_a_number_is_not_finite(monkeypatch):
    from algoformer import training

    made = training.Result(variant="x", step=1, loss=float("nan"), stuck=False, reached=[{"step": float("-inf")}])
    monkeypatch.setattr(training, "train", lambda *a, **k: made)
    result = run("train", "--json", "--model.width", "16", "--model.heads", "2", "--device", "cpu")
    found = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["loss"] is None and found["reached"] == [{"step": None}] and found["step"] == 1


@pytest.mark.parametrize("arguments", [["list", "pretrained", "--json"], ["list", "pretrained"], ["--help"]])
def test_a_reader_that_went_away_is_left_quietly(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "algoformer", *arguments]
    with os.fdopen(writer, "wb") as gone:
        result = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert result.stderr == ""
    assert result.returncode == 1


def test_an_interrupted_run_says_how_to_go_on(monkeypatch):
    from algoformer import training

    def stopped(*arguments, **options):
        raise training.Interrupted("stopped at step 7 of 9; run again to go on")

    monkeypatch.setattr(training, "train", stopped)
    result = run("train", "--device", "cpu", "--model.width", "16", "--model.heads", "2")
    assert result.exit_code == 130
    assert result.stderr.strip().endswith("algoformer: stopped at step 7 of 9; run again to go on")


def test_a_dry_run_says_what_a_run_costs():
    found = json.loads(run("train", "--dry-run", "--model.loops", "8", "--train.window", "4").stdout)
    assert found["model"]["loops"] == 8
    assert found["parameters"] > 1e6


def test_a_claim_is_measured_with_its_derivation():
    result = run("verify", "--claim", "ahn.lemma-2")
    assert result.exit_code == 0
    assert "ahn.lemma-2: holds" in result.stdout
    (row,) = json.loads(run("verify", "--claim", "ahn.lemma-2", "--json").stdout)
    assert row["agrees"]


def test_a_verdict_that_is_news_exits_with_code_1(monkeypatch):
    from algoformer.claims import ledger

    monkeypatch.setattr(ledger, "recorded", lambda: {"ahn.lemma-2": {"verdict": "fails"}})
    result = run("verify", "--claim", "ahn.lemma-2")
    assert result.exit_code == 1
    assert "differs from the one on record" in result.stderr


def test_an_experiment_is_reproduced_once_and_reported(tmp_path):
    results, page = tmp_path / "results", tmp_path / "page.html"
    arguments = ["reproduce", "fu2024_rates", "--preset", "smoke", "--seeds", "1", "--out", str(results), "--json"]
    assert [r["status"] for r in json.loads(run(*arguments).stdout)["runs"]] == ["made"]
    assert [r["status"] for r in json.loads(run(*arguments).stdout)["runs"]] == ["kept"]
    found = run("report", "--results", str(results), "--out", str(page))
    assert found.exit_code == 0
    assert "fu2024_rates" in found.stdout
    assert page.exists()
    next(results.rglob("*.json")).write_text("{")
    broken = run("report", "--results", str(results), "--out", str(page))
    assert broken.exit_code == 1
    assert "is broken and was left out" in broken.stderr
    assert run("reproduce", "fu2024_rate").exit_code == 2


def test_what_cannot_be_written_is_said_before_any_work(tmp_path, monkeypatch):
    file, folder = tmp_path / "file", tmp_path
    file.write_text("")
    for arguments, message in (
        (["demo", "--out", str(file)], f"out must be a folder; got the file {file}"),
        (["demo", "--out", str(file / "page")], f"out must be a folder; got {file / 'page'} in the file {file}"),
        (["train", "--dry-run", "--folder", str(file)], f"folder must be a folder; got the file {file}"),
        (["report", "--results", str(file)], f"results must be a folder of results; got {file}"),
        (["report", "--results", str(folder), "--out", str(folder)], f"out must be a file; got the folder {folder}"),
        (["reproduce", "--pack", str(file)], f"pack must be a folder; got the file {file}"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stderr == f"algoformer: {message}\n"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # who runs the tests may write everywhere
    result = run("reproduce", "fu2024_rates", "--preset", "smoke", "--out", str(folder / "new"))
    assert result.exit_code == 2
    assert (
        result.stderr == f"algoformer: out must be a folder that can be written to; got {folder / 'new'} in {folder}\n"
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "algoformer", "demo", "--json", "--out", str(out)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # the tests run one process a core
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=alone)
    return out, json.loads(result.stdout)


def test_the_demo_races_builds_trains_and_computes(demo):
    _, numbers = demo
    race = {row["steps to"]: row for row in numbers["race"]}
    assert int(race["Newton, from I"]["1e-6, isotropic"]) < int(race["conjugate gradients"]["1e-6, isotropic"])
    assert race["gradient descent"]["1e-6, isotropic"].startswith(">")
    errors = {row["error with"]: row for row in numbers["context"]}
    assert errors["ridge (Bayes)"]["20"] == min(row["20"] for row in errors.values())
    assert all(row["float64"] < 1e-8 for row in numbers["built"])
    for layer in numbers["trained"]:
        assert layer["step size learned"] == pytest.approx(layer["exact step size"], rel=0.1)
        assert layer["distance from a multiple of I"] < 0.1
    shipped = {row["loops"]: row for row in numbers["shipped"]}
    told = [shipped[t]["gradient descent (likeness)"].split(" (")[0] for t in (2, 5, 10, 20)]
    steps = [int(words.removeprefix("≥").replace(",", "")) for words in told]
    assert all(later >= 2 * sooner for sooner, later in itertools.pairwise(steps))  # they grow like a power
    loops = {row["loops or steps"]: {k: float(v) for k, v in row.items()} for row in numbers["represented"]}
    mine, other = "the trained transformer", "conjugate gradients on phi(x)"
    assert all(loops[t][mine] < loops[t][other] for t in (1, 2, 5, 10)) and loops[20][mine] > loops[20][other]
    for row in numbers["exact"]:
        assert row["looped, sampled"] == pytest.approx(row["looped"], rel=0.15)
    assert numbers["provenance"]["versions"]["torch"]


def test_the_page_of_the_demo_asks_for_nothing_from_outside(demo):
    html = (demo[0] / "index.html").read_text()
    links = re.findall(r'(?:src|href)="([^"#][^"]*)"', html) + re.findall(r"url\(([^)#][^)]*)\)", html)
    assert not [link for link in links if not link.startswith("data:")]
    assert html.count("<svg") == html.count("<figure")
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("width", [60, 80])
def test_no_column_of_a_table_is_lost(monkeypatch, capsys, width):
    name, row = "gatmiry.theorem-3.2-scalar", ["gatmiry.theorem-3.2-scalar", "several words of a statement", "fails"]
    lines = printed(
        monkeypatch, capsys, width, ["claim", "what", "verdict", "on record"], [*row, "holds where checked"]
    )
    told = " ".join(word for line in lines[2:] for word in line.split())
    assert all(word in told for word in (name, "fails", "holds", "where", "checked"))


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_nothing_of_a_table_is_cut(monkeypatch, capsys, width):
    columns = [
        "loops",
        "Newton (likeness)",
        "gradient descent (likeness)",
        "conjugate gradients (likeness)",
        "most like",
    ]
    row = ["20", "24 (0.996)", "≥4,096 (0.996)", "20 (0.995)", "gradient descent"]
    lines = printed(monkeypatch, capsys, width, columns, row)
    letters = Counter("".join(columns + row).replace(" ", ""))
    assert Counter("".join(lines[1:]).replace(" ", "").replace("─", "").replace(":", "")) == letters
    if width >= 80:
        assert "≥4,096 (0.996)" in lines[-2] and "(likeness)" in lines[-4]


@pytest.mark.parametrize("width", [30, 40])
def test_a_row_that_fits_no_table_is_a_list_of_its_cells(monkeypatch, capsys, width):
    columns = ["experiment", "seed", "outcome", ""]
    lines = printed(monkeypatch, capsys, width, columns, ["fu2024_rates", 0, "kept", "it is in runs already"])
    assert [line.strip() for line in lines if line.strip()] == [
        "Claims",
        "experiment: fu2024_rates",
        "seed: 0",
        "outcome: kept",
        "it is in runs already",
    ]
    words = "steps grow like kappa: exponent within 0.1 of 1"
    lines = printed(monkeypatch, capsys, width, ["experiment", "claim"], ["gatmiry2024_fig3_shared", words])
    assert set(words.split()) <= set(" ".join(lines).split())


def printed(monkeypatch, capsys, width, columns, row):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table("Claims", columns, [row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    return lines


def test_a_report_of_a_folder_without_results_is_refused_and_says_where_there_are_some(tmp_path):
    assert (
        run("reproduce", "fu2024_rates", "--preset", "smoke", "--seeds", "1", "--out", str(tmp_path / "mine")).exit_code
        == 0
    )
    page = tmp_path / "page.md"
    page.write_text("kept")
    result = run("report", "--results", str(tmp_path), "--out", str(tmp_path / "x.html"), "--docs", str(page))
    assert result.exit_code == 2 and f"has none; there are some in {tmp_path / 'mine'}" in " ".join(
        result.stderr.split()
    )
    assert page.read_text() == "kept" and not (tmp_path / "x.html").exists()


def test_claims_of_ours_are_told_as_ours(tmp_path):
    run("reproduce", "fu2024_rates", "--preset", "smoke", "--seeds", "1", "--out", str(tmp_path))
    told = " ".join(run("report", "--results", str(tmp_path), "--out", str(tmp_path / "x.html")).stdout.split())
    assert "ours: started from a multiple of I" in told and "fu2024_rates gradient descent's steps" in told


def test_claims_are_verified_by_name():
    for arguments in (["fu.rates"], ["--claim", "fu.rates"]):
        assert run("verify", *arguments).stdout.startswith("fu.rates: holds")


def test_a_refused_reproduction_leaves_no_folder(tmp_path):
    assert run("reproduce", "nope", "--out", str(tmp_path / "out")).exit_code == 2
    assert not (tmp_path / "out").exists()


def test_docs_are_written_over_a_page_alone(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    result = run("report", "--results", str(tmp_path), "--out", str(tmp_path / "index.html"), "--docs", str(notes))
    assert result.exit_code == 2 and "docs must be a page whose name ends in .md" in result.stderr
    assert notes.read_text() == "mine" and not (tmp_path / "index.html").exists()


def test_a_shipped_translator_is_asked_as_it_was_shipped(monkeypatch):
    def altered(name):
        raise ValueError(f"{name} must be as it was shipped; its checksum differs")

    monkeypatch.setattr(zoo, "pretrained", altered)
    for command in (["evaluate", "numbers-de-en", "--prompts", "2"], ["translate", "numbers-de-en", "eins"]):
        result = run(*command)
        assert result.exit_code == 2 and "its checksum differs" in result.stderr


def test_curves_go_into_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = run("train", "--preset", "gatmiry", "--tensorboard", str(tmp_path / "file"))
    assert result.exit_code == 2 and "tensorboard must be a folder" in result.stderr


def test_of_several_processes_the_first_alone_prints(monkeypatch):
    for rank, lines in (("1", 0), ("0", 1)):
        monkeypatch.setattr(training, "processes", lambda device: contextlib.nullcontext("cpu"))
        monkeypatch.setenv("RANK", rank)
        fields = ["--train.steps", "1", "--train.batch", "2", "--task.n", "2", "--task.d", "2", "--model.features", "2"]
        result = run("train", "--preset", "gatmiry", *fields)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.count("after 1 steps") == lines
        assert result.stderr.count("not kept without --folder") == lines
