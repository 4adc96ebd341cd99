"""The training step side by side: research style, eager, torch.compile and ours; and the quality of trained models.

algoformer bench train --gpu
python -m algoformer.bench.train bench --out bench.json
python -m algoformer.bench.train quality --seeds 0 1 2 --folder runs --out quality
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algoformer.bench import gpu
from algoformer.bench.timing import Table
from algoformer.models import AlgoFormer, AlgoFormerConfig, LinearSelfAttentionConfig, LoopedConfig, TransformerConfig
from algoformer.models.blocks import Block, Stack
from algoformer.provenance import provenance
from algoformer.tasks import Conditioned, LinearRegression
from algoformer.training import Ramp, TrainConfig, train
from algoformer.training.codec import model_of
from algoformer.training.cost import cost
from algoformer.training.data import Data, Size
from algoformer.training.evaluation import evaluate
from algoformer.training.step import Step, compiled, settings

TASK = gpu.TASK
CONFIG = TrainConfig(window=15)
# as Giannou et al. 2024 train it
LINEAR = LinearSelfAttentionConfig(
    features=10, layers=6, heads=4, width=64, scratch=10, hidden=False, mean=False, clip=10.0, init=0.02
)
LINEAR_TASK = LinearRegression(d=10, n=50, covariance=Conditioned(kappa=10.0, shared=True))
Save = Callable[[dict[str, Any]], None]


class ResearchBlock(nn.Module):
    """A GPT-2 block as the field's code runs it: explicit scores and mask, a softmax, a GELU of many small pieces."""

    causal: Tensor

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.inner = block
        self.register_buffer("causal", torch.ones(1024, 1024, dtype=torch.bool).tril(), persistent=False)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor, mask: Tensor | None, rows: slice | Tensor = slice(None)) -> Tensor:
        b, s, e = x.shape
        block = self.inner
        heads = block.attention.heads
        q, k, v = (
            u.view(b, s, heads, e // heads).transpose(1, 2) for u in block.attention.qkv(block.norm1(x)).split(e, 2)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(e // heads)
        scores = torch.where(self.causal[:s, :s], scores, torch.finfo(scores.dtype).min)
        o = self.drop(F.softmax(scores, -1)) @ v
        x = x + self.drop(block.attention.out(o.transpose(1, 2).contiguous().view(b, s, e)))
        u = block.up(block.norm2(x))
        u = 0.5 * u * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * torch.pow(u, 3.0))))
        out: Tensor = (x + self.drop(block.down(u)))[:, rows]
        return out


def research(model: AlgoFormer) -> AlgoFormer:
    """The same model with the same weights, in research style."""
    model = copy.deepcopy(model)
    for part in model.modules():
        if isinstance(part, Stack):
            part.blocks = nn.ModuleList(ResearchBlock(block) for block in part.blocks)  # type: ignore[arg-type]
    return model.to(next(model.parameters()).device)


def made(config: Any, device: torch.device, seed: int = 0) -> Any:
    """A model of a config, ready to train."""
    return model_of(config, torch.Generator().manual_seed(seed)).to(device).train()


