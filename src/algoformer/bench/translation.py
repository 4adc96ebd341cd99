"""The runs behind the published translations: plans of training runs that go on where they stopped.

python -m algoformer.bench.translation check
python -m algoformer.bench.translation numbers --out benchmarks/numbers-cpu.json
python -m algoformer.bench.translation trial pilots seeds recipes tatoeba ours again europarl --data DATA --minutes 8
python -m algoformer.bench.translation pack --data DATA

DATA holds the folders multi30k_de_en, europarl_de_en and tatoeba_de_en. Each run has a folder of its own in `--folder`;
a finished run has a small file in `--out` and is not run again. After `--minutes` a run writes a checkpoint and
stops, and the same command resumes it. `pack` makes the shipped model from the run `tatoeba`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from algoformer.bench.train import matmul_rate
from algoformer.checks import refusals
from algoformer.files import replace_file
from algoformer.provenance import provenance
from algoformer.tasks import Translation
from algoformer.tasks.translation import Lines
from algoformer.training import Interrupted, TrainConfig, Translator, entropy, preset, quality, train, validated
from algoformer.training.codec import encode, model_of
from algoformer.training.cost import cost
from algoformer.zoo import HOME

MODELS = ("standard", "looped", "algoformer")
RATES = (5e-5, 3e-4, 1e-3)
STATED = 5e-5  # the paper's learning rate
SEEDS = (0, 1, 2)
EXTRA = (15, 18, 24)  # loops beyond T = 12
TOGETHER = 512  # sentences that are translated at a time to be judged; what is written does not depend on it

# The text of the shipped model has a smaller one: in float16 and with its tokenizer it is below 5 MB.
SIZES: dict[str, dict[str, int]] = {"tatoeba_de_en": {"width": 192, "heads": 6, "vocabulary": 4000}}
SHIPPED = "tatoeba-de-en"


@dataclass(frozen=True)
class Trial:
    """What is tried as our recipe: the source sees all of itself, and a cosine comes after a warm-up."""

    dropout: float
    smoothing: float = 0.1
    lr: float = 1e-3
    steps: int = 10_000
    last: bool = False  # the loss is that of the last loop, and not of one drawn from the window


# First more or less against overfitting. Then, since that stops at a quarter of the steps, and since the loops that are
# drawn agree after three of them: the best so far with fewer steps, with the last loop alone, and with both.
ROUNDS = (
    {
        "mild": Trial(0.1),
        "middle": Trial(0.2),
        "strong": Trial(0.3),
        "slow": Trial(0.2, lr=5e-4),
        "hard-labels": Trial(0.3, smoothing=0.0),
        "fast": Trial(0.2, lr=2e-3),
    },
    {
        "short": Trial(0.3, steps=4000),
        "last": Trial(0.3, last=True),
        "short-last": Trial(0.3, steps=4000, last=True),
    },
)
TRIALS = {name: trial for some in ROUNDS for name, trial in some.items()}


@dataclass(frozen=True)
class Job:
    """One training run on one text: its name, model, learning rate, seed, length, and our recipe if it is ours."""

    name: str
    text: str
    model: str
    lr: float
    seed: int = 0
    steps: int = 10_000
    trial: str | None = None

    def parts(self, data: Path) -> tuple[Any, Translation, TrainConfig]:
        """The configs of model, task and training."""
        recipe = preset(f"translation-{self.model}")
        ours = TRIALS[self.trial] if self.trial else None
        model = replace(recipe.model, dropout=ours.dropout if ours else 0.0, **SIZES.get(self.text, {}))
        task = Translation(data=str(data / self.text), vocabulary=model.vocabulary, mask="prefix" if ours else "causal")
        train = replace(recipe.train, steps=self.steps, lr=self.lr, seed=self.seed, checkpoint_every=5000, keep=1)
        if ours:
            schedule: Any = {"schedule": "cosine", "warmup": 1000, "weight_decay": 0.01, "betas": (0.9, 0.98)}
            loops = None if ours.last else train.random_loops
            train = replace(train, smoothing=ours.smoothing, random_loops=loops, **schedule)
        return model, task, train


Results = dict[str, dict[str, Any]]
Plan = Callable[[Results], Iterator[Job]]


def trial(found: Results) -> Iterator[Job]:
    """A minute to see that everything works: 300 steps of each model."""
    for model in MODELS:
        yield Job(f"trial-{model}", "multi30k_de_en", model, 1e-3, steps=300)


def pilots(found: Results, text: str = "multi30k_de_en") -> Iterator[Job]:
    """Each model with each learning rate."""
    for lr in RATES:
        for model in MODELS:
            yield Job(f"{text}-{model}-{lr:g}-0", text, model, lr)


def seeds(found: Results) -> Iterator[Job]:
    """Each model with the paper's learning rate and with its own best one, three seeds."""
    for seed in SEEDS:
        for model in MODELS:
            for lr in dict.fromkeys((STATED, best_rate(found, model))):
                yield Job(f"multi30k_de_en-{model}-{lr:g}-{seed}", "multi30k_de_en", model, lr, seed)


