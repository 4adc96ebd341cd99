"""One training step: plain, or compiled and replayed as one CUDA graph."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from algoformer.models import Model
from algoformer.models.precision import tf32
from algoformer.training.config import Plan, TrainConfig
from algoformer.training.data import Batch
from algoformer.training.loss import cross_entropy, rao_blackwell, window_loss

GRAPHS, TEXT_GRAPHS = 12, 128  # held at most; text has one for each width and number of loops
EAGER = 3  # steps before a graph is captured, the first of its shape among them: they compile, and begin the optimiser


class Step:
    """Forward, backward, clipping and update of one batch; gives (loss, gradient norm) on the device.

    With `fast` on a GPU the first use of a number of loops runs as it is and the next is captured as a CUDA graph,
    which all later ones replay; of more than `GRAPHS` the one unused for longest goes. Nothing here waits for the
    device.
    """

    def __init__(self, model: Model, task: Any, config: TrainConfig, device: torch.device) -> None:
        self.model, self.config, self.device = model, config, device
        self.plan = Plan.of(model, config)
        self.inverse_prior = getattr(task, "prior", "identity") == "inverse"
        self.weights: list[Tensor] = [v for v in model.parameters() if v.requires_grad]
        self.world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        self.fast = device.type == "cuda" if config.fast is None else config.fast
        self.graphs = (
            self.fast
            and device.type == "cuda"
            and self.world == 1
            and model.graphable(config.kernels)
            and config.optimiser != "lbfgs"
            and config.loss != "rao-blackwell"
        )
        self.trained = self.weights if config.optimiser == "lbfgs" else [joined(self.weights)]
        self.optimiser = optimiser(self.trained, config, device)
        self.adam: Any = None
        if self.graphs and config.kernels and self.trained[0].dtype == torch.float32:
            with contextlib.suppress(ImportError):
                from algoformer.models.kernels import adam

                self.adam = adam
        self.averages = [v.detach().clone() for v in self.trained] if config.ema else []
        self.pool: Any = None
        self.uses: dict[Any, int] = {}
        self.captured: dict[Any, tuple[torch.cuda.CUDAGraph, Batch, Tensor]] = {}

    def __call__(self, step: int, batch: Batch, loops: int) -> Tensor:
        lr = self.config.rate(step)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        if not self.graphs:
            return self.update(batch, loops)
        key = loops, tuple(v.shape for v in batch.tensors())
        self.uses[key] = self.uses.get(key, 0) + 1
        if self.uses[key] == 1 or sum(self.uses.values()) <= EAGER:
            return self.update(batch, loops)
        if key not in self.captured:
            if len(self.captured) == (GRAPHS if batch.at is None else TEXT_GRAPHS):
                self.captured.pop(next(iter(self.captured)))
            self.captured[key] = self._capture(batch, loops)
        graph, inputs, row = self.captured[key] = self.captured.pop(key)  # the last used is last
        torch._foreach_copy_(inputs.tensors(), batch.tensors())
        graph.replay()
        return row

    def update(self, batch: Batch, loops: int) -> Tensor:
        """One step, written out."""
        if self.config.optimiser == "lbfgs":
            loss, norm = self._search(batch, loops)
        else:
            loss, norm = self._gradient(batch, loops)
            self._move(norm)
        if self.averages:
            with torch.no_grad():
                torch._foreach_lerp_(self.averages, self.trained, 1 - self.config.ema)
        return torch.stack([loss, norm])

    def loss(self, batch: Batch, loops: int) -> Tensor:
        """The loss of this process's prompts, as its share of the whole batch."""
        c = self.config
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bf16", cache_enabled=False):
            if batch.at is not None:
                return cross_entropy(
                    self.model,  # type: ignore[arg-type]
                    batch.prompt,
                    batch.target,
                    batch.at,
                    batch.weight,
                    loops=loops,
                    window=self.plan.window,
                    gradient=self.plan.gradient,
                    smoothing=c.smoothing,
                )
            if batch.covariance is not None:
                sigma = batch.covariance.matrix
                basis, spectrum = batch.covariance
                omega = (
                    (basis / spectrum[:, None]) @ basis.mT
                    if self.inverse_prior
                    else torch.eye(basis.shape[1], dtype=basis.dtype, device=basis.device).expand_as(basis)
                )
                each = rao_blackwell(
                    self.model,
                    batch.prompt.x,
                    sigma,
                    omega,
                    loops=loops,
                    window=self.plan.window,
                    gradient=self.plan.gradient,
                    robust=c.robust,
                )
            else:
                each = window_loss(
                    self.model,
                    batch.prompt,
                    batch.target,
                    batch.weight,
                    loops=loops,
                    window=self.plan.window,
                    gradient=self.plan.gradient,
                    robust=c.robust,
                    eq6=c.loss == "eq6",
                )
        return each.sum() / c.batch

    @property
    def precision(self) -> str:
        """What "auto" means here."""
        if self.config.precision == "auto":
            return "bf16" if self.device.type == "cuda" else "fp32"
        return self.config.precision

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        names = [name for name, v in self.model.named_parameters() if v.requires_grad]
        return {"optimiser": self.optimiser.state_dict(), "averages": list(self.averages), "trained": names}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; only before the first step."""
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(state["optimiser"])
        for group, lr in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = lr
        for mine, saved in zip(self.averages, state["averages"], strict=True):
            mine.copy_(saved)

    def _gradient(self, batch: Batch, loops: int) -> tuple[Tensor, Tensor]:
        """The loss and the norm of its gradient, which all processes share."""
        for v in self.weights:
            v.grad = None
        loss = self.loss(batch, loops)
        loss.backward()  # type: ignore[no-untyped-call]
        parts = [(torch.zeros_like(v) if v.grad is None else v.grad).flatten() for v in self.weights]
        loss, grad = loss.detach(), torch.cat(parts)
        if self.world > 1:
            both = torch.cat([loss.reshape(1), grad])
            dist.all_reduce(both)
            loss, grad = both[0], both[1:]
        norm = torch.linalg.vector_norm(grad)
        for v, part in zip(self.weights, _split(grad, self.weights), strict=True):
            v.grad = part
        if self.trained is not self.weights:
            self.trained[0].grad = grad
        return loss, norm

    def _move(self, norm: Tensor) -> None:
        """The optimiser's step by the clipped gradient; by a kernel once it has begun."""
        vector, clip = self.trained[0], self.config.clip
        if self.adam is not None and (begun := self.optimiser.state.get(vector)):
            self.adam(vector, vector.grad, norm, clip, begun, self.optimiser.param_groups[0])
            return
        if clip is not None and vector.grad is not None:
            vector.grad = vector.grad * (clip / (norm + 1e-6)).clamp(max=1)
        self.optimiser.step()

    def _search(self, batch: Batch, loops: int) -> tuple[Tensor, Tensor]:
        norms: list[Tensor] = []

        def closure() -> Tensor:
            loss, norm = self._gradient(batch, loops)
            norms.append(norm)
            return loss

        loss = self.optimiser.step(closure)  # type: ignore[arg-type]  # a tensor is a float to L-BFGS
        return loss, norms[0]  # type: ignore[return-value]

    def _capture(self, batch: Batch, loops: int) -> tuple[torch.cuda.CUDAGraph, Batch, Tensor]:
        copy = {k: v.clone() for k, v in vars(batch.prompt).items() if isinstance(v, Tensor)}
        prompt = replace(batch.prompt, **copy, check=False)
        at = None if batch.at is None else batch.at.clone()
        inputs = Batch(prompt, batch.target.clone(), batch.weight.clone(), None, at)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=torch.cuda.current_stream()):
            row = self.update(inputs, loops)
        self.pool = self.pool or graph.pool()
        return graph, inputs, row