def timed(step: Callable[[int], object], device: torch.device, repeats: int, steps: int, warm: int) -> dict[str, float]:
    """Milliseconds a step: the median of `repeats` means over `steps` steps, after `warm`."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    begin = time.perf_counter()
    step(0)
    wait()
    first = time.perf_counter() - begin
    for i in range(1, warm):
        step(i)
    wait()
    means = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for i in range(steps):
            step(i)
        wait()
        means.append(1000 * (time.perf_counter() - begin) / steps)
    return {"ms": statistics.median(means), "worst": max(means), "best": min(means), "first_call_s": first}


def ours(
    model_config: Any,
    config: TrainConfig,
    device: torch.device,
    repeats: int,
    steps: int,
    *,
    task: LinearRegression = TASK,
    profile: bool = False,
) -> dict[str, Any]:
    """Our step, data included."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    model = made(model_config, device)
    step = Step(model, task, config, device)
    data = Data(task, config, device, torch.float32, padded=step.graphs)
    size = Size(None, None, model.steps)
    with settings(step.precision, False, device), compiled(model, step.fast, config.kernels):
        out: dict[str, Any] = timed(lambda i: step(i, data.batch(i, size), size.loops), device, repeats, steps, warm=10)
        if profile:
            out["kernels"] = kernels(lambda i: step(i, data.batch(i, size), size.loops))
    if device.type == "cuda":
        out["memory_mb"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return out


def attention(device: torch.device) -> dict[str, float]:
    """Microseconds of causal attention at the default sizes, forward and backward: the library's and ours."""
    from algoformer.models import kernels as K

    qkv = torch.randn(64, 81, 768, device=device, dtype=torch.bfloat16)
    g = torch.randn(64, 81, 256, device=device, dtype=torch.bfloat16)
    out, lse, sums = torch.empty_like(g), qkv.new_empty(64, 8, 81, dtype=torch.float32), qkv.new_zeros(64, 768).float()

    def library(x: Tensor) -> Tensor:
        q, k, v = x.view(64, 81, 3, 8, 32).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(64, 81, 256)

    exact = qkv.double().requires_grad_()
    wanted = library(exact)
    (gradient,) = torch.autograd.grad(wanted, exact, g.double())
    taped = qkv.clone().requires_grad_()
    theirs = library(taped)
    K.attend(qkv, out, lse, 8)
    mine = qkv.clone()
    K.attend_back(mine, out, g, lse, (sums, True), 8)

    def apart(one: Tensor, other: Tensor) -> float:
        return float((one - other).norm() / other.norm())

    def microseconds(f: Callable[[int], object]) -> float:
        return float(sum(row[1] for row in kernels(f, 50)))

    forward = microseconds(lambda _: library(qkv))
    return {
        "library_error": apart(theirs, wanted),
        "library_gradient_error": apart(torch.autograd.grad(theirs, taped, g)[0], gradient),
        "kernel_error": apart(out, wanted),
        "kernel_gradient_error": apart(mine, gradient),
        "library_forward_us": forward,
        "library_backward_us": microseconds(lambda _: torch.autograd.grad(library(taped), taped, g)) - forward,
        "kernel_forward_us": microseconds(lambda _: K.attend(qkv, out, lse, 8)),
        "kernel_backward_us": microseconds(lambda _: K.attend_back(mine, out, g, lse, (sums, True), 8)),
    }


def kernels(step: Callable[[int], object], steps: int = 5) -> list[list[Any]]:
    """Where the time of a step goes: name, microseconds a step, launches a step, the largest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        for i in range(steps):
            step(i)
        torch.cuda.synchronize()
    rows = [[e.key[:120], e.self_device_time_total / steps, e.count / steps] for e in recorded.key_averages()]
    return sorted(rows, key=lambda row: -row[1])[:40]


def researched(config: TrainConfig, device: torch.device, repeats: int, steps: int) -> dict[str, float]:
    """(a): TF32, unfused Adam, and the loss on the host at every step."""
    model = research(made(AlgoFormerConfig(), device))
    config = replace(config, precision="tf32", fast=False)
    step = Step(model, TASK, config, device)
    data = Data(TASK, config, device, torch.float32)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False, fused=False)
    size = Size(None, None, model.steps)

    def one(i: int) -> float:
        adam.zero_grad()
        loss = step.loss(data.batch(i, size), size.loops)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        return loss.item()

    with settings("tf32", False, device):
        return timed(one, device, repeats, steps, warm=5)


def whole_compiled(config: TrainConfig, device: torch.device, repeats: int, steps: int) -> dict[str, float]:
    """(c): torch.compile of the eager loss, fused AdamW, no waiting."""
    torch.compiler.reset()
    model = made(AlgoFormerConfig(), device)
    step = Step(model, TASK, replace(config, fast=False), device)
    data = Data(TASK, config, device, torch.float32)
    size = Size(None, None, model.steps)
    step.loss = torch.compile(step.loss, dynamic=False)  # type: ignore[method-assign]
    with settings(step.precision, False, device):
        out = timed(lambda i: step(i, data.batch(i, size), size.loops), device, repeats, steps, warm=5)
    torch.compiler.reset()
    return out


def equality(config: TrainConfig, device: torch.device) -> dict[str, float]:
    """Loss and gradients of the captured graph against the plain path, at the same weights and batch."""
    torch.compiler.reset()
    model = made(AlgoFormerConfig(), device)
    step = Step(model, TASK, config, device)
    data = Data(TASK, config, device, torch.float32, padded=step.graphs)
    size = Size(None, None, model.steps)
    with settings(step.precision, False, device):
        with compiled(model, step.fast):
            for i in range(8):
                step(i, data.batch(i, size), size.loops)
            before = {k: v.clone() for k, v in model.state_dict().items()}
            row = step(8, data.batch(8, size), size.loops).clone()
            fast = gradients(step)
        plain = made(AlgoFormerConfig(), device)
        plain.load_state_dict(before)
        other = Step(plain, TASK, replace(config, fast=False), device)
        wanted = other.update(data.batch(8, size), size.loops)
        slow = gradients(other)
    with settings("fp32", False, device):  # both paths round: how far is each from float32?
        third = made(AlgoFormerConfig(), device)
        third.load_state_dict(before)
        again = Step(third, TASK, replace(config, fast=False, precision="fp32"), device)
        again.update(data.batch(8, size), size.loops)
        exact = gradients(again)

    def apart(one: list[Tensor], other: list[Tensor]) -> float:
        total = torch.stack([g.norm() for g in other]).norm()
        return float(torch.stack([(f - s).norm() for f, s in zip(one, other, strict=True)]).norm() / total)

    return {
        "captured": float(len(step.captured)),
        "loss": float((row[0] - wanted[0]).abs() / wanted[0]),
        "gradient": apart(fast, slow),
        "worst_weight": max(float((f - s).norm() / s.norm()) for f, s in zip(fast, slow, strict=True)),
        "fast_to_fp32": apart(fast, exact),
        "plain_to_fp32": apart(slow, exact),
    }


def gradients(step: Step) -> list[Tensor]:
    """A copy of every gradient."""
    return [v.grad.clone() for v in step.weights if v.grad is not None]


def repeatability(device: torch.device, steps: int = 300) -> dict[str, float]:
    """How far apart the losses of runs of one seed are: uninterrupted twice, and once paused half-way."""
    out: dict[str, float] = {}
    for deterministic in (False, True):
        losses = []
        for paused in (False, False, True):
            config = replace(CONFIG, steps=steps, deterministic=deterministic, log_every=10, checkpoint_every=steps)
            rows: list[float] = []
            with tempfile.TemporaryDirectory() as folder:
                for until in (steps // 2, steps) if paused else (steps,):
                    model = made(AlgoFormerConfig(), device)
                    note = lambda p, rows=rows: rows.append(p.loss)  # noqa: E731
                    train(model, TASK, config, folder, until=until, progress=note)
            losses.append(torch.tensor(rows, dtype=torch.float64))
        kind = "deterministic" if deterministic else "default"
        out[f"{kind}_two_runs"] = float(((losses[0] - losses[1]) / losses[0]).abs().max())
        out[f"{kind}_resumed"] = float(((losses[0] - losses[2]) / losses[0]).abs().max())
    return out


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """The floating-point operations a second of one large matrix product."""
    size = 8192 if device.type == "cuda" else 512
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    out = timed(lambda _: a @ b, device, repeats=3, steps=20, warm=5)
    return 2 * size**3 / (out["best"] / 1000)


def first_step(device: torch.device) -> dict[str, float]:
    """Seconds from the start of a fresh process with empty caches to its first step, and to its first replay."""
    code = (
        "import time, sys; from algoformer.bench import train as b; import torch;"
        f"m = b.made(b.AlgoFormerConfig(), torch.device('{device}')); import dataclasses;"
        "r = b.train(m, b.TASK, dataclasses.replace(b.CONFIG, steps=24000), until=1); print(time.time());"
        "r = b.train(m, b.TASK, dataclasses.replace(b.CONFIG, steps=24000), until=5); torch.cuda.is_available() and "
        "torch.cuda.synchronize(); print(time.time())"
    )
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        begin = time.time()
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": done.stderr[-2000:]}  # type: ignore[dict-item]
    stamps = [float(v) for v in done.stdout.split()]
    return {"first_step_s": stamps[0] - begin, "first_replay_s": stamps[1] - begin}


SIDES = {
    "a_research": "(a) research style: unfused attention and optimiser, .item() every step",
    "b_eager": "(b) eager, fused attention and optimiser",
    "c_compile": "(c) torch.compile of (b)",
    "d_ours": "(d) ours",
}
OTHERS = {
    "standard": "12-layer standard transformer",
    "looped": "looped transformer",
    "ours_tf32": "default AlgoFormer in TF32",
    "ours_compiled": "default AlgoFormer, compiled, without kernels",
    "linear": "6 layers of linear attention, 2,000 prompts, float32",
    "linear_plain": "the same without kernels",
}


def run(gpu: bool = False) -> Iterator[Table]:
    """The step on this machine: on a GPU the default model, on a CPU the same with 8 prompts.

    With `gpu` also all else that is published of a GPU, in about ten minutes.
    """
    if gpu and not torch.cuda.is_available():
        raise ValueError("bench train --gpu needs a CUDA device; got none")
    found = measure(budget=900.0 if gpu else 400.0, only=None if gpu else ["matmul_flops", "cost", *SIDES])
    yield from tables(found)


def tables(found: dict[str, Any]) -> Iterator[Table]:
    """The findings of `measure` for people."""
    facts = found["summary"]
    floor = facts.get("floor_ms", math.nan)
    yield Table(
        f"One training step of the default AlgoFormer, batch {found['config']['batch']}, on {found['device']}",
        ["step", "ms", "times (d)"],
        [
            [name, facts[f"{part}_ms"], facts[f"{part}_ms"] / facts["d_ours_ms"]]
            for part, name in SIDES.items()
            if f"{part}_ms" in facts
        ],
        [
            f"Matrix products alone: {floor:.3g} ms at the measured rate, {floor / facts['d_ours_ms']:.0%} of (d).",
            *(f"{part} was left out: no time." for part in found["left_out"]),
            *(f"{part} failed: {v['error']}" for part, v in found.items() if isinstance(v, dict) and "error" in v),
        ],
    )
    if any(part in found for part in OTHERS):
        rows = [[name, facts[f"{part}_ms"]] for part, name in OTHERS.items() if f"{part}_ms" in facts]
        yield Table("Others at the same sizes", ["step", "ms"], rows)
    if isinstance(found.get("growth"), list):
        columns = ["what", "value", "ms", "floor", "memory_mb"]
        rows = [[row[c] for c in columns] for row in found["growth"]]
        yield Table("How the step grows", ["of", "value", "ms", "share of the floor", "MB"], rows)
    for part, title in (
        ("several", "Several runs: ms in which each takes a step"),
        ("curriculum", "A curriculum beside fixed sizes"),
        ("first_step", "Seconds from the start of a process with empty caches"),
    ):
        if part in found:
            yield Table(title, ["what", "value"], [[k, v] for k, v in found[part].items()])
    if isinstance(found.get("curve"), dict) and "plain 0" in found["curve"]:
        names = list(found["curve"])
        rows = [[100 * (i + 1), *row] for i, row in enumerate(zip(*found["curve"].values(), strict=True))]
        yield Table("The loss on the fast and the plain path", ["step", *names], rows)


def measure(
    device: str | None = None,
    *,
    repeats: int = 5,
    steps: int = 200,
    budget: float = 500.0,
    save: Save | None = None,
    config: TrainConfig = CONFIG,
    only: list[str] | None = None,
) -> dict[str, Any]:
    """Every number of `algoformer bench train`; a part that would begin after the budget is left out by name."""
    begin = time.perf_counter()
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    cuda = where.type == "cuda"
    if not cuda:
        repeats, steps, config = min(repeats, 3), min(steps, 3), replace(config, batch=8)
    name = torch.cuda.get_device_name(where) if cuda else f"CPU, {torch.get_num_threads()} threads"
    out: dict[str, Any] = {"device": name, "provenance": provenance(where.type), "config": asdict(config)}
    out["left_out"] = []
    dtype = torch.bfloat16 if cuda else torch.float32
    eager = replace(config, fast=False)
    default = AlgoFormerConfig()

    def linear(kernels: bool) -> Any:
        wide = TrainConfig(batch=2000, precision="fp32", kernels=kernels)
        return ours(LINEAR, wide, where, repeats, steps, task=LINEAR_TASK)

    def few(n: int) -> int:
        return max(n // 4, 1)

    parts: list[tuple[str, Callable[[], Any]]] = [
        ("matmul_flops", lambda: matmul_rate(where, dtype)),
        ("cost", lambda: cost(default, TASK, config)),
        ("d_ours", lambda: ours(default, config, where, repeats, steps)),
        ("b_eager", lambda: ours(default, eager, where, repeats, few(steps))),
        ("a_research", lambda: researched(config, where, repeats, few(steps))),
    ]
    if cuda:
        parts += [
            ("standard", lambda: ours(TransformerConfig(), replace(config, window=None), where, repeats, steps)),
            ("looped", lambda: ours(LoopedConfig(), config, where, repeats, steps)),
            ("ours_tf32", lambda: ours(default, replace(config, precision="tf32"), where, repeats, steps)),
            ("linear", lambda: linear(True)),
            ("linear_plain", lambda: linear(False)),
            ("profile", lambda: ours(default, config, where, 1, 20, profile=True)),
            ("attention", lambda: attention(where)),
            ("first_step", lambda: first_step(where)),
            ("curriculum", lambda: gpu.curriculum(config, where)),
            ("several", lambda: gpu.several(config, where)),
            ("growth", lambda: gpu.growth(ours, config, where, out["matmul_flops"])),
            ("curve", lambda: gpu.curve(where)),
            ("equality_bf16", lambda: equality(config, where)),
            ("equality_fp32", lambda: equality(replace(config, precision="fp32"), where)),
            ("repeatability", lambda: repeatability(where)),
            ("memory_T200_plain", lambda: ours(AlgoFormerConfig(loops=200), eager, where, 1, 3)),
            ("ours_compiled", lambda: ours(default, replace(config, kernels=False), where, repeats, steps)),
            ("c_compile", lambda: whole_compiled(config, where, repeats, steps)),
        ]
    for part, part_of in parts:
        if only is not None and part not in only:
            continue
        if time.perf_counter() - begin > budget:
            out["left_out"].append(part)
            continue
        start = time.perf_counter()
        try:
            out[part] = part_of()
        except Exception as error:  # one part that fails must not take the others with it
            out[part] = {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-1500:]}
        out.setdefault("seconds", {})[part] = time.perf_counter() - start
        out["summary"] = summary(out)
        if save is not None:
            save(out)
    return out


def summary(out: dict[str, Any]) -> dict[str, float]:
    """Ratios and the achieved fraction of the matrix products' floor."""
    times = {key: value["ms"] for key, value in out.items() if isinstance(value, dict) and "ms" in value}
    facts = {f"{key}_ms": value for key, value in times.items()}
    if "d_ours" in times:
        for key in ("a_research", "b_eager", "c_compile"):
            if key in times:
                facts[f"{key}_over_ours"] = times[key] / times["d_ours"]
        if "cost" in out and "flops" in out["cost"]:
            facts["floor_ms"] = 1000 * out["cost"]["flops"] / out["matmul_flops"]
            facts["fraction_of_floor"] = facts["floor_ms"] / times["d_ours"]
    return facts


def quality(
    seeds: list[int],
    folder: Path,
    out: Path,
    *,
    steps: int,
    budget: float,
    until: int | None = None,
    device: str = "cuda",
    stop_at_full: bool = False,
    lr: float = 3e-4,
) -> dict[str, Any]:
    """Train the default AlgoFormer on linear regression with each seed and evaluate it; goes on where it stopped.

    `stop_at_full` ends a seed when its curriculum is through: enough to see whether it sticks.
    """
    begin = time.perf_counter()
    where = torch.device(device)
    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"device": torch.cuda.get_device_name() if where.type == "cuda" else "cpu", "seeds": {}}

    def save() -> None:
        (out / "quality.json").write_text(json.dumps(report, indent=1))

    for seed in seeds:
        entry = report["seeds"].setdefault(str(seed), {"curve": []})
        model = made(AlgoFormerConfig(), where, seed)
        config = replace(CONFIG, steps=steps, seed=seed, lr=lr, dims=Ramp(start=5, stop=20), checkpoint_every=2000)
        last = [time.perf_counter()]

        class Full(Exception):
            pass

        def progress(p: Any, entry: Any = entry, last: list[float] = last) -> None:
            if p.step % 500 == 0:
                entry["curve"].append([p.step, p.loss, p.size.dims, round(p.rate, 1)])
            if time.perf_counter() - last[0] > 60:
                last[0] = time.perf_counter()
                save()
            if stop_at_full and p.size.dims == 20:
                raise Full(p.step)
            if time.perf_counter() - begin > budget:
                raise TimeoutError(p.step)

        try:
            result = train(model, TASK, config, folder / f"seed-{seed}", until=until, progress=progress)
            entry["result"] = asdict(result)
        except Full as full:
            entry["full_at"] = full.args[0]
        except TimeoutError as late:
            entry["out_of_time_at"] = late.args[0]
            save()
            break
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {error}"
            save()
            continue
        if entry.get("result", {}).get("step") == steps:
            torch.set_float32_matmul_precision("highest")
            e = evaluate(model, TASK, prompts=6400, steps=[5, 10, 15, 20, 30, 60], device=where)
            entry["error_at_40_by_loops"] = {t: e.mean[i][-1] / TASK.d for i, t in enumerate(e.steps)}
            entry["error_by_examples_20_loops"] = [v / TASK.d for v in e.mean[e.steps.index(20)]]
            entry["standard_error_at_40"] = e.deviation[e.steps.index(20)][-1] / TASK.d
            model.save_pretrained(folder / f"model-{seed}")
            (out / f"model-{seed}.safetensors").write_bytes((folder / f"model-{seed}/model.safetensors").read_bytes())
        save()
    report["seconds"] = time.perf_counter() - begin
    save()
    return report


def main() -> None:
    """The parts of the benchmark by themselves, and the runs behind the published errors."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="algoformer.bench.train", description=__doc__, formatter_class=form)
    parser.add_argument("what", choices=["bench", "quality"])
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--budget", type=float, default=480.0)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--only", nargs="+", default=None, help="parts of the benchmark")
    parser.add_argument("--until", type=int, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--stop-at-full", action="store_true")
    a = parser.parse_args()
    if a.what == "bench":

        def save(out: dict[str, Any]) -> None:
            if a.out is not None:
                a.out.write_text(json.dumps(out, indent=1))

        print(
            json.dumps(
                measure(a.device, steps=a.steps or 200, budget=a.budget, save=save, only=a.only)["summary"], indent=1
            )
        )
    else:
        report = quality(
            a.seeds,
            a.folder,
            a.out or a.folder,
            steps=a.steps or 24_000,
            budget=a.budget,
            until=a.until,
            device=a.device or ("cuda" if torch.cuda.is_available() else "cpu"),
            stop_at_full=a.stop_at_full,
            lr=a.lr,
        )
        print(json.dumps(report["seeds"])[-3000:])


if __name__ == "__main__":
    main()
