"""What all models share: they are Algorithms, one frozen config makes them, and they save and load as folders."""

import contextlib
import inspect
import json
import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from huggingface_hub import ModelCard, PyTorchModelHubMixin, constants, hf_hub_download
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from algoformer.algorithm import Algorithm
from algoformer.checks import flags, number, one_of
from algoformer.files import replace_file
from algoformer.models.blocks import BlockConfig, Stack
from algoformer.models.tokens import Layout, interleaved, masked, paired, written
from algoformer.prompt import Chains, Dense, Prompt, Series, Text

M = TypeVar("M", bound="Model")
HUB = "revision", "cache_dir", "force_download", "local_files_only", "token"  # how a file is fetched
WIDEST = 1024  # a row must fit into one program of a kernel


class Model(nn.Module, Algorithm[Any, Any], PyTorchModelHubMixin):
    """A module that is an Algorithm. A looped model (limit None) runs past its steps; a layered one has no more.

    `truncatable`: do all weights still learn when only the last steps carry gradient? `any_labels`: does each label run
    alone, so that there may be any number?
    """

    config: Any
    truncatable: bool = False
    any_labels: bool = False

    def __init__(self, config: Any) -> None:
        wanted = _config_of(type(self))
        if isinstance(wanted, type) and not isinstance(config, wanted):
            raise TypeError(
                f"the config of {type(self).__name__} must be {wanted.__name__}; got {type(config).__name__}"
            )
        if is_dataclass(config):
            flags(config)
        super().__init__()
        self.config = config

    @property
    @abstractmethod
    def variant(self) -> str:
        """What a result must call this model."""

    def regions(self) -> list[nn.Module]:
        """The parts to compile, each on its own, so that the number of steps stays free."""
        return []

    def answers(self, p: Any, *, first: int, loops: int, gradient: int) -> Float[Tensor, "t b o k"]:
        """What the states `first` to `loops` say; the last `gradient` steps carry gradient."""
        return self.readings(p, self.visited(p, first=first, loops=loops, gradient=gradient))

    def visited(self, p: Any, *, first: int, loops: int, gradient: int) -> list[Any]:
        """The states `first` to `loops`; the last `gradient` steps carry gradient."""
        s = self.init(p)
        states = [s] if first == 0 else []
        for t in range(loops):
            with torch.set_grad_enabled(torch.is_grad_enabled() and bool(t >= loops - gradient)):
                s = self.step(p, s, t)
            if t + 1 >= first:
                states.append(s)
        return states

    def fuse(self, on: bool) -> bool:
        """Let hand-written kernels step in where they can, or no longer; says whether they do."""
        return False

    def fusible(self, p: Any) -> bool:
        """Is there a way through kernels for prompts like this one? Not where a mask is written out."""
        return not masked(p)

    def graphable(self, kernels: bool) -> bool:
        """May a training step, with or without kernels, be captured as a CUDA graph?"""
        return True

    def readings(self, p: Any, states: Sequence[Any]) -> Float[Tensor, "t b o k"]:
        """What several states of one prompt say; in one pass where the model can."""
        return torch.stack([self.read(p, s) for s in states])

    def forward(self, p: Any, steps: int | None = None) -> Float[Tensor, "b o k"]:
        """The predictions of the last state, finite or not."""
        q = self.prepare(p)
        for s in self.states(q, steps):  # noqa: B007  # the last one is read
            pass
        return self.read(q, s).reshape(p.asked)

    def prepare(self, p: Any) -> Any:
        q = super().prepare(p)
        values = q.chains if isinstance(q, Chains) else q.x
        mine = next(self.parameters())
        if values.dtype != mine.dtype or values.device != mine.device:
            raise ValueError(
                f"the prompt must be {mine.dtype} on {mine.device} as the model is; "
                f"got {values.dtype} on {values.device}"
            )
        if values.shape[-1] > self.config.features:
            raise ValueError(f"the prompt must have at most {self.config.features} features; got {values.shape[-1]}")
        if not self.any_labels and q.asked[2] != self.config.labels:
            raise ValueError(f"the prompt must ask answers of {self.config.labels} numbers; got {q.asked[2]}")
        return q

    def save_pretrained(self, save_directory: str | Path, *, config: Any = None, **options: Any) -> Any:
        """Write config.json and model.safetensors, in the Hugging Face manner; the config is the model's own."""
        context = {} if self.context is None else {"context": self.context}
        told = json.dumps({"model": type(self).__name__, **context, **asdict(self.config)}, default=number)
        if config not in (None, own := json.loads(told)):
            raise ValueError(f"config must be left out, or be the model's own; got {config}")
        return super().save_pretrained(save_directory, config=own, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        weights = {name: v.detach().contiguous().clone() for name, v in self.state_dict().items()}  # of a vector, maybe
        replace_file(save_directory / constants.SAFETENSORS_SINGLE_FILE, save(weights, metadata={"format": "pt"}))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """What the folder says of itself."""
        told = f"A model of the Python package AlgoFormer: `{type(self).__name__}.from_pretrained(FOLDER)` reads it."
        return ModelCard(f"---\nlibrary_name: algoformer\n---\n\n# {self.variant}\n\n{told}\n")

    @classmethod
    def from_pretrained(cls: type[M], pretrained_model_name_or_path: str | Path, **options: Any) -> M:
        """The model in a folder, or `owner/name` on the Hugging Face Hub."""
        name = str(pretrained_model_name_or_path)
        if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") != 1):
            raise ValueError(
                f"a model must be in a folder, or be owner/name on the Hugging Face Hub; got {name!r} "
                "(those that are shipped: algoformer.pretrained)"
            )
        for option in options:
            one_of("an option", option, HUB)
        about = Path(name) / constants.CONFIG_NAME
        try:
            json.loads(about.read_bytes() if about.is_file() else "{}")
        except ValueError as error:
            raise ValueError(f"{about} must be JSON; {error}") from error
        return super().from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def _from_pretrained(cls: type[M], *, model_id: str, config: Any = None, **options: Any) -> M:
        if config is None:
            raise ValueError(f"{model_id} must hold a config.json; got none")
        wanted = _config_of(cls)
        if isinstance(config, dict) and isinstance(wanted, type):  # whose annotation is a string
            config = wanted(**{f.name: config[f.name] for f in fields(wanted) if f.name in config})

        def place(name: str) -> str:
            if Path(model_id).is_dir():
                return str(Path(model_id) / name)
            return str(hf_hub_download(repo_id=model_id, filename=name, **{option: options[option] for option in HUB}))

        about = Path(place(constants.CONFIG_NAME))
        told = json.loads(about.read_bytes()) if about.is_file() else {}
        named, context = told.get("model"), told.get("context")
        if isinstance(named, str) and named not in {kind.__name__ for kind in cls.__mro__}:
            raise ValueError(f"{model_id} must hold a model of {cls.__name__}; its config.json names {named}")
        file = place(constants.SAFETENSORS_SINGLE_FILE)
        try:
            weights = load(Path(file).read_bytes())
        except OSError as error:
            raise ValueError(f"{file} must be a file that can be read; {error.strerror}") from error
        except SafetensorError as error:
            raise ValueError(f"{file} must be a safetensors file; {error}") from error
        model = cls(config)
        load_weights(model, weights, file)
        if context is not None:
            model.context = context
        return model.eval()


def _config_of(kind: type[Model]) -> Any:
    """What the class of a model says its config is; of a string that is no name in its module, the string."""
    for parent in kind.__mro__:
        if (wanted := inspect.get_annotations(parent).get("config", Any)) is not Any:
            return getattr(sys.modules[parent.__module__], wanted, wanted) if isinstance(wanted, str) else wanted
    raise TypeError(f"{kind.__name__} must say of which class its config is, as in `config: MyConfig`; it does not")


class Layered:
    """A model with a fixed number of layers: a step is a layer, and there are no more."""

    config: Any

    @property
    def steps(self) -> int:
        return int(self.config.layers)

    @property
    def limit(self) -> int:
        return int(self.config.layers)


class SequenceModel(Model):
    """A model of tokens in a residual stream: a read-in, positions, blocks, a read-out.

    One of text reads a token as a row of its embedding, and scores a token by the product with that row.
    """

    config: BlockConfig
    fused: Any = None

    def __init__(self, config: BlockConfig) -> None:
        super().__init__(config)
        inputs = max(config.features, config.labels) if config.causal else config.features + config.labels
        self.embed: nn.Linear | nn.Embedding = (
            nn.Embedding(config.vocabulary, config.width) if config.vocabulary else nn.Linear(inputs, config.width)
        )
        self.places = nn.Embedding(config.positions, config.width) if config.positions else None

    @property
    def kinds(self) -> tuple[type, ...]:  # type: ignore[override]
        if self.config.vocabulary:
            return (Text,)
        return (Prompt, Dense, Series, Chains) if self.config.causal else (Prompt, Series)

    def prepare(self, p: Any) -> Any:
        if not isinstance(p, Text) or not self.config.vocabulary:
            return super().prepare(p)
        mine = self.embed.weight
        if p.vocabulary != self.config.vocabulary or p.tokens.device != mine.device:
            raise ValueError(
                f"the text must have a vocabulary of {self.config.vocabulary} on {mine.device} as the model has; "
                f"got {p.vocabulary} on {p.tokens.device}"
            )
        return p

    @abstractmethod
    def endings(self, states: Sequence[Any]) -> Float[Tensor, "t b o _"]:
        """What `answer` gives for several states of one prompt: labels, or of text the streams that are scored."""

    def scores(self, h: Float[Tensor, "*c e"]) -> Float[Tensor, "*c _"]:
        """The score of every token of the vocabulary; labels as they are."""
        return F.linear(h, self.embed.weight) if self.config.vocabulary else h

    def unscored(self, p: Any, *, first: int, loops: int, gradient: int) -> Float[Tensor, "t b o _"]:
        """As `answers`, before a vocabulary is scored."""
        return self.endings(self.visited(p, first=first, loops=loops, gradient=gradient))

    def answers(self, p: Any, *, first: int, loops: int, gradient: int) -> Tensor:
        return self.scores(self.unscored(p, first=first, loops=loops, gradient=gradient))

    def read(self, p: Any, s: Any) -> Tensor:
        return self.scores(self.endings([s])[0])

    def readings(self, p: Any, states: Sequence[Any]) -> Tensor:
        return self.scores(self.endings(states))

    def tokens(self, p: Any) -> tuple[Float[Tensor, "b s width"] | Int[Tensor, "b s"], Layout]:
        """The prompt as tokens, within the positions there are."""
        c = self.config
        values: Tensor
        if isinstance(p, Text):
            values, layout = written(p)
        elif c.causal:
            values, layout = interleaved(p, max(c.features, c.labels))
        else:
            values, layout = paired(p, c.features, c.labels)
        used = values.shape[1] - max(p.queries.shape[1] - 1, 0) if isinstance(p, Prompt) else values.shape[1]
        if c.positions and used > c.positions and isinstance(p, Prompt):  # unseen pairs have no places
            used = int(layout.places.max()) + 1 if values.shape[1] else 0
        if c.positions and used > c.positions:
            raise ValueError(f"positions must be at least the prompt's {used} tokens; got {c.positions}")
        return values, layout

    def fuse(self, on: bool) -> bool:
        """Causal softmax attention in float32 on a GPU, with Triton."""
        c, weight = self.config, self.embed.weight
        fits = c.causal and c.attention == "softmax" and c.width <= WIDEST
        run = None
        if on and fits and weight.is_cuda and weight.dtype == torch.float32:
            with contextlib.suppress(ImportError):
                from algoformer.models import fused

                run = fused.run
        self.passed_by(run)
        return run is not None

    def passed_by(self, run: Any) -> None:
        """Let this function stand for stacks of blocks where no mask is written out; None: the blocks themselves."""
        self.fused = run
        for part in self.modules():
            if isinstance(part, Stack):
                part.fused = run

    def entered(self, values: Tensor, layout: Layout) -> Float[Tensor, "b s e"]:
        """The tokens read in, at their places."""
        if self.places is None or isinstance(self.embed, nn.Embedding):
            read: Tensor = self.embed(values) + self.placed(layout)
            return read
        bias = self.embed.bias + self.placed(layout)  # so that one sum over the batch gives both gradients
        return F.linear(values, self.embed.weight) + bias

    def placed(self, layout: Layout) -> Float[Tensor, "#b s e"] | float:
        """The embedding of the tokens' places."""
        return 0.0 if self.places is None else self.places(layout.places)


def load_weights(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Put weights into a model of exactly their names and shapes, which takes their dtype."""
    wanted = {name: tuple(v.shape) for name, v in model.state_dict().items()}
    got = {name: tuple(v.shape) for name, v in weights.items()}
    if wanted != got:
        first = min(name for name in wanted.keys() | got.keys() if wanted.get(name) != got.get(name))
        raise ValueError(f"{source} must hold {first} {wanted.get(first)} as the config says; got {got.get(first)}")
    dtypes = {v.dtype for v in weights.values() if v.is_floating_point()}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    model.load_state_dict(weights)
