"""The report of results: what it says, what it leaves out, and how it behaves in a real browser."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from algoformer.experiments import EXPERIMENTS, Claim, Knob, judge, load, reproduce
from algoformer.experiments.reasons import REMARKS
from algoformer.report import Report, build, markdown
from algoformer.report.docs import ledger
from algoformer.report.knobs import slider
from algoformer.report.results import measured, shown
from algoformer.report.speed import RECORD, parts, step

ROOT = Path(__file__).parent.parent
BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
NAMES = ["fu2024_rates", "fu2024_fig26", "gatmiry2024_fig3"]
PROBE = """<script>
window.failures = [];
window.addEventListener('error', e => window.failures.push(String(e.message)));
window.addEventListener('load', () => {
  const boxes = [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect());
  const knob = document.querySelector('.knob'), input = knob.querySelector('input');
  const drawn = () => knob.querySelector('svg').innerHTML, shown = () => knob.querySelector('output').textContent;
  const before = drawn(), first = shown();
  input.value = input.max; input.dispatchEvent(new Event('input'));
  document.title = JSON.stringify({
    seen: boxes.length > 3 && boxes.every(b => b.width > 200 && b.height > 100), failures: window.failures,
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    moved: before !== drawn() && first !== shown(),
    lines: knob.querySelectorAll('path').length, broken: drawn().includes('NaN'),
    requests: performance.getEntriesByType('resource').length, ink: getComputedStyle(document.body).color,
    links: [...document.querySelectorAll('a[href^="#"]')].every(a => document.getElementById(a.hash.slice(1))),
  });
});
</script>"""


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("results")
    assert reproduce(NAMES, preset="smoke", seeds=3, out=out).ok
    return out


def test_the_page_shows_every_claim_with_its_verdict_and_scale(results, tmp_path):
    found = build(results, tmp_path / "deep" / "index.html")
    html = found.page.read_text()
    assert found.ok and [s.name for s in found.shown] == [n for n in EXPERIMENTS if n in NAMES]
    assert "smoke, 3 runs" in html
    for row in found.rows:
        assert row["claim"].split("|")[0].replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#x27;") in html
    verdicts = {row["claim"]: row["verdict"] for row in found.rows}
    assert verdicts["Newton's steps grow like log kappa: a doubling of kappa costs at most 2.3 steps"] == "holds"
    assert "not tested at this scale" in verdicts.values()  # what is not exact, in a smoke run
    assert len(re.findall("<td class=c>", html)) == 2 * len(found.rows) + len(EXPERIMENTS) - len(NAMES)
    assert json.loads(json.dumps(found.rows))


def test_the_page_asks_nothing_of_the_outside(results, tmp_path):
    html = build(results, tmp_path / "index.html").page.read_text()
    outside = set(re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', html))
    assert not outside
    assert "@import" not in html and "fetch(" not in html


def test_settings_and_origin_stand_beside_a_figure(results, tmp_path):
    html = build(results, tmp_path / "index.html").page.read_text()
    assert "ours, at this scale" in html and "<td>stated</td>" in html
    assert "algoformer reproduce fu2024_rates --preset smoke --seeds 3" in html
    assert "revision 1" in html


def test_the_command_beside_a_figure_asks_for_the_seeds_that_it_shows(results, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(results, copy)
    (first,) = (f for f in (copy / "fu2024_rates").glob("*.json") if json.loads(f.read_text())["seed"] == 0)
    first.unlink()
    html = build(copy, tmp_path / "index.html").page.read_text()
    assert "Seeds 1, 2;" in html and "algoformer reproduce fu2024_rates --preset smoke --seeds 3" in html


def test_broken_files_and_other_revisions_are_named_and_left_out(results, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(results, copy)
    file = sorted((copy / "fu2024_rates").glob("*.json"))[0]
    file.write_text("{")
    monkeypatch.setattr(load("fu2024_fig26"), "REVISION", 99)
    found = build(copy, tmp_path / "index.html")
    html = found.page.read_text()
    assert list(found.broken) == [file] and not found.ok
    assert file.name in html and "the code has another" in html
    assert [s.name for s in found.shown] == ["gatmiry2024_fig3", "fu2024_rates"]
    assert len(found.shown[1].runs) == 2


def test_a_page_says_what_is_not_run_and_is_not_made_of_nothing(results, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(results / "fu2024_rates", copy / "fu2024_rates")
    found = build(copy, tmp_path / "index.html")
    assert found.ok and {row["experiment"] for row in found.rows} == {"fu2024_rates"}
    assert found.page.read_text().count("○ not run<") == len(EXPERIMENTS) - 1
    (tmp_path / "empty").mkdir()
    for wrong, said in (
        (tmp_path / "none", "results must be a folder of results; got "),
        (found.page, "results must be a folder of results; got "),
        (tmp_path / "empty", "results must be a folder with results of `algoformer reproduce`; .*empty has none$"),
        (tmp_path, "has none; there are some in .*copy"),
    ):
        with pytest.raises(ValueError, match=said):
            build(wrong, tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_the_largest_scale_is_shown(results, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(results, copy)
    assert reproduce(["fu2024_rates"], preset="cpu", seeds=1, out=copy).ok
    shown = {s.name: s for s in build(copy, tmp_path / "index.html").shown}
    assert shown["fu2024_rates"].scale == "cpu" and len(shown["fu2024_rates"].runs) == 1
    assert shown["gatmiry2024_fig3"].scale == "smoke"


def test_a_figure_of_models_that_are_only_read_is_at_the_scale_of_their_training(results, tmp_path):
    (found,) = (s for s in build(results, tmp_path / "index.html").shown if s.name == "gatmiry2024_fig3")
    assert not found.large and replace(found, scale="gpu").large
    runs = [replace(r, config=load("fu2024_fig2").CPU) for r in found.runs]
    assert replace(found, scale="cpu", runs=runs).large


def test_a_slider_survives_values_that_are_not_finite():
    lines = {"a </script> & b": [[float("nan"), 1.0], [float("inf"), 0.0]]}
    html = slider(Knob(label="t", values=[1, 2], x=[1, 2], lines=lines, xlabel="x", ylabel="y", log=True))
    assert html.count("</script>") == 1
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html).group(1))
    assert data["lines"] == [[[None, 1.0], [None, 0.0]]]
    assert 0 < data["low"] < data["high"]


def test_measured_values_show_their_spread():
    def judged(*values: float):
        claims = [Claim(text="a", source="b", measured=v, sense="<", bound=9.0) for v in values]
        return judge([[c] for c in claims])[0]

    assert measured(judged(1.0, 2.0, 3.0)) == "2 (1 to 3)"
    assert measured(judged(2.0, 2.0, 2.0001)) == "2"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")
@pytest.mark.parametrize(("width", "dark"), [(420, False), (1200, True)])
def test_the_page_works_in_a_browser(results, tmp_path, width, dark):
    page = build(results, tmp_path / "index.html").page
    page.write_text(page.read_text().replace("<head>", "<head>" + PROBE))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    if dark:
        flags.append("--blink-settings=preferredColorScheme=0")
    result = subprocess.run(
        [BROWSER, *flags, "--no-first-run", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}",
         f"--window-size={width},900", "--virtual-time-budget=3000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    title = result.stdout.split("<title>")[1].split("</title>")[0].replace("&quot;", '"')
    found = json.loads(title)
    assert found["failures"] == [] and found["requests"] == 0, title
    assert found["seen"] and found["moved"] and found["links"], title
    assert not found["wide"] and not found["broken"] and found["lines"] >= 2, title
    assert found["ink"] == ("rgb(230, 237, 243)" if dark else "rgb(27, 31, 36)"), title


def test_the_page_of_the_docs_is_that_of_the_results(tmp_path):
    large, _, broken = shown(ROOT / "results")
    found = Report(tmp_path, large, broken)
    assert found.ok and found.rows
    page = (ROOT / "docs" / "results.md").read_text()
    same = page == markdown(ROOT / "results") and (ROOT / "docs" / "runs.md").read_text() == ledger(ROOT / "results")
    assert same, "the pages must be those of results/: run algoformer report --docs docs/results.md"
    for row in found.rows:
        assert row["claim"].replace("|", "\\|") in page
    counts_and_lists([row["verdict"] for row in found.rows if row["source"] != "ours"], page)


def counts_and_lists(verdicts, page):
    """The page counts the claims of papers by verdict, and lists those that do not hold."""
    heads = "What agrees with the papers", "Where a claim does not hold"
    counted, listed = (page.split(f"## {head}\n")[1].split("\n## ")[0] for head in heads)
    cells = [line.split("|")[2:-1] for line in counted.splitlines() if line.startswith("| ")]
    holds, fails, held, not_held, untested = (sum(map(int, column)) for column in zip(*cells[1:], strict=True))
    labels = ("holds", "fails", "one run each: held", "one run each: did not hold", "not tested at this scale")
    wanted = [sum(verdict.startswith(label) for verdict in verdicts) for label in labels]
    assert [holds, fails, held, not_held, untested] == wanted
    assert fails + not_held == listed.count("\n| ") - 1


def test_what_stands_beside_figures_3_and_4_of_gao_et_al_is_in_the_results():
    kept = {s.name: [r.result for r in s.runs] for s in shown(ROOT / "results")[0]}
    (loops,), (sizes,) = kept["algoformer2024_fig3"], kept["algoformer2024_fig4"]
    lines = {tuple(pair): line for pair, line in zip(loops.pairs, loops.errors, strict=True)}
    after = [abs(line[-1] / line[t - 1] - 1) for (t, _), line in lines.items()]
    waves = max(abs(e / lines[10, 10][9] - 1) for e in lines[10, 10][9:])
    seeds = [
        r.curves["AlgoFormer"]["last"][r.curves["AlgoFormer"]["step"].index(30_000)]
        for r in kept["algoformer2024_fig2a"]
    ]
    text = REMARKS["algoformer2024_fig3"]
    assert max(after) < 0.013 and f"{waves:.0%}" == "5%" and "within 1.3 %" in text and "up to 5 %" in text
    assert f"is {lines[20, 15][4]:.3f} with dT = 15 and {lines[20, 5][4]:.3f} with dT = 5" in text
    assert f"lie {max(seeds) / min(seeds) - 1:.0%} apart".replace("%", " %") in text
    ratios = [ours / theirs for ours, theirs in zip(sizes.by_layers, sizes.standard, strict=False)]
    assert "AlgoFormer has {:.2f} and {:.2f} of the error".format(*ratios) in REMARKS["algoformer2024_fig4"]


def test_what_stands_beside_small_runs_is_in_the_results():
    kept = {s.name: [r.result for r in s.runs] for s in shown(ROOT / "results")[0]}
    text, small = REMARKS["algoformer2024_fig5"], kept["algoformer2024_fig5"]
    assert all(r.encoder for r in small)
    calm, loud = ([r.lines[noise]["AlgoFormer (20, 15)"][19] for r in small] for noise in ("noise 0", "noise 1"))
    assert f"stops at {min(calm):.4f} to {max(calm):.4f}" in text
    assert f"ends at {min(loud):.3f} to {max(loud):.3f}" in text
    solvers = small[0].lines["noise 1"]
    descent = solvers["gradient descent"]
    assert f"Newton's iteration ({solvers['Newton'][-1]:.3f})" in text
    assert f"gradient descent is after 30 steps ({descent[29]:.3f})" in text
    assert f"stops after {descent.index(min(descent)) + 1} steps has {min(descent):.3f}" in text
    assert f"ridge has {small[0].ridge['noise 1']:.3f}" in text
    models = [min(r.lines["noise 1"][name]) for r in small for name in solvers if name.startswith("AlgoFormer")]
    assert min(descent) < min(models)
    text, beyond = REMARKS["ours_beyond"], kept["ours_beyond"]
    pages = " ".join((ROOT / "docs" / "models.md").read_text().split())
    for kind in ("with injection", "equation 2"):
        rows = [row for r in beyond for row in r.lines[kind]]
        first, last, grown = (
            [f(row) for row in rows] for f in (lambda v: v[9], lambda v: v[-1], lambda v: v[-1] / v[9])
        )
        for errors in (first, last):
            told = f"{min(errors):.2g} to {max(errors):.2g}"
            assert told in text and told in pages, (kind, told)
        assert (
            f"({min(grown):,.{0 if max(grown) > 100 else 1}f} to {max(grown):,.{0 if max(grown) > 100 else 1}f} times"
            in text
        )
        less = [r.lines[kind][1][-1] / r.lines[kind][1][9] < r.lines[kind][0][-1] / r.lines[kind][0][9] for r in beyond]
        assert sum(less) == 2 and "less in two of three seeds" in text


def test_the_picture_of_a_step_adds_up_to_the_step():
    record = ROOT / RECORD
    found = json.loads(record.read_bytes())
    spent = parts(found["profile"]["kernels"])
    assert sum(spent.values()) == pytest.approx(sum(row[1] for row in found["profile"]["kernels"]) / 1000)
    assert min(spent.values()) > 0 and sum(spent.values()) < found["d_ours"]["ms"]
    left, right = step(record).axes
    assert [bar.get_width() for bar in left.patches][1] == found["summary"]["d_ours_ms"]
    assert sum(bar.get_width() for bar in right.patches) == pytest.approx(found["d_ours"]["ms"])
