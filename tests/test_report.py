"""The pages in a real browser; without one these tests are skipped."""

import shutil
import subprocess
from pathlib import Path

import pytest

from algoformer.report import Section, figure, page, table
from algoformer.report.page import axes, legend, show

BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
PROBE = """<script>
window.onload = () => {
  const box = document.querySelector('svg').getBoundingClientRect();
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  document.title = JSON.stringify({seen: box.width > 200 && box.height > 100, wide: wide, failed: !!window.failed,
    lines: document.querySelectorAll('svg path').length, requests: performance.getEntriesByType('resource').length});
};
window.onerror = () => { window.failed = true };
</script>"""


def small_page() -> str:
    fig, (ax,) = axes()
    ax.plot([1, 2, 3], label="a line")
    legend(fig, ax)
    sections = [
        Section(
            "One & two", "Text with `code` and <b>", [figure(fig, "A caption"), table(["a", "b"], [["x", 0.12345]])]
        )
    ]
    return page("A page", "A lead", sections, "The end")


def test_text_is_escaped_and_code_is_marked():
    html = small_page()
    assert "One &amp; two" in html
    assert "<code>code</code> and &lt;b&gt;" in html
    assert "<td class=n>0.123</td>" in html


@pytest.mark.parametrize(("value", "text"), [(True, "yes"), (0.00012345, "0.000123"), (12, "12"), ("x", "x")])
def test_values_are_shown_as_a_person_reads_them(value, text):
    assert show(value) == text


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")
@pytest.mark.parametrize("width", [420, 1200])
def test_a_page_loads_in_a_browser_with_its_plot_visible(tmp_path: Path, width: int):
    target = tmp_path / "page.html"
    target.write_text(small_page().replace("</head>", PROBE + "</head>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    result = subprocess.run(
        [BROWSER, *flags, "--no-first-run", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}",
         f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom", target.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    title = result.stdout.split("<title>")[1].split("</title>")[0].replace("&quot;", '"')
    assert '"seen":true' in title, title
    assert '"failed":false' in title, title
    assert '"wide":false' in title, title
    assert '"requests":0' in title, title
