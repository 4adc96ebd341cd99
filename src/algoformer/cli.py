"""The command line. Modules load when their command runs, so that --help is quick."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from inspect import isabstract
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import algoformer
from algoformer.checks import known, one_of, whole
from algoformer.files import file_at, folder_at
from algoformer.terminal import console, print_json, print_path, print_table, progress
from algoformer.zoo import HOME, NAMES, TRANSLATORS


class _Commands(TyperGroup):
    """Commands in the order they are written; a user's error is one line and exit code 2, unless --debug."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `main` leaves quietly
            raise
        except KeyboardInterrupt as stop:  # a run that wrote its checkpoint says so
            print(f"algoformer: {str(stop) or 'interrupted'}", file=sys.stderr)
            raise typer.Exit(130) from stop
        except (ValueError, TypeError, ArithmeticError, OSError, ImportError, MemoryError, RuntimeError) as error:
            full = isinstance(error, MemoryError) or "memory" in str(error)
            if ctx.params.get("debug") or (isinstance(error, RuntimeError) and not full):
                raise
            print(f"algoformer: {_short(error)}", file=sys.stderr)
            raise typer.Exit(2) from error


def _short(error: Exception) -> str:
    """An error in one line; where memory was short, what libraries add to that is left out."""
    if isinstance(error, MemoryError | RuntimeError):
        return f"there must be more memory, or less asked at once; {(str(error) or 'it ran out').splitlines()[0]}"
    return str(error)