def recipes(found: Results) -> Iterator[Job]:
    """The first trials of our recipe."""
    for name in ROUNDS[0]:
        yield ours_job(name)


def ours(found: Results) -> Iterator[Job]:
    """The best trial with three seeds, and the standard model with the same beside it."""
    name = best_trial(found)
    for seed in SEEDS:
        for model in ("algoformer", "standard"):
            yield ours_job(name, model, seed)


def again(found: Results) -> Iterator[Job]:
    """The second trials of our recipe, and the best of all with three seeds."""
    for name in ROUNDS[1]:
        yield ours_job(name)
    yield from ours(found)


def ours_job(name: str, model: str = "algoformer", seed: int = 0) -> Job:
    """A run on Multi30k by a trial of our recipe."""
    trial, mark = TRIALS[name], "" if model == "algoformer" else f"-{model}"
    return Job(f"ours-{name}{mark}-{seed}", "multi30k_de_en", model, trial.lr, seed, trial.steps, trial=name)


def europarl(found: Results) -> Iterator[Job]:
    """The text nearest to the paper's: each model with the paper's learning rate, then each with its best one."""
    rates = {model: best_rate(found, model) for model in MODELS}
    for chosen in (dict.fromkeys(MODELS, STATED), {m: lr for m, lr in rates.items() if lr != STATED}):
        for model, lr in chosen.items():
            yield Job(f"europarl_de_en-{model}-{lr:g}-0", "europarl_de_en", model, lr, steps=20_000)


def tatoeba(found: Results) -> Iterator[Job]:
    """Short everyday sentences by our best recipe."""
    name = best_trial(found)
    yield Job("tatoeba_de_en-ours-0", "tatoeba_de_en", "algoformer", TRIALS[name].lr, steps=20_000, trial=name)


PLANS: dict[str, Plan] = {
    "trial": trial, "pilots": pilots, "seeds": seeds, "recipes": recipes, "tatoeba": tatoeba, "ours": ours,
    "again": again, "europarl": europarl,
}  # fmt: skip


def best_rate(found: Results, model: str) -> float:
    """The learning rate of the pilot with the lowest cross-entropy on the validation pairs."""
    rows = {lr: found.get(f"multi30k_de_en-{model}-{lr:g}-0") for lr in RATES}
    if not all(rows.values()):
        raise ValueError(f"the pilots of {model} must be finished first; got {[lr for lr in rows if rows[lr]]}")
    return min(rows, key=lambda lr: rows[lr]["entropy"])  # type: ignore[index]


def best_trial(found: Results) -> str:
    """The trial with the highest BLEU on the validation pairs, of the rounds that are finished.

    By cross-entropy smoothed labels would lose.
    """
    done = [some for some in ROUNDS if all(f"ours-{name}-0" in found for name in some)]
    if ROUNDS[0] not in done:
        raise ValueError(f"the first trials must be finished first; got {[n for n in found if n.startswith('ours-')]}")
    names = [name for some in done for name in some]
    return max(names, key=lambda name: found[f"ours-{name}-0"]["scores"]["valid_greedy"][0])


