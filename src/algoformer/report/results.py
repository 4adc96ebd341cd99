"""The report: one page from the result files, with an overview of every claim and each figure beside its claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algoformer.experiments.experiment import (
    OTHER,
    PRESETS,
    Experiment,
    Judgement,
    Verdict,
    judge,
    scale,
    settings,
    title,
)
from algoformer.experiments.registry import EXPERIMENTS, load
from algoformer.experiments.store import Record, Store
from algoformer.files import file_at, replace_file
from algoformer.report.knobs import HEAD, slider
from algoformer.report.page import Section, figure, page, show, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """<style>
body { max-width: 70rem } td.c { min-width: 15rem }
td.m { min-width: 9rem; text-align: right; font-variant-numeric: tabular-nums }
.badge { display: inline-block; padding: 0 .5em; border-radius: .8em; border: 1px solid;
  font-size: .85rem }
.holds { color: #00785a } .fails { color: #c04a00 } .untested, .one { color: var(--soft) }
@media (prefers-color-scheme: dark) { .holds { color: #3fc9a3 } .fails { color: #ff9b5e } }
details { margin: .8rem 0 } summary { cursor: pointer; color: var(--soft) } a { color: inherit }
.origin { color: var(--soft); font-size: .85rem }
@media (max-width: 44rem) {
  .claims, .claims tbody, .claims tr, .claims td { display: block; min-width: 0; text-align: left; border: 0 }
  .claims thead { display: none } .claims tr { border-bottom: 1px solid var(--line); padding: .6rem 0 }
  .claims td { padding: .05rem 0; white-space: normal } .claims td:empty { display: none }
  .claims td[data-of]::before { content: attr(data-of) ": "; color: var(--soft) } }
</style>"""

MARKS = {
    Verdict.HOLDS: ("holds", "✓"),
    Verdict.FAILS: ("fails", "✗"),
    Verdict.UNTESTED: ("untested", "○"),
    Verdict.ONE: ("one", "•"),
}
RANK = {name: i for i, name in enumerate(("smoke", "other", "cpu", "gpu", "paper"))}


@dataclass(frozen=True)
class Shown:
    """An experiment at its largest scale: its runs, seed by seed, and what its claims came to."""

    name: str
    scale: str
    runs: list[Record]
    judgements: list[Judgement]

    @property
    def large(self) -> bool:
        """Is it about models at the papers' scale, trained for it or kept from another experiment?"""
        return self.scale in ("gpu", "paper") or not getattr(self.runs[0].config, "train", True)

    @property
    def told(self) -> str:
        """Its scale, and whether its models were trained at a larger one."""
        return f"{self.scale}, kept models" if self.large and self.scale == "cpu" else self.scale


@dataclass(frozen=True)
class Report:
    """Where the page is, what it shows, and the files that could not be read."""

    page: Path
    shown: list[Shown]
    broken: dict[Path, str]

    @property
    def ok(self) -> bool:
        """Could every file be read?"""
        return not self.broken

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The overview as plain values."""
        return [
            {
                "experiment": s.name, "source": j.source, "claim": j.text, "measured": list(j.measured),
                "bound": f"{j.sense} {j.bound:g}", "margin": j.margin, "verdict": j.label, "scale": s.scale,
                "seeds": len(s.runs),
            }
            for s in self.shown for j in s.judgements
        ]  # fmt: skip


def shown(results: str | Path) -> tuple[list[Shown], list[Record], dict[Path, str]]:
    """Every experiment at its largest scale, records of another revision, and broken files."""
    if not Path(results).is_dir():
        raise ValueError(f"results must be a folder of results; got {results}")
    records, broken = Store(Path(results)).records()
    found = [largest for name in EXPERIMENTS if (largest := _largest(name, records)) is not None]
    return found, [r for r in records if not r.current], broken


def build(results: str | Path = "results", out: str | Path = "report/index.html") -> Report:
    """Write the page of a folder of results."""
    target = file_at("out", out)
    found, other, broken = shown(results)
    if not (found or other or broken):
        within = sorted({p.parent.parent for p in Path(results).glob("*/*/*.json") if p.parent.name in EXPERIMENTS})
        hint = f"; there are some in {', '.join(map(str, within))}" if within else ""
        raise ValueError(f"results must be a folder with results of `algoformer reproduce`; {results} has none{hint}")
    sections = [_overview(found), *(_section(s) for s in found)]
    if broken or other:
        sections.append(_left_out(broken, other))
    counts = {v: sum(j.verdict == v for s in found for j in s.judgements) for v in Verdict}
    words = {Verdict.HOLDS: "hold", Verdict.FAILS: "fail", Verdict.UNTESTED: "were not tested at this scale"}
    told = ", ".join(f"{count} {words.get(v, 'rest on too few runs')}" for v, count in counts.items() if count)
    what = "experiment" if len(found) == 1 else "experiments"
    lead = f"{sum(counts.values())} claims of {len(found)} {what}: {told}. A claim is an inequality that can fail."
    html = page(
        "The papers, reproduced", lead, sections, "Made by `algoformer report` from stored results.", head=STYLE + HEAD
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, html.encode())
    return Report(target, found, broken)


def _largest(name: str, records: Sequence[Record]) -> Shown | None:
    """The runs of the largest scale that there is; of configs that are no preset, those with most seeds."""
    experiment = load(name)
    mine = [r for r in records if r.experiment == name and r.current]
    groups: list[list[Record]] = []
    for r in mine:
        same = next((g for g in groups if g[0].config == r.config), None)
        if same is None:
            groups.append([r])
        else:
            same.append(r)
    if not groups:
        return None
    best = max(groups, key=lambda g: (RANK[scale(experiment, g[0].config)], len(g)))
    size = best[0].provenance.get("preset", "other")
    if size not in PRESETS or scale(experiment, best[0].config) == "other":
        size = scale(experiment, best[0].config)
    judged = judge([experiment.claims(r.result) for r in best], smoke=size == "smoke")
    return Shown(name, size, best, judged)


def _overview(shown: Sequence[Shown]) -> Section:
    columns = ("paper", "figure", "claim", "measured", "margin", "verdict", "scale")
    head = "".join(f"<th{' class=n' if c in ('measured', 'margin') else ''}>{c}</th>" for c in columns)
    rows = []
    for s in shown:
        paper, source, _ = title(load(s.name))
        for j in s.judgements:
            link = f'<a href="#{s.name}">{escape(source)}</a>'
            rows.append(
                f"<tr><td>{escape(paper)}</td><td>{link}</td><td class=c>{escape(words(j))}</td>"
                f"<td class=m data-of=measured>{escape(measured(j))}</td>"
                f"<td class=n data-of=margin>{show(j.margin)}</td>"
                f"<td>{_badge(j)}</td><td>{escape(_scale(s))}</td></tr>"
            )
    missing = [name for name in EXPERIMENTS if name not in {s.name for s in shown}]
    for name in missing:
        paper, source, what = title(load(name))
        rows.append(
            f"<tr><td>{escape(paper)}</td><td>{escape(source)}</td><td class=c>{escape(what)}</td>"
            f'<td class=n></td><td class=n></td><td><span class="badge untested">○ not run</span></td><td></td></tr>'
        )
    body = _table(head, "".join(rows))
    return Section("Every claim", "The margin is how far a claim is from failing, in the worst of its runs.", [body])


def _section(s: Shown) -> Section:
    experiment = load(s.name)
    paper, source, what = title(experiment)
    first = s.runs[0]
    drawn, whose = picture(s)
    caption = f"{paper}, {source}: {what}{'' if what.endswith('?') else ';'} {_scale(s)}, {whose}."
    blocks = [figure(drawn, caption)]
    turn = getattr(experiment, "knob", None)
    if turn is not None:
        blocks.append(slider(turn(first.result)))
    blocks.append(_claims(s))
    if (more := numbers(s)) is not None:
        blocks.append(table(*more))
    rows = [[name, _value(value), origin] for name, value, origin in settings(first.config)]
    blocks.append(f"<details><summary>Settings</summary>{table(['setting', 'value', 'from'], rows)}</details>")
    blocks.append(_origin(s))
    end = "" if what.endswith("?") else "."
    return Section(f"{paper}, {source}", f"{what[:1].upper()}{what[1:]}{end} {_rest(experiment)}", blocks, s.name)


def _claims(s: Shown) -> str:
    columns = {"claim": "", "source": "", "measured": " class=n", "must be": " class=n", "verdict": ""}
    head = "".join(f"<th{kind}>{name}</th>" for name, kind in columns.items())
    rows = "".join(
        f"<tr><td class=c>{escape(j.text)}</td><td>{escape(j.source)}</td>"
        f"<td class=m data-of=measured>{escape(measured(j))}</td>"
        f'<td class=n data-of="must be">{escape(j.sense)} {j.bound:g}</td><td>{_badge(j)}</td></tr>'
        for j in s.judgements
    )
    return _table(head, rows)


def _table(head: str, rows: str) -> str:
    return f'<div class="scroll"><table class=claims><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def origin(s: Shown) -> tuple[str, str]:
    """Where the numbers of an experiment come from, and the command that makes them again."""
    about = [r.provenance for r in s.runs]
    commits = sorted({str(p.get("commit", "unknown")) for p in about})
    places = sorted({f"torch {p.get('versions', {}).get('torch', '?')} on {p.get('device', '?')}" for p in about})
    if s.large and all(str(p.get("device", "")).endswith("CPU") for p in about):
        places.append("from the kept answers of models that a GPU trained")
    seeds = ", ".join(str(r.seed) for r in s.runs)
    text = f"Seed{'s' * (len(s.runs) > 1)} {seeds}; commit {', '.join(commits)}; {', '.join(places)}"
    gpu = " --device cuda" if s.scale in ("gpu", "paper") else ""
    count = max(r.seed for r in s.runs) + 1
    return text, f"algoformer reproduce {s.name} --preset {s.scale} --seeds {count}{gpu}"


def _origin(s: Shown) -> str:
    seconds = sum(float(r.provenance.get("seconds", 0)) for r in s.runs)
    text, command = origin(s)
    text = (
        f"{text}; revision {s.runs[0].revision}; {seconds:.0f} s, without earlier parts of runs that went on. Again: "
    )
    return f'<p class="origin">{escape(text)}<code>{escape(command)}</code></p>'


def changed(config: Any) -> str:
    """The settings that are ours at this scale, with those they stand for: "steps 20,000 (100,000)"."""
    own = {f.name: f.default for f in dataclasses.fields(config) if f.name != "train"}
    pairs = [(name, value, own[name]) for name, value, source in settings(config) if source == OTHER and name in own]
    return ", ".join(f"{name} {_value(value)} ({_value(other)})" for name, value, other in pairs)


def _left_out(broken: dict[Path, str], other: Sequence[Record]) -> Section:
    rows = [[path.name, path.parent.name, f"broken: {why}"] for path, why in broken.items()]
    rows += [[r.file.name, r.experiment, f"revision {r.revision}, the code has another"] for r in other]
    return Section("Left out", "Result files that are not on this page.", [table(["file", "experiment", "why"], rows)])


def _badge(j: Judgement) -> str:
    kind, mark = MARKS[j.verdict]
    return f'<span class="badge {kind}">{mark} {escape(j.label)}</span>'


def words(j: Judgement) -> str:
    """A claim as a table has it, with whose it is where no paper makes it."""
    return f"{'ours: ' if j.source == 'ours' else ''}{j.text}"


def measured(j: Judgement) -> str:
    """What was measured, over all runs; of paired differences the interval of their mean."""
    if j.interval is not None:
        return f"{show(sum(j.measured) / len(j.measured))} (95 %: {show(j.interval[0])} to {show(j.interval[1])})"
    values = [v for v in j.measured if v == v]
    if len(values) < 2 or max(values) - min(values) <= 1e-3 * abs(max(values)):
        return show(float(j.measured[0]))
    return f"{show(sum(values) / len(values))} ({show(min(values))} to {show(max(values))})"


def _scale(s: Shown) -> str:
    runs = "1 run" if len(s.runs) == 1 else f"{len(s.runs)} runs"
    steps = scale_of(s.runs[0].config) if s.large else ""
    return ", ".join(part for part in (s.told, steps, runs) if part)


def numbers(s: Shown) -> tuple[list[str], list[list[str]]] | None:
    """The table of an experiment that has one: its columns, and its rows over all runs."""
    made = getattr(load(s.name), "numbers", None)
    return None if made is None else made([r.result for r in s.runs])


def picture(s: Shown) -> tuple[Figure, str]:
    """The figure of an experiment, and of which seeds: of all where it can draw them, else of the first."""
    experiment, first = load(s.name), s.runs[0]
    together = getattr(experiment, "plot_all", None)
    if together is None or len(s.runs) == 1:
        return experiment.plot(first.result), f"seed {first.seed}"
    return together([r.result for r in s.runs]), f"seeds {', '.join(str(r.seed) for r in s.runs)}"


def scale_of(config: Any) -> str:
    """The training steps of a config, as the title of its figure says them."""
    told = getattr(config, "told", None) or (f"{config.steps:,} steps" if hasattr(config, "steps") else "no training")
    return str(told)


def _value(value: Any) -> str:
    return ", ".join(map(show, value)) or "none" if isinstance(value, tuple) else show(value)


def _rest(experiment: Experiment) -> str:
    """The module's docstring after its first line."""
    return " ".join((experiment.__doc__ or "").strip().split("\n")[1:]).strip()