def _version(wanted: bool) -> None:
    if wanted:
        print(algoformer.__version__)
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    help="Transformers that run algorithms in context: build them, train them, dissect them, solve with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ..; a GPU if there is one.")]
Checkpoint = Annotated[
    str,
    typer.Argument(
        help="The folder of a run, of a checkpoint or of a saved model, or one of `algoformer list pretrained`."
    ),
]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Options before the command."""


@app.command(name="list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="tasks, shifts, solvers, constructions, presets, pretrained, claims or experiments; all if left out."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List what there is, each item with its formula or source."""
    kinds = {
        "tasks": _tasks,
        "shifts": _shifts,
        "solvers": _solvers,
        "constructions": _constructions,
        "presets": _presets,
        "pretrained": _pretrained,
        "claims": _claims,
        "experiments": _experiments,
    }
    if kind is not None:
        one_of("the kind", kind, list(kinds))
    found = {name: entries() for name, entries in kinds.items() if kind in (None, name)}
    if as_json:
        return print_json(found)
    for name, entries in found.items():
        print_table(name, ["name", "what it is"], [list(entry) for entry in entries.items()])


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="One of `algoformer list constructions`, or of `algoformer list pretrained`.")
    ],
    attention: Annotated[
        str | None, typer.Option(help="linear, relu or softmax: also print what compiling to it takes.")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="With softmax: the heads of a multiply-accumulate, 2 or 4; 2 if left out.")
    ] = None,
    masked: Annotated[
        bool | None, typer.Option(help="With linear: a mask on keys and 1/n, or bare; masked if left out.")
    ] = None,
) -> None:
    """Print a construction as a program, to compare with its theorem, or the card of a shipped model."""
    from algoformer import constructions
    from algoformer.constructions.catalogue import CATALOGUE

    if name in NAMES:
        for option, value in (("attention", attention), ("heads", heads), ("masked", masked)):
            if value is not None:
                raise ValueError(f"{option} must be left out for {name}, which was trained, not compiled; got {value}")
        return print((HOME / name / "README.md").read_text(encoding="utf-8").rstrip())
    found = CATALOGUE[known("a construction or a model that is shipped", name, [*CATALOGUE, *NAMES])]
    if attention is not None:
        one_of("attention", attention, ("linear", "relu", "softmax"))
    for option, value, kind in (("heads", heads, "softmax"), ("masked", masked, "linear")):
        if value is not None and attention != kind:
            raise ValueError(f"{option} must be left out without --attention {kind}; got {value}")
    options: Any = {"heads": heads or 2, "masked": masked is not False}
    listing = constructions.show(found.program(), attention, **options)  # type: ignore[arg-type]
    print(f"{found.source}\nclaimed: {found.claim}\n\n{listing}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    preset: Annotated[str, typer.Option(help="The recipe; see `algoformer list presets`.")] = "algoformer",
    folder: Annotated[Path | None, typer.Option(help="Log, checkpoints and model; the same folder resumes.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Text to translate: a folder of {train,valid,test}.{de,en}, plain or .gz.")
    ] = None,
    device: Device = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Also write curves for TensorBoard here.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what the run would be and what it would cost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model of the papers. Any field may follow: --model.loops 8 --train.window 8 --train.dims 5:20.

    A curriculum or a range of loops must end at the model's own number: --preset yang --model.loops 30 --train.loops
    15:30:2:500.
    """
    from dataclasses import asdict

    import torch

    from algoformer import training
    from algoformer.tasks import Parallel, Translation
    from algoformer.training.codec import model_of

    recipe = training.preset(preset)
    if data is not None:
        recipe = training.with_data(recipe, str(data))
    recipe = training.override(recipe, _fields(context.args))
    if isinstance(recipe.task, Translation):
        recipe.task.check()
    for name, place in (("folder", folder), ("tensorboard", tensorboard)):
        if place is not None:
            folder_at(name, place)
    training.device_named(device)
    if dry_run:
        return print_json(training.describe(recipe))
    first = not int(os.environ.get("RANK", "0"))  # of several processes, which speaks for all
    if folder is None and first:
        print("algoformer: the model is not kept without --folder", file=sys.stderr)
    if isinstance(recipe.task, Parallel) and first:
        print(f"algoformer: {recipe.task.account}", file=sys.stderr)
    with training.processes(device) as where, training.Bar(recipe.train.steps) as bar:
        writer = training.TensorBoard(tensorboard) if tensorboard is not None and first else None

        def tell(p: training.Progress) -> None:
            bar(p)
            if writer is not None:
                writer(p)

        model = model_of(recipe.model, torch.Generator().manual_seed(recipe.train.seed)).to(where)
        result = training.train(model, recipe.task, recipe.train, folder, progress=tell)
    if not first:
        return
    if as_json:
        return print_json(asdict(result))
    stuck = " It was not at full size by half of its steps: stuck." if result.stuck else ""
    console().print(
        f"{result.variant}: loss {result.loss:.4g} after {result.step} steps, {result.seconds:.0f} s.{stuck}"
    )
    if folder is not None:
        print_path("Log, checkpoints and model:", folder)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def evaluate(
    context: typer.Context,
    checkpoint: Checkpoint,
    task: Annotated[
        str | None, typer.Option(help="The task, see `algoformer list tasks`; the model's own if left out.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="For translators: a folder of {train,valid,test}.{de,en}, plain or .gz.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="How many fixed prompts.")] = 6400,
    steps: Annotated[
        str | None, typer.Option(help="After how many steps or loops: 5,10,20; the model's own number if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the prompts.")] = 0,
    split: Annotated[str | None, typer.Option(help="For translators: valid, test, ..; valid if left out.")] = None,
    beam: Annotated[
        int | None, typer.Option(help="For translators: the width of the beam; 1, greedy, if left out.")
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """The error of a model on fixed prompts, beside the oracle's. The fields of the task may follow: --task.n 80.

    A translator is scored on a split of its text, at most --prompts sentences: cross-entropy after each of --steps,
    BLEU, chrF and exact matches.
    """
    from dataclasses import asdict

    from algoformer import training, zoo
    from algoformer.tasks import Parallel

    whole("prompts", prompts, 1)
    own = _is_folder("model", checkpoint, NAMES)
    folder = Path(checkpoint) if own else HOME / checkpoint
    asked = _asked(folder, {} if own else zoo.about(checkpoint), task, data, _fields(context.args))
    text = training.Translator.is_in(folder)
    if text != isinstance(asked, Parallel):
        kinds = ("a translator", "text") if text else ("a model of numbers", "numbers")
        raise ValueError(f"{checkpoint} is {kinds[0]} and must be asked {kinds[1]}; got {type(asked).__name__}")
    where = training.device_named(device)
    if isinstance(asked, Parallel):
        width = 1 if beam is None else beam
        whole("beam", width, 1)
        translator = training.Translator.load(folder) if own else zoo.pretrained(checkpoint)
        return _evaluate_text(translator, asked, split or "valid", prompts, _numbers(steps), width, where, as_json)
    for option, value in (("split", split), ("beam", beam)):
        if value is not None:
            raise ValueError(f"{option} must be left out for a model of numbers; got {value}")
    model = training.load(folder).float() if own else zoo.pretrained(checkpoint)
    options: dict[str, Any] = {"prompts": prompts, "seed": seed, "device": where}
    found = training.evaluate(model.to(where), asked, steps=_numbers(steps), progress=progress(), **options)
    oracle = None if asked.oracle is None else training.evaluate(asked.oracle, asked, progress=progress(), **options)
    if as_json:
        return print_json({"model": asdict(found), "oracle": oracle and asdict(oracle)})
    rows = [
        [t, mean[-1] / found.zero, median[-1] / found.zero]
        for t, mean, median in zip(found.steps, found.mean, found.median, strict=True)
    ]
    title = f"{found.variant} on {prompts:,} prompts of {type(asked).__name__}"
    print_table(title, ["step", "error at the last position", "median"], rows)
    console().print("Errors are squared, over the zero predictor's.")
    if oracle is not None:
        console().print(f"The oracle's error: {oracle.last:.3g}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def dissect(
    context: typer.Context,
    checkpoint: Checkpoint,
    task: Annotated[
        str | None, typer.Option(help="The task, one of pairs (x, y); the model's own if left out.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="How many prompts; matches are chosen on half of them.")] = 128,
    steps: Annotated[
        str | None, typer.Option(help="After how many layers or loops: 5,10,20; after each if left out.")
    ] = None,
    first: Annotated[int, typer.Option(help="Count only answers from at least so many examples; 0 counts all.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of the prompts.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Also draw it here: a file .svg, .png or .pdf.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Which algorithm does a model run? The classic steps whose errors are most like those of each layer or loop.

    Every label of a prompt is predicted from the pairs before it, and likeness is the cosine of the errors (Fu et al.
    2024). The fields of the task may follow: --task.noise 0.1.
    """
    import torch

    from algoformer import analysis, training, zoo
    from algoformer.report.dissection import draw
    from algoformer.report.page import save
    from algoformer.tasks import Pairs

    whole("prompts", prompts, 4)
    if figure is not None:
        one_of("the figure's ending", file_at("figure", figure).suffix, (".svg", ".png", ".pdf"))
    own = _is_folder("model", checkpoint, [name for name in NAMES if name not in TRANSLATORS])
    folder = Path(checkpoint) if own else HOME / checkpoint
    asked = _asked(folder, {} if own else zoo.about(checkpoint), task, None, _fields(context.args))
    if not isinstance(asked, Pairs):
        raise ValueError(f"the task must be one of pairs (x, y); got {type(asked).__name__}")
    where = training.device_named(device)
    model = training.load(folder).float() if own else zoo.pretrained(checkpoint)
    sample = _dense(asked).sample(prompts, torch.Generator().manual_seed(seed))
    prompt, target = sample.prompt.to(device=where), sample.target.to(where)
    options: dict[str, Any] = {"steps": _numbers(steps), "first": first, "progress": progress()}
    found = analysis.dissect(model.to(where).eval(), prompt, target, **options)
    if figure is not None:
        save(draw(found, trained=model.steps), figure)
    last = found.error.tolist()
    if as_json:
        bands = {name: {k: v.tolist() for k, v in vars(m.similarity).items()} for name, m in found.matches.items()}
        matches = {
            name: {
                "step": [
                    step if like == like else None for step, like in zip(m.step, bands[name]["value"], strict=True)
                ],
                "algorithm": [str(a) for a in m.algorithm],
                "likeness": bands[name],
            }
            for name, m in found.matches.items()
        }
        named = [v.family for v in found.verdicts]
        return print_json({"steps": found.steps, "error": last, "matches": matches, "most_like": named})
    title = f"{model.variant} on {prompts:,} prompts of {type(asked).__name__}"
    rows = [[t, e, *row] for t, e, row in zip(found.steps, last, found.rows(), strict=True)]
    print_table(title, ["step", "error", *found.matches, "most like"], rows)
    console().print(
        "Errors are squared, at the last position, over the zero predictor's. Beside each step of the model stands the "
        "step of every algorithm whose errors are most like its (≥: the last that was tried), chosen on half of the "
        "prompts, and in brackets how alike they are on the others; zero answers 0. Newton's iteration starts at a "
        "multiple of X'X or, where I is written, of the identity: from there k steps are 2^k of gradient descent. One "
        "is named where its lead is more than chance."
    )
    if figure is not None:
        print_path("The figure:", figure)


@app.command()
def translate(
    checkpoint: Annotated[
        str,
        typer.Argument(help=f"The folder of a run or a translator, or one that is shipped: {', '.join(TRANSLATORS)}."),
    ],
    sentences: Annotated[
        list[str] | None, typer.Argument(help="What to translate; the lines of standard input if left out.")
    ] = None,
    beam: Annotated[int, typer.Option(help="The width of the beam; 1 is greedy.")] = 5,
    steps: Annotated[
        int | None, typer.Option(help="How many layers or loops; the model's own number if left out.")
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Translate sentences, or the lines of standard input: algoformer translate numbers-de-en "einundzwanzig"."""
    from algoformer import training, zoo

    whole("beam", beam, 1)
    if steps is not None:
        whole("steps", steps, 1)
    own = _is_folder("translator", checkpoint, TRANSLATORS)
    translator = training.Translator.load(checkpoint) if own else zoo.pretrained(checkpoint)
    translator.model.to(training.device_named(device))
    given = sentences or list(_lines())
    if cut := translator.cut(given):
        most = f"{translator.longest // 2} tokens"
        print(f"algoformer: {cut} of {len(given)} sources are longer than {most}, and cut there", file=sys.stderr)
    found = translator(given, width=beam, steps=steps) if given else []
    if as_json:
        return print_json([{"source": a, "translation": b} for a, b in zip(given, found, strict=True)])
    for line in found:
        print(line)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[claims]...", help="Only these claims, with their derivations; see `algoformer list claims`."
        ),
    ] = None,
    claim: Annotated[list[str] | None, typer.Option(help="The same as an option; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """The ledger: the papers' claims, measured and judged. Exit code 1 if a verdict is not the one on record."""
    from collections import Counter

    from algoformer import claims

    chosen = [known("a claim", name, claims.claims()) for name in (*(names or ()), *(claim or ()))]
    rows = claims.verify(chosen or None, progress())
    if as_json:
        print_json([row.json() for row in rows])
    elif chosen:
        for row in rows:
            print(f"{row.id}: {row.label}\n{row.source}\n\n{row.statement}\n\n{row.derivation}\n")
            for name, value in row.evidence.numbers.items():
                print(f"  {name}: {value:.10g}")
            print(f"  ({row.evidence.kind})\n")
    else:
        columns = ["claim", "source", "evidence", "verdict", "on record"]
        lines = [
            [r.id, r.source, str(r.evidence.kind), r.label, "" if r.agrees else str(r.recorded or "none")] for r in rows
        ]
        print_table("The ledger", columns, lines)
        counts = Counter(r.label for r in rows)
        console().print(f"{len(rows)} claims: {', '.join(f'{n} {label}' for label, n in counts.most_common())}.")
    if not all(row.agrees for row in rows):
        print("algoformer: a verdict differs from the one on record", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments; all if left out. See `algoformer list experiments`.")
    ] = None,
    preset: Annotated[str, typer.Option(help="smoke (seconds), cpu (minutes), gpu (what we ran), paper.")] = "cpu",
    seeds: Annotated[int, typer.Option(help="How many seeds, counted from 0.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda; several GPUs are taken in turn.")] = "cpu",
    jobs: Annotated[
        int | None, typer.Option(help="How many runs at a time; one if left out, or with --on ray all it has room for.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="ray: a Ray cluster (extra sweep), one core or GPU a run. Else this machine.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop cleanly in this time, with exit code 3 (a short training finishes first); repeat to resume."
        ),
    ] = None,
    more: Annotated[
        float, typer.Option(help="How many minutes this machine stays up after --minutes, for runs too large to move.")
    ] = 0.0,
    pack: Annotated[
        Path | None, typer.Option(help="Write what is new and what is unfinished into this folder, to be moved.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the results; what is there is not run again.")] = Path(
        "results"
    ),
    as_json: Json = False,
) -> None:
    """Run the papers' figures and tables as experiments. Finished work is kept, interrupted work is resumed."""
    import time
    from contextlib import nullcontext
    from dataclasses import asdict

    from algoformer.experiments import reproduce as carry_out

    packing = None
    if pack is not None:
        from algoformer.experiments.luggage import Packing

        packing = Packing(out, folder_at("pack", pack), since=time.time())
    with packing or nullcontext():
        found = carry_out(
            names or [], preset=preset, seeds=seeds, device=device, jobs=jobs, on=on, minutes=minutes, more=more,
            out=out, progress=progress(),
        )  # fmt: skip
    if as_json:
        print_json(
            {"runs": [asdict(o) for o in found.outcomes], "broken": {str(k): v for k, v in found.broken.items()}}
        )
    else:
        told = {"kept": f"it is in {out} already; nothing was run"}
        rows = [
            [o.experiment, o.seed, o.status, told.get(o.status, o.message.partition("\n")[0])] for o in found.outcomes
        ]
        print_table("Runs", ["experiment", "seed", "outcome", ""], rows)
        for o in found.outcomes:
            if o.status == "failed":
                print(f"algoformer: {o.experiment}, seed {o.seed}: {o.message}", file=sys.stderr)
        if any(o.status in ("made", "kept") for o in found.outcomes):
            elsewhere = "" if out == Path("results") else f" --results {out}"
            console().print(f"`algoformer report{elsewhere}` writes a page, of each experiment its largest preset.")
    for left in packing.made.left if packing else ():
        print(f"algoformer: no room for {left}", file=sys.stderr)
    _leave(found.ok, found.broken)
    if found.unfinished:
        print(f"algoformer: {len(found.unfinished)} runs are not finished; the same command goes on", file=sys.stderr)
        raise typer.Exit(3)


@app.command()
def unpack(
    folder: Annotated[Path, typer.Argument(help="What `reproduce --pack` wrote on another machine.")],
    out: Annotated[Path, typer.Option(help="The folder of the results.")] = Path("results"),
) -> None:
    """Put results and unfinished runs of another machine into the folder of results, to be resumed there."""
    from algoformer.experiments.luggage import unpack as put

    if not folder.is_dir():
        raise ValueError(f"the folder must be one that `reproduce --pack` wrote; got {folder}")
    print_path(f"{len(put(folder, folder_at('out', out)))} files are in", out)


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="The folder of the results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report/index.html"),
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Also write this page of results; runs.md, translation-results.md and figures/ go beside it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """One page from the results: every claim with what was measured, its margin and its verdict, and the figures."""
    from algoformer.report import build, page_at, write

    if docs is not None:
        page_at(docs)
    found = build(results, out)
    if docs is not None:
        write(results, docs)
    if as_json:
        print_json(found.rows)
    else:
        columns = ["experiment", "claim", "verdict", "scale"]
        ours = [row | {"claim": f"ours: {row['claim']}"} if row["source"] == "ours" else row for row in found.rows]
        print_table("Claims", columns, [[row[name] for name in columns] for row in ours])
        print_path("The page:", found.page)
    _leave(found.ok, found.broken)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The seed of the problems.")] = 0,
    as_json: Json = False,
) -> None:
    """The tour in small: race, build, train, translate, verify; a page with pictures. Two minutes on two cores."""
    from algoformer.demo import run

    result = run(out, seed=seed, progress=progress())
    if as_json:
        return print_json(result.numbers)
    for chapter in result.chapters:
        print_table(chapter.title, chapter.columns, chapter.rows)
    print_path("The page with the pictures:", result.page)