def joined(weights: list[Tensor]) -> Tensor:
    """All weights as one vector, of which they become views: one update moves them all."""
    vector = torch.cat([v.detach().flatten() for v in weights])
    for v, part in zip(weights, _split(vector, weights), strict=True):
        v.data = part
    return vector


def apart(model: Model) -> None:
    """Give every weight storage of its own again: a pickle holds the storage of each, whole."""
    for v in model.parameters():
        v.data = v.data.clone()


def averaged(model: Model, state: Mapping[str, Any]) -> None:
    """Give a model the averages that the state of a checkpoint holds, if there are any."""
    if averages := state.get("averages"):
        own = dict(model.named_parameters())
        weights = [own[name] for name in state.get("trained", own)]  # early checkpoints do not say: all
        with torch.no_grad():
            for v, part in zip(weights, _split(torch.cat([a.flatten() for a in averages]), weights), strict=True):
                v.copy_(part)


def _split(vector: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    parts = vector.split([v.numel() for v in weights])  # type: ignore[no-untyped-call]
    return [part.view_as(v) for part, v in zip(parts, weights, strict=True)]


def optimiser(weights: list[Tensor], config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """The optimiser of a config: fused, and on a GPU ready to be captured."""
    if config.optimiser == "lbfgs":
        return torch.optim.LBFGS(weights, lr=config.lr, max_iter=4, history_size=600)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    cuda = device.type == "cuda"
    lr = torch.tensor(config.lr, device=device) if cuda else config.lr
    made = kind(weights, lr, config.betas, weight_decay=config.weight_decay, fused=True, capturable=cuda)
    made._warned_capturable_if_run_uncaptured = True  # the first steps run uncaptured
    return made


def device_named(name: str | None) -> torch.device:
    """The device of this name; None is a GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device must be one that is here; got {name!r}: {str(error).splitlines()[0]}") from error
    return device


@contextlib.contextmanager
def compiled(model: Model, on: bool, kernels: bool = True) -> Iterator[None]:
    """The model's kernels in use, or else its regions compiled, for a while."""
    regions = [] if model.fuse(on and kernels) or not on else model.regions()
    text = bool(getattr(model.config, "vocabulary", 0))  # which comes in several widths
    for region in regions:
        region.compile(dynamic=text)
    try:
        if regions:  # one process may train many shapes, and past the limit torch falls back to eager
            with torch._dynamo.config.patch(recompile_limit=256):
                yield
        else:
            yield
    finally:
        model.fuse(False)
        for region in regions:
            region._compiled_call_impl = None


@contextlib.contextmanager
def plain(model: Model) -> Iterator[None]:
    """The model without kernels and compiled regions and in full float32, for a while."""
    regions = [(region, region._compiled_call_impl) for region in model.regions()]
    kernels = getattr(model, "fused", None) is not None
    model.fuse(False)
    for region, _ in regions:
        region._compiled_call_impl = None
    try:
        with tf32(False):
            yield
    finally:
        model.fuse(kernels)
        for region, impl in regions:
            region._compiled_call_impl = impl


@contextlib.contextmanager
def settings(precision: str, deterministic: bool, device: torch.device) -> Iterator[None]:
    """The matmul precision, determinism and stream of a run, for a while."""
    strict = torch.are_deterministic_algorithms_enabled()
    if deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(deterministic or strict)
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    try:
        with tf32(precision in ("tf32", "bf16")):
            if stream is None:
                yield
            else:
                stream.wait_stream(torch.cuda.current_stream(device))
                with torch.cuda.stream(stream):
                    yield
                torch.cuda.current_stream(device).wait_stream(stream)
    finally:
        torch.use_deterministic_algorithms(strict)
