"""The page of translations: what it says of the runs in results/translation, and of those that are not there yet."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from algoformer.bench.translation import TRIALS, keep, results
from algoformer.report.docs import write
from algoformer.report.translation import NAMES, TEXTS, curves, figures, markdown, order

ROOT = Path(__file__).parent.parent
HOME = ROOT / "results" / "translation"
FOUND = results(HOME)


def run(seed, values, flops=10, name="multi30k_de_en-looped-5e-05", **changes):
    """A run with this course, a look every 100 steps."""
    r = copy.deepcopy(FOUND["multi30k_de_en-looped-5e-05-0"])
    curve = [[100 * (i + 1), v] for i, v in enumerate(values)]
    best = min(curve, key=lambda look: look[1])
    about = {"name": f"{name}-{seed}", "seed": seed, "steps": curve[-1][0], "curve": curve, "flops": flops}
    return {**r, **about, "best_step": best[0], "entropy": best[1], **changes}


def test_the_page_of_translations_is_that_of_the_results():
    page = (ROOT / "docs" / "translation-results.md").read_text()
    assert page == markdown(HOME), "run: algoformer report --docs docs/results.md"
    for name, _ in figures(HOME):
        assert (ROOT / "docs" / "figures" / f"{name}.svg").exists() and f"figures/{name}.svg" in page


def test_result_files_are_small_hold_no_sentence_and_name_their_text():
    assert len(FOUND) >= 16
    for name, r in FOUND.items():
        assert r["name"] == name and r["config"]["task"]["data"] == r["text"] in TEXTS
        assert (HOME / f"{name}.json").stat().st_size < 5000
        strings = [part for part in json.dumps(r).split('"')[1::2] if " " in part]
        assert {*strings} <= {r["variant"], r["provenance"]["device"], "not installed"}, "a sentence?"


def test_the_table_shows_the_mean_over_seeds_and_their_range(tmp_path):
    page = markdown(HOME)
    some = [r for r in FOUND.values() if r["model"] == "standard" and r["lr"] == 5e-5 and r["text"] == "multi30k_de_en"]
    values = [r["entropy"] for r in some if not r["trial"]]
    row = next(line for line in page.splitlines() if line.startswith("| standard | 5e-05 |"))
    assert row.startswith(f"| standard | 5e-05 | {len(values)} |") and "| standard | 5e-05 | 11,558,400 |" in page
    assert f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})" in row


def test_two_models_are_compared_seed_by_seed_after_as_many_steps_and_with_as_many_operations():
    low, high = [3.0, 2.0, 1.9, 1.8], [3.1, 2.2, 2.1, 2.3]
    one = {s: run(s, np.add(low, 0.01 * s).tolist(), flops=10) for s in range(3)}
    two = {s: run(s, np.add(high, 0.02 * s).tolist(), flops=20) for s in (0, 1, 2, 7)}
    by_steps, by_operations = order(one, two, 0.5)
    apart = [one[s]["curve"][1][1] - two[s]["curve"][1][1] for s in range(3)]
    assert by_steps.measured == pytest.approx(apart)
    wanted = ttest_1samp(apart, 0).confidence_interval(0.95)
    assert by_steps.interval == pytest.approx((wanted.low, wanted.high)) and by_steps.label == "holds"
    assert by_operations.measured == pytest.approx([low[1] - high[0] - 0.01 * s for s in range(3)])
    (chosen,) = order(one, two, None)
    assert chosen.measured == pytest.approx([1.8 - 2.1 - 0.01 * s for s in range(3)])
    assert order(two, one, 1.0)[0].label == "fails"
    noise = {s: run(s, [1.8, 1.8, 1.8, 1.8 + (s - 1) * 0.1]) for s in range(3)}
    assert order(noise, one, 1.0)[0].label == "fails: not separated"
    assert order({0: one[0]}, two, 1.0)[0].label == "one run each: held"


def test_what_is_not_run_yet_says_so_and_appears_when_its_files_arrive(tmp_path):
    empty = markdown(tmp_path / "none")
    commands = ("pilots seeds", "recipes ours", "europarl", "recipes tatoeba")
    for plans in commands:
        assert f"Not run yet: `python -m algoformer.bench.translation {plans} --data my/corpora`" in empty
    for r in FOUND.values():
        if r["text"] == "multi30k_de_en" and not r["trial"]:
            keep(r, tmp_path)
            if r["lr"] in (5e-5, 3e-4) and r["seed"] == 0:
                keep({**r, "text": "europarl_de_en", "name": r["name"].replace("multi30k", "europarl")}, tmp_path)
    late = tmp_path / "europarl_de_en-looped-0.0003-0.json"
    words = late.read_bytes()
    late.unlink()
    assert "With each model's best learning rate not all is run yet" in markdown(tmp_path)
    late.write_bytes(words)
    best = FOUND["multi30k_de_en-algoformer-0.0003-0"]
    for name in list(TRIALS)[:-1]:
        keep({**best, "name": f"ours-{name}-0", "trial": name}, tmp_path)
    assert "Trials that are not run yet: `python -m algoformer.bench.translation again" in markdown(tmp_path)
    before = markdown(tmp_path)
    keep({**best, "name": "trial-algoformer", "lr": 0.7, "steps": 300}, tmp_path)  # a minute to see that all works
    assert markdown(tmp_path) == before
    last = list(TRIALS)[-1]
    scores = {**best["scores"], "valid_greedy": [99.0, 1.0, 0.0]}
    keep({**best, "name": f"ours-{last}-0", "trial": last, "scores": scores}, tmp_path)
    keep({**best, "name": f"ours-{last}-standard-0", "trial": last, "model": "standard"}, tmp_path)
    keep({**best, "name": "tatoeba_de_en-ours-0", "text": "tatoeba_de_en", "trial": last}, tmp_path)
    page = markdown(tmp_path)
    assert "ot run yet" not in page and "### Europarl, each model's best learning rate" in page
    below = best["scores"]["test_beam"][0]
    assert f"By `{last}` AlgoFormer has a BLEU of {below:.1f}, 0.0 above the standard transformer." in page
    assert f"| AlgoFormer, {last} |" in page and f"| standard, {last} |" in page and f"by the trial `{last}`" in page
    paper, as_found = (text.split("## Multi30k by our recipe")[0] for text in (page, markdown(HOME)))
    assert paper.count("AlgoFormer | 0.0003") == as_found.count("AlgoFormer | 0.0003")  # our recipe is not among these
    assert [name for name, _ in figures(tmp_path)] == ["translation-multi30k", "translation-europarl"]


def test_the_figure_has_a_line_for_every_run():
    rates = dict.fromkeys(NAMES, 5e-5)
    fig = curves(FOUND, "multi30k_de_en", [("one", rates)])
    runs = [r for r in FOUND.values() if r["lr"] == 5e-5 and not r["trial"] and r["text"] == "multi30k_de_en"]
    steps, operations = fig.axes
    assert len(steps.lines) == len(operations.lines) == len(runs)
    drawn = sorted(tuple(line.get_ydata()) for line in steps.lines)
    assert drawn == sorted(tuple(v for _, v in r["curve"]) for r in runs)


@pytest.mark.slow
def test_both_pages_are_written_by_one_command_and_always_alike(tmp_path):
    for name in ("one", "two"):
        write(ROOT / "results", tmp_path / name / "results.md")
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()} for name in ("one", "two")
    )
    assert one == two and {"results.md", "translation-results.md", "translation-multi30k.svg"} <= one.keys()