@app.command()
def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="solvers, constructions, theory or train; if left out, all that need no GPU."),
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="With train: also every published GPU figure.")] = False,
    as_json: Json = False,
) -> None:
    """Measure every speed figure that we claim, as ratios side by side in one run."""
    from dataclasses import asdict

    from algoformer.bench import BENCHMARKS, load
    from algoformer.provenance import provenance
    from algoformer.training import device_named

    runs = {name: load(name) for name in what or BENCHMARKS}
    if gpu and "train" not in runs:
        raise ValueError(f"gpu must be left out without train; got {', '.join(runs)}")
    if gpu:
        device_named("cuda")
    tables = []
    for i, (name, run) in enumerate(runs.items()):
        print(f"algoformer: benchmark {i + 1} of {len(runs)}, {name}", file=sys.stderr)
        for table in run(**({"gpu": True} if gpu and name == "train" else {})):
            tables.append(asdict(table))
            if not as_json:
                print_table(table.title, table.columns, table.rows)
                for note in table.notes:
                    console().print(note, style="dim")
    if as_json:
        print_json({"tables": tables, "provenance": provenance()})


def _is_folder(what: str, given: str, shipped: Sequence[str]) -> bool:
    """Is a model given by its folder? If not, its name must be one of those that are shipped."""
    folder = Path(given).is_dir()
    if not folder and given not in shipped:
        near = get_close_matches(given, shipped, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"the {what} must be a folder or one of {', '.join(shipped)}; got {given!r}{hint}")
    return folder


