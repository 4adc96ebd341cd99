"""The page of results in the docs: what was found, what agrees with the papers, every run, and what is not run yet."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from algoformer.experiments.comparison import Race, line
from algoformer.experiments.estimate import MEASURED, PEAK
from algoformer.experiments.experiment import Judgement, Verdict, title
from algoformer.experiments.ledger import FILE, Entry, entries
from algoformer.experiments.protocol import reached
from algoformer.experiments.reasons import REMARKS, reason
from algoformer.experiments.registry import load
from algoformer.experiments.tiers import plan
from algoformer.files import file_at, replace_file
from algoformer.models import AlgoFormerConfig, LoopedConfig, TransformerConfig
from algoformer.report import speed, translation
from algoformer.report.page import markdown_table as table
from algoformer.report.page import show
from algoformer.report.results import Shown, changed, measured, numbers, origin, picture, scale_of, shown, words

OURS = "AlgoFormer project"  # in the place of a paper: a claim of its own source is of another's
FAILED = str(Verdict.FAILS), f"{Verdict.ONE}: did not hold"
KINDS = str(Verdict.HOLDS), FAILED[0], f"{Verdict.ONE}: held", FAILED[1], str(Verdict.UNTESTED)
Told = tuple[str, Shown, Judgement]  # a claim with its paper
TARGETS = (0.1, 0.01, 0.001)  # of the excess over the oracle
COMMAND = "algoformer report --docs docs/results.md"
HEAD = f"""# Results