def carry_out(job: Job, data: Path, folder: Path, device: torch.device, stop: Callable[[], bool]) -> dict[str, Any]:
    """Train a job, choose its checkpoint on the validation pairs, and judge that."""
    config, task, train_config = job.parts(data)
    parts = config, replace(task, data=job.text), train_config
    model: Any = model_of(config, torch.Generator().manual_seed(job.seed)).to(device)
    begin = time.perf_counter()
    course = validated(model, task, train_config, folder / job.name, stop=stop)
    seconds = time.perf_counter() - begin
    translator = Translator.of(model, task)
    looped = model.limit is None
    loops = [*range(1, model.steps + 1), *(EXTRA if looped else ())]
    by_loop = entropy(translator, task.lines("valid"), steps=loops)
    wanted = [("test", "greedy", 1), ("test", "beam", 5)]
    if job.trial:  # by which the best one is chosen
        wanted.append(("valid", "greedy", 1))
    judged = {
        f"{split}_{kind}": quality(translator, task.lines(split), width=width, batch=TOGETHER)
        for split, kind, width in wanted
    }
    about = _cost(config, task, replace(train_config, lr=1.0, seed=0))
    peak = matmul_rate(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    at = by_loop.steps.index(model.steps)
    return {
        **asdict(job),
        "variant": model.variant,
        "parameters": about["parameters"],
        "flops": about["flops"],
        "curve": list(zip(course.steps, course.per_token, strict=True)),
        "best_step": course.best,
        "entropy": by_loop.per_token[at],
        "per_word": by_loop.per_word[at],
        "loops": dict(zip(by_loop.steps, by_loop.per_token, strict=True)),
        "scores": {name: [q.bleu, q.chrf, q.exact] for name, q in judged.items()},
        "signatures": judged["test_beam"].signatures,
        "steps_per_second": course.rate,
        "tokens_per_second": course.rate * train_config.batch,
        "fraction_of_floor": course.rate * about["flops"] / peak,
        "decoding": {str(size): writing(translator, task.lines("test"), size) for size in (1, 64)},
        "padding": task.corpus.padding,
        "left_out": {"empty": task.lines().empty, "long": task.corpus.long, "valid_long": by_loop.long},
        "seconds": seconds,
        "config": {name: encode(part) for name, part in zip(("model", "task", "train"), parts, strict=True)},
        "provenance": provenance(device.type),
    }


def writing(translator: Translator, lines: Lines, size: int) -> float:
    """Tokens written a second, greedily, so many sentences at a time: the median of three."""
    sources = lines.source[:size]
    rates = []
    for _ in range(4):
        begin = time.perf_counter()
        found = translator(sources, batch=size)
        rates.append(sum(map(len, translator.tokenizer.encode(found))) / (time.perf_counter() - begin))
    return statistics.median(rates[1:])


@lru_cache(maxsize=32)
def _cost(config: Any, task: Translation, train_config: TrainConfig) -> dict[str, int]:
    """What a step costs, counted once for all learning rates and seeds."""
    return cost(config, task, train_config)


def results(folder: Path) -> Results:
    """What is finished, by name."""
    return {file.stem: json.loads(file.read_bytes()) for file in sorted(folder.glob("*.json"))}


def keep(result: dict[str, Any], folder: Path) -> None:
    """Write what is finished: a line for each of its parts."""
    lines = (f"{json.dumps(name)}: {json.dumps(part, separators=(',', ':'))}" for name, part in result.items())
    replace_file(folder / f"{result['name']}.json", ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def runs(plans: list[str], data: Path, folder: Path, out: Path, device: torch.device, minutes: float) -> bool:
    """Go through plans until the time is up, with runs in `folder` and results in `out`; are they all finished?"""
    end = time.monotonic() + 60 * minutes
    out.mkdir(parents=True, exist_ok=True)
    found = results(out)
    for name in plans:
        for job in PLANS[name](found):  # a plan goes on from what its first runs found
            if job.name in found:
                continue
            if time.monotonic() > end - 20:
                return False
            try:
                result = carry_out(job, data, folder, device, lambda: time.monotonic() > end)
            except Interrupted as stopped:
                print(f"{job.name}: {stopped}", flush=True)
                return False
            found[job.name] = result
            keep(result, out)
            print(line(job.name, result), flush=True)
    return True


def line(name: str, r: dict[str, Any]) -> str:
    """A result in a line."""
    bleu, chrf, _ = r["scores"]["test_beam"]
    return (
        f"{name}: {r['entropy']:.4f} nats/token at step {r['best_step']}, BLEU {bleu:.2f}, chrF {chrf:.2f}, "
        f"{r['steps_per_second']:.1f} steps/s, {r['fraction_of_floor']:.1%} of the floor, {r['seconds']:.0f} s"
    )


def pack(run: Path, result: dict[str, Any], lines: Lines, home: Path) -> None:
    """Make the shipped model of a run: the weights of its best look in float16, its tokenizer, and its card.

    What the card says is measured on the sentences of the test with what is shipped.
    """
    Translator.load(run / "best").save(home, torch.float16)
    translator = Translator.load(home)
    found = {width: quality(translator, lines, width=width) for width in (1, 5)}
    scores = {str(width): {"bleu": round(q.bleu, 2), "chrf": round(q.chrf, 2)} for width, q in found.items()}
    digest = hashlib.sha256((home / "model.safetensors").read_bytes()).hexdigest()
    replace_file(home / "about.json", json.dumps({"sha256": digest, "test": scores}, indent=1).encode())
    replace_file(home / "README.md", card(result, scores, len(lines.source)).encode())


def card(result: dict[str, Any], scores: dict[str, Any], sentences: int) -> str:
    """The card of the shipped model."""
    model, task, train = (result["config"][part] for part in ("model", "task", "train"))
    greedy, beam = scores["1"], scores["5"]
    return f"""# {SHIPPED}

Short everyday sentences from German into English. It was trained on about 160,000 short pairs and nothing
else: it knows little of longer or scholarly text, and guesses names and rare words.

- **Model.** {result["variant"]}: {model["pre"]} + {model["loop"]} + {model["post"]} layers, {model["loops"]} loops, width {model["width"]}, {model["heads"]} heads, {model["vocabulary"]:,} tokens, {task["mask"]} mask; {result["parameters"]:,} weights in float16.
- **Training.** {result["steps"]:,} steps of {train["batch"]:,} tokens on the {result["text"].split("_")[0].capitalize()} pairs, dropout {model["dropout"]:g}, smoothing {train["smoothing"]:g}, learning rate {train["lr"]:g} and a cosine, seed {train["seed"]}: {result["seconds"]:.0f} s on one {result["provenance"]["device"]}. The weights are those of step {result["best_step"]:,}, the best on the validation pairs.
- **Quality.** On {sentences:,} sentences of the test that were not seen: BLEU {greedy["bleu"]:.2f} and chrF {greedy["chrf"]:.2f} greedily, {beam["bleu"]:.2f} and {beam["chrf"]:.2f} by a beam of 5 (sacrebleu, 13a, cased, one reference each). Cross-entropy of the validation pairs: {result["entropy"]:.3f} nats per token.
- **Again.** `python -m algoformer.bench.translation recipes tatoeba pack --data DATA`, with the pairs in `DATA/tatoeba_de_en`.
- **Licence.** That of the package. The sentences are the work of the contributors of Tatoeba (https://tatoeba.org), licensed under CC BY 2.0
  (https://creativecommons.org/licenses/by/2.0/), in the selection of manythings.org of May 2018; tokenizer and weights were made from them.
"""  # noqa: E501


def numbers(out: Path, folder: Path | None, steps: int | None) -> dict[str, Any]:
    """Exact matches of the built-in corpus against time on this CPU, on 2,000 held-out values of each split."""
    recipe = preset("numbers")
    config = replace(recipe.train, log_every=25, steps=steps or recipe.train.steps)
    task: Any = recipe.task
    model: Any = model_of(recipe.model, torch.Generator().manual_seed(config.seed))
    translator = Translator.of(model, task)
    report: dict[str, Any] = {"curve": [], "provenance": provenance()}
    spent = [0.0, time.perf_counter()]

    def exact(split: str, most: int) -> float:
        lines = task.lines(split)
        return quality(translator, Lines(lines.source[:most], lines.target[:most]), batch=500).exact

    def look(p: Any) -> None:
        if p.step % 250 == 0 or p.step == p.steps:
            spent[0] += time.perf_counter() - spent[1]  # looking is not training
            report["curve"].append([p.step, round(spent[0], 1), p.loss, exact("valid", 500), exact("structural", 500)])
            out.write_text(json.dumps(report, indent=1) + "\n")
            print(*report["curve"][-1], flush=True)
            spent[1] = time.perf_counter()

    train(model, task, config, folder, progress=look)
    report["seconds"] = round(spent[0], 1)
    report["exact"] = {split: exact(split, 2000) for split in ("test", "structural")}
    loops = [*range(1, model.steps + 1), 6, 8]
    report["loops"] = dict(zip(loops, entropy(translator, task.lines("valid"), steps=loops).per_token, strict=True))
    report["parameters"] = sum(v.numel() for v in model.parameters())
    report["config"] = {"model": encode(recipe.model), "task": encode(task), "train": encode(config)}
    out.write_text(json.dumps(report, indent=1) + "\n")
    return report


def check(device: torch.device, steps: int = 200) -> dict[str, dict[str, float]]:
    """The fast path beside the plain one on the built-in corpus: how far apart their losses are, and their speed."""
    report = {}
    recipe = preset("translation-algoformer")
    config = replace(recipe.train, steps=steps, batch=2048, lr=1e-3, warmup=10, log_every=10, precision="fp32")
    last = recipe.model.loops
    config = replace(config, random_loops=(last - 1, last), gradient_loops=last)  # few shapes, so that all are captured
    for mask in ("causal", "prefix"):
        task: Any = replace(recipe.task, mask=mask)  # type: ignore[type-var]
        lines: dict[bool, list[Any]] = {False: [], True: []}
        for fast, seen in lines.items():
            model = model_of(recipe.model, torch.Generator().manual_seed(0)).to(device)
            train(model, task, replace(config, fast=fast), progress=seen.append)
        apart = [abs(a.loss - b.loss) / b.loss for a, b in zip(lines[True], lines[False], strict=True)]
        rates = {f"{name}_steps_per_second": lines[fast][-1].rate for name, fast in (("fast", True), ("plain", False))}
        report[mask] = {"apart": max(apart), "loss": lines[False][-1].loss, **rates}
    return report


def main() -> None:
    """Go through plans."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="algoformer.bench.translation", description=__doc__, formatter_class=form)
    parser.add_argument("plans", nargs="+", choices=[*PLANS, "pack", "check", "numbers"])
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder that holds the texts")
    parser.add_argument("--folder", type=Path, default=None, help="runs and their checkpoints (runs/translation)")
    parser.add_argument(
        "--out", type=Path, default=None, help="where results go (results/translation); for `numbers`, the file"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many minutes, to be continued")
    parser.add_argument("--steps", type=int, default=None, help="of `numbers`")
    parser.add_argument("--device", default=None)
    a = parser.parse_args()
    with refusals(parser):
        carried(a)


def carried(a: argparse.Namespace) -> None:
    """Do what the command asks for."""
    folder, out = a.folder or Path("runs/translation"), a.out or Path("results/translation")
    device = torch.device(a.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if a.plans == ["check"]:
        print(json.dumps(check(device), indent=1))
        return
    if a.plans == ["numbers"]:
        print(json.dumps(numbers(a.out or Path("numbers-cpu.json"), a.folder, a.steps)["exact"]))
        return
    done = runs([plan for plan in a.plans if plan in PLANS], a.data, folder, out, device, a.minutes)
    if done and "pack" in a.plans:
        found = results(out)
        (job,) = tatoeba(found)
        if job.name not in found:
            raise ValueError(f"the run of tatoeba must be finished first; {out} has no {job.name}.json")
        lines = job.parts(a.data)[1].lines("test")
        pack(folder / job.name, found[job.name], lines, HOME / SHIPPED)
        print(f"{HOME / SHIPPED} holds the model and its card", flush=True)
    print("finished" if done else "to be continued: run the same command again", flush=True)


if __name__ == "__main__":
    main()