def _asked(folder: Path, facts: dict[str, Any], name: str | None, data: Path | None, changes: dict[str, str]) -> Any:
    """The task that a model is asked: the one that is named, text of one's own, or the model's own."""
    from algoformer import training
    from algoformer.tasks import Translation
    from algoformer.training.codec import decode

    for path in changes:
        if not path.startswith("task."):
            raise ValueError(f"a field here must begin with task., for the model is made; got {path!r}")
    if data is not None:
        if name not in (None, "Translation"):
            raise ValueError(f"data must be left out with the task {name}; got {data}")
        base: Any = Translation(data=str(data))
    elif name is not None:
        base = training.task_named(name)
    elif "task" in facts:
        base = decode(facts["task"])
    elif facts:
        raise ValueError(f"data must be given (--data) for {folder.name}, which has no text of its own; got none")
    else:
        base = training.recipe_of(folder)[1]
    asked = training.override(training.Recipe(model=None, task=base, train=training.TrainConfig()), changes).task
    if isinstance(asked, Translation):
        asked.check()
    return asked


def _dense(task: Any) -> Any:
    """A task of pairs that asks every label from the pairs before it; of a shift, the task inside it."""
    from dataclasses import replace

    from algoformer.tasks import Shift

    return replace(task, task=_dense(task.task)) if isinstance(task, Shift) else replace(task, dense=True)