What the experiments of this package measured, beside what the papers say. This page is written by
`{COMMAND}` from the files in `results/`; a test holds it to them. [Experiments](experiments.md) says
what an experiment, a claim and a verdict are, and how models are compared; [every run](runs.md) that was started,
failed and abandoned ones included, has a page of its own. The commands below go on in `results/`, where what is
there is not run again; with `--out runs/mine` they begin anew and leave this page alone.
"""


def write(results: str | Path, page: str | Path) -> Path:
    """Write the page, those of runs and translations, and beside them a picture of every figure.

    Where records of benchmarks lie beside the docs, also that of a training step.
    """
    from matplotlib import rc_context

    target, found, texts = page_at(page), shown(results)[0], Path(results) / translation.FOLDER
    home = target.parent / "figures"
    home.mkdir(parents=True, exist_ok=True)
    figures = [(s.name, picture(s)[0]) for s in found]
    if (record := target.parent.parent / speed.RECORD).exists():
        figures.append(("step", speed.step(record)))
    for name, fig in [*figures, *translation.figures(texts)]:
        with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):  # always the same file
            fig.savefig(home / f"{name}.svg", metadata={"Date": None})
    replace_file(target, markdown(results).encode())
    replace_file(target.parent / "runs.md", ledger(results).encode())
    replace_file(target.parent / "translation-results.md", translation.markdown(texts).encode())
    return target


def page_at(page: str | Path) -> Path:
    """Hold a path to that of a page in Markdown."""
    if Path(page).suffix != ".md":
        raise ValueError(f"docs must be a page whose name ends in .md; got {page}")
    return file_at("docs", page)


def markdown(results: str | Path) -> str:
    """The text of the page."""
    found = shown(results)[0]
    claims, runs = list(_told(found)), entries(Path(results) / FILE)
    parts = [
        HEAD,
        *_agreement(claims),
        *_disagreement(claims),
        *_scale(found),
        *_small(found),
        *_speed(found, runs),
        *_plan(results),
    ]
    return "\n".join(parts).rstrip() + "\n"


def ledger(results: str | Path) -> str:
    """The text of the page of runs."""
    return "\n".join(_ledger(entries(Path(results) / FILE))).rstrip() + "\n"


def _scale(found: Sequence[Shown]) -> Iterable[str]:
    yield "## The papers' models on one GPU\n"
    yield (
        "The papers' data, batch size and models, except that AlgoFormer has its input injected in every loop "
        '("AlgoFormer + injection", which is [no reproduction of equation 2](models.md#algoformer-exactly); in '
        "`ours_stuck` models of equation 2 come nearer to the oracle than it does in all 8 seeds at 10,000 steps; "
        "longer runs are [not made yet](#not-run-yet)). Softmax models train with clipping at 1 and inputs added by "
        "the loss; AlgoFormer and looped transformer with a loss on the last 15 loops. Titles give the number of "
        "steps; other departures follow below.\n"
    )
    large = [s for s in found if s.large]
    if not large:
        yield (
            "Nothing yet: no experiment has a result of its `gpu` preset. "
            "What is to be run is listed [below](#not-run-yet).\n"
        )
    yield from _figures(large)


def _small(found: Sequence[Shown]) -> Iterable[str]:
    yield "## On two CPU cores\n"
    yield (
        "Presets of minutes: linear transformers, linear attention of a few layers, small encoders, solvers and "
        'theory. "ours" is a claim that no paper makes.\n'
    )
    yield from _figures([s for s in found if not s.large])


def _figures(found: Sequence[Shown]) -> Iterable[str]:
    for s in found:
        paper, figure, what = title(load(s.name))
        steps = f"{scale_of(s.runs[0].config)}, " if s.large else ""
        seeds = "1 seed" if len(s.runs) == 1 else f"{len(s.runs)} seeds"
        yield f"### {paper}, {figure}: {steps}{seeds}\n"
        end = "" if what.endswith("?") else "."
        yield f"{what[:1].upper()}{what[1:]}{end} `{s.name}`, preset `{s.scale}`.\n"
        text, command = origin(s)
        yield f"{text}: `{command}`.\n"
        if more := changed(s.runs[0].config):
            yield f"Settings here (in brackets the paper's, its code's or, if both are silent, ours): {more}.\n"
        yield f"[![{what}](figures/{s.name}.svg)](figures/{s.name}.svg)\n"
        yield table(
            ("claim", "measured", "must be", "margin", "verdict"),
            ((words(j), measured(j), f"{j.sense} {j.bound:g}", show(j.margin), j.label) for j in s.judgements),
        )
        if (columns := numbers(s)) is not None:
            yield table(*columns)
        if s.name in REMARKS:
            yield f"{REMARKS[s.name]}\n"


def _agreement(claims: Sequence[Told]) -> Iterable[str]:
    yield "## What agrees with the papers\n"
    yield "Claims of the papers, ours left out; [which do not hold](#where-a-claim-does-not-hold), and why.\n"
    papers = dict.fromkeys(paper for paper, _, _ in claims)
    counts = Counter((paper, _kind(j)) for paper, _, j in claims)
    yield table(("paper", *KINDS), ((paper, *(str(counts[paper, kind]) for kind in KINDS)) for paper in papers))
    yield (
        "Verdicts on Gao et al. concern their architecture [with injection](#the-papers-models-on-one-gpu), not "
        "equation 2. Real text, Table 1 of Gao et al. 2024, is judged on [a page of its "
        "own](translation-results.md); so are [theorems](ledger.md).\n"
    )


def _disagreement(claims: Sequence[Told]) -> Iterable[str]:
    yield "## Where a claim does not hold\n"
    rows = [
        (_figure(s), j.text, measured(j), str(len(s.runs)), s.told, reason(s.name))
        for _, s, j in claims
        if _kind(j) in FAILED
    ]
    yield table(("figure", "claim", "measured", "seeds", "scale", "why"), rows) if rows else "Nowhere.\n"


def _told(found: Sequence[Shown]) -> Iterable[Told]:
    for s in found:
        paper = title(load(s.name))[0]
        for j in s.judgements:
            if j.source != "ours":
                yield j.source if paper == OURS else paper, s, j


def _kind(j: Judgement) -> str:
    return next(kind for kind in KINDS if j.label.startswith(kind))


def _speed(found: Sequence[Shown], runs: Sequence[Entry]) -> Iterable[str]:
    rows = [row for s in found if s.large and isinstance(s.runs[0].result, Race) for row in _speeds(s, runs)]
    if rows:
        yield "## How fast the runs were\n"
        yield (
            "Of each comparison: milliseconds a step including tests and checkpoints; the share that matrix products "
            "alone would take (of the floor); and, median over seeds, the minutes until the excess (error - oracle) / "
            "(zero - oracle) at the last position fell to the value of the heading.\n"
        )
        heads = (f"minutes to {target:g}" for target in TARGETS)
        yield table(("experiment", "model", "device", "ms a step", "of the floor", *heads), rows)


def _speeds(s: Shown, runs: Sequence[Entry]) -> Iterable[tuple[str, ...]]:
    results = [r.result for r in s.runs]
    ours = (e for e in runs if e.experiment == s.name and e.preset == s.scale)
    told = [e for e in ours if e.key and e.steps > e.begun and e.at_once == 1]
    for name, flops in results[0].flops.items():
        mine = [e for e in told if e.purpose.startswith(f"{name}: ")]
        if not mine:
            continue
        ms = 60e3 * sum(e.minutes for e in mine) / sum(e.steps - e.begun for e in mine)
        peak = PEAK.get(mine[0].device)
        times = []
        for target in TARGETS:
            steps = statistics.median(reached(line(r, name), target) or math.inf for r in results)
            times.append(f"{steps * ms / 60e3:.1f}" if steps < math.inf else "never")
        share = f"{1000 * flops / peak / ms:.0%}" if peak else ""
        yield f"`{s.name}`", name, mine[0].device, f"{ms:.2f}", share, *times


def _ledger(runs: Sequence[Entry]) -> Iterable[str]:
    yield "# Every run that was started\n"
    if not runs:
        yield "The ledger, `results/runs.jsonl`, is empty: it began after the runs above, and none was started since.\n"
        return
    whole = sum(e.minutes for e in runs if not e.key)
    yield (
        f"From `results/runs.jsonl`: {len(runs)} entries, {whole:.0f} minutes of experiments, whose trainings stand "
        "under them. A run that was killed has begun and told no end. Minutes are those on the clock, also where "
        f"several runs shared a device. Written by `{COMMAND}`.\n"
    )
    yield table(
        ("begun", "experiment", "purpose", "outcome", "steps", "minutes", "preset", "seed", "device", "config"),
        (
            (e.at[:16].replace("T", " "), f"`{e.experiment}`", e.purpose, e.outcome, _steps(e), _minutes(e), e.preset,
             str(e.seed), e.device, f"`{e.key or e.config}`")
            for e in runs
        ),
    )  # fmt: skip


def _plan(results: str | Path) -> Iterable[str]:
    yield "## Not run yet\n"
    rows = plan(results)
    if not rows:
        yield "Every row of the plan has its results.\n"
        return
    ms = [f"{1000 * MEASURED[kind]:.2f}" for kind in (AlgoFormerConfig, LoopedConfig, TransformerConfig)]
    yield (
        f"Minutes are estimates for one H200, from {ms[0]} ms a step of AlgoFormer, {ms[1]} of the looped and {ms[2]} "
        "of the standard transformer, scaled by their matrix products, and by layers of linear attention. Pilots are "
        "counted, a training that several rows share only in the first, one whose errors are kept not at all. "
        "A command works nine minutes; give it again to continue.\n"
    )
    yield table(
        ("tier", "what", "runs missing", "GPU minutes", "command"),
        ((p.row.tier, p.row.what, str(p.missing), f"{p.minutes:.0f}", f"`{p.row.command}`") for p in rows),
    )
    yield f"In all about {sum(p.minutes for p in rows):.0f} GPU minutes, of which tiers A and B " + (
        f"{sum(p.minutes for p in rows if p.row.tier in 'AB'):.0f}.\n"
    )


def _figure(s: Shown) -> str:
    paper, figure, _ = title(load(s.name))
    return f"{paper}, {figure}"


def _minutes(e: Entry) -> str:
    told = "?" if e.outcome == "killed" else f"{e.minutes:.1f}"
    return told + (f", one of {e.at_once} at once" if e.at_once > 1 else "")


def _steps(e: Entry) -> str:
    first, last = f"{e.begun:,} to " if e.begun else "", "?" if e.outcome == "killed" else f"{e.steps:,}"
    return f"{first}{last} of {e.of:,}" if e.of else ""
