"""The code blocks of the README and the docs run, each page from top to bottom in one namespace."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str, str | None]]:
    """Where each block of code begins, the code, and what the page says that it prints."""
    text = page.read_text()
    return [(text[: found.start(1)].count("\n"), found.group(1), found.group(2)) for found in FENCE.finditer(text)]


def same(word: str, said: str) -> bool:
    """The same word or count, or two fractions as near as machines make them."""
    try:
        return word == said or ("." in said and float(word) == pytest.approx(float(said), rel=0.05, abs=1e-4))
    except ValueError:
        return False


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where pickle looks for what the page defines
    for line, code, said in blocks(page):
        capsys.readouterr()
        exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), module.__dict__)
        if said is not None:
            printed = capsys.readouterr().out
            found, wanted = printed.split(), said.split()
            assert len(found) == len(wanted) and all(map(same, found, wanted)), printed


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    missing = [page.name for page in PAGES[1:] if f" {page.name}\n" not in navigation]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", prose)
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_every_picture_is_shown_on_a_page():
    shown = "".join(page.read_text() for page in PAGES)
    pictures = [p for folder in ("figures", "images") for p in (ROOT / "docs" / folder).iterdir()]
    assert not [p.name for p in pictures if f"{p.parent.name}/{p.name})" not in shown]


def test_pages_quote_the_distance_of_the_fast_path_from_its_record():
    record = json.loads((ROOT / "benchmarks" / "train-h200-curve.json").read_bytes())
    full, half = record["equality_fp32"], record["equality_bf16"]
    assert full["loss"] == 0
    for name in ("training.md", "performance.md"):
        text = " ".join((ROOT / "docs" / name).read_text().split())
        assert f"gradients are {full['gradient']:.1e} apart".replace("e-0", "e-") in text
        assert f"in bf16 they are {half['gradient']:.1e} apart".replace("e-0", "e-") in text
        assert "`benchmarks/train-h200-curve.json`" in text


def test_the_page_of_performance_quotes_the_curves_of_the_fast_path_from_their_record():
    curves = json.loads((ROOT / "benchmarks" / "train-h200-curve.json").read_bytes())["curve"]
    fast, plain = np.array([curves[f"fast {seed}"] for seed in range(3)]), np.array(curves["plain 0"])
    off = 100 * abs(fast[0] / plain - 1)
    apart = 100 * np.ptp(fast, axis=0) / fast.mean(0)
    text = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    assert f"never more than {off.max():.1f} % from that of the plain path" in text
    assert f"and {off[-1]:.1f} % at the end; three seeds lay up to {apart.max():.0f} % of their mean apart" in text
    assert f"on the way and {apart[-1]:.0f} % at the end" in text