def _evaluate_text(
    translator: Any,
    task: Any,
    split: str,
    most: int,
    steps: list[int] | None,
    beam: int,
    device: Any,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from algoformer import training

    translator.model.to(device)
    lines = task.lines(split)
    some = lines._replace(source=lines.source[:most], target=lines.target[:most])
    found = training.entropy(translator, some, steps=steps)
    last = found.steps[-1]
    read = training.quality(translator, some, width=beam, steps=last)
    if as_json:
        return print_json({"split": split, "entropy": asdict(found), "quality": {"steps": last, **asdict(read)}})
    rows = [list(row) for row in zip(found.steps, found.per_token, found.per_word, strict=True)]
    title = f"{found.variant} on {found.pairs} pairs of {split}: cross-entropy in nats"
    print_table(title, ["step", "per token", "per word"], rows)
    console().print(
        f"After step {last}: BLEU {read.bleu:.2f}, chrF {read.chrf:.2f}, exact {read.exact:.1%}; {lines.empty} pairs "
        f"with an empty side were left out, {found.long} too long for the entropy, {read.cut} sources cut."
    )
    for signature in read.signatures:
        console().print(signature, style="dim")


def _leave(ok: bool, broken: dict[Path, str]) -> None:
    """Exit with code 1 where a run failed or a file is broken, which is named."""
    for file, wrong in broken.items():
        print(f"algoformer: {file} is broken and was left out: {wrong}", file=sys.stderr)
    if not ok:
        raise typer.Exit(1)


def main() -> None:
    """The console script. A reader that has seen enough, such as head, is no error."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes when it ends
        sys.exit(1)


def _tasks() -> dict[str, str]:
    from algoformer import tasks
    from algoformer.task import Task

    return _described(tasks, lambda v: issubclass(v, Task) and not issubclass(v, tasks.Shift))


def _shifts() -> dict[str, str]:
    from algoformer import tasks

    return _described(tasks, lambda v: issubclass(v, tasks.Shift) and v is not tasks.Shift)


def _solvers() -> dict[str, str]:
    from algoformer import solvers
    from algoformer.algorithm import Algorithm

    return _described(solvers, lambda v: issubclass(v, Algorithm))


def _constructions() -> dict[str, str]:
    from algoformer.constructions.catalogue import CATALOGUE

    return {name: f"{c.source}; {' | '.join(c.bars)}" for name, c in CATALOGUE.items()}


def _presets() -> dict[str, str]:
    from algoformer.training import PRESETS, preset
    from algoformer.training.codec import model_of

    recipes = {name: preset(name) for name in PRESETS}
    return {
        name: f"{model_of(r.model).variant} on {type(r.task).__name__}, {r.train.steps:,} steps"
        for name, r in recipes.items()
    }


def _pretrained() -> dict[str, str]:
    cards = {name: (HOME / name / "README.md").read_text(encoding="utf-8") for name in NAMES}
    firsts = {name: card.split("\n\n")[1].replace("\n", " ") for name, card in cards.items()}
    return {name: re.split(r"\.(?= [A-Z]|$)", first)[0] for name, first in firsts.items()}  # "et al. 2024" ends nothing


def _claims() -> dict[str, str]:
    from algoformer.claims import claims

    return {name: c.statement for name, c in claims().items()}


def _experiments() -> dict[str, str]:
    from algoformer.experiments import EXPERIMENTS, load

    return {name: (load(name).__doc__ or "").strip().split("\n")[0] for name in EXPERIMENTS}


def _fields(arguments: list[str]) -> dict[str, str]:
    """--model.loops 8 and --model.loops=8 as a dictionary."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if not name.startswith("--"):
            raise ValueError(f"a field must be given as --part.name value, and a recipe as --preset; got {name!r}")
        name, given, value = name[2:].partition("=")
        if not given:
            if not rest:
                raise ValueError(f"--{name} must have a value; got none")
            value = rest.pop(0)
        found[name.replace("-", "_")] = value
    return found


def _lines() -> Iterator[str]:
    """The stripped lines of standard input."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().strip()
        except UnicodeDecodeError:
            raise ValueError(f"standard input must be UTF-8; line {number} is not") from None


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"steps must be whole numbers with commas between; got {text!r}") from None


def _described(module: Any, wanted: Callable[[type], bool]) -> dict[str, str]:
    """The concrete classes of a module with the first line of their docstrings."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {
        name: (v.__doc__ or "").strip().split("\n")[0]
        for name, v in found.items()
        if isinstance(v, type) and wanted(v) and not isabstract(v)
    }
