"""Translators: a model with its tokenizer, how it is trained and chosen, what it writes, and how good that is."""

from __future__ import annotations

import copy
import json
import math
import signal
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import one_of, whole
from algoformer.files import replace_file
from algoformer.models.decoding import beam, greedy
from algoformer.models.model import SequenceModel
from algoformer.prompt import Text
from algoformer.tasks.byte_pairs import END, PAD, SEP, BytePairs
from algoformer.tasks.translation import Lines, Parallel, packed
from algoformer.training import checkpoint
from algoformer.training.config import TrainConfig
from algoformer.training.folders import load
from algoformer.training.loop import Progress, train
from algoformer.training.step import plain


@dataclass(frozen=True, eq=False)
class Translator:
    """A model of text with its tokenizer: `translator(["Guten Morgen"])`, greedily or by a beam.

    `longest` are the tokens a sentence and its translation may have together. A source of more than half of them is
    cut there, and `cut` counts such sources. A translation ends after twice the tokens of its source and twelve.
    """

    model: SequenceModel
    tokenizer: BytePairs
    mask: Literal["causal", "prefix"] = "causal"
    longest: int = 128

    def __post_init__(self) -> None:
        one_of("mask", self.mask, ("causal", "prefix"))
        whole("longest", self.longest, 4)
        if not isinstance(self.model, SequenceModel) or not self.model.config.vocabulary:
            raise ValueError("model must be one of text, with a vocabulary; got one of numbers")
        if self.tokenizer.size > self.model.config.vocabulary:
            raise ValueError(
                f"the vocabulary must hold the tokenizer's {self.tokenizer.size} tokens; "
                f"got {self.model.config.vocabulary}"
            )

    @classmethod
    def of(cls, model: SequenceModel, task: Parallel) -> Translator:
        """The translator of a task."""
        return cls(model, task.tokenizer, task.mask, task.longest)

    @staticmethod
    def is_in(path: str | Path) -> bool:
        """Is the model in a folder a translator?"""
        return (_home(Path(path)) / "text.json").is_file()

    @classmethod
    def load(cls, path: str | Path) -> Translator:
        """The translator in a folder: a run's, one of its checkpoints, or a saved model with tokenizer.json."""
        folder = Path(path)
        home = _home(folder)
        model = load(folder).float()
        try:
            about = json.loads((home / "text.json").read_bytes())
            tokenizer = BytePairs((home / "tokenizer.json").read_text(encoding="utf-8"))
            return cls(model, tokenizer, about["mask"], about["longest"])  # type: ignore[arg-type]
        except (OSError, KeyError, TypeError) as error:
            raise ValueError(f"{home} must hold the tokenizer.json and text.json of a translator; {error}") from error

    def save(self, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """Write a folder that `load` reads; in torch.float16 it is half the size."""
        folder = Path(path)
        same = self.model.embed.weight.dtype == dtype
        (self.model if same else copy.deepcopy(self.model).to(dtype)).save_pretrained(folder)
        replace_file(folder / "tokenizer.json", self.tokenizer.definition.encode())
        replace_file(folder / "text.json", json.dumps({"mask": self.mask, "longest": self.longest}).encode())

    def __call__(
        self, sentences: Iterable[str], *, width: int = 1, steps: int | None = None, batch: int = 64
    ) -> list[str]:
        """A translation of each sentence: greedy, or the best of a beam of `width`; `steps` are layers or loops."""
        whole("width", width, 1)
        whole("batch", batch, 1)
        given = _strings(sentences)
        sources = [source[: self.longest // 2] for source in self.tokenizer.encode(given)]
        asked = [i for i, sentence in enumerate(given) if sentence.strip()]  # nothing is translated as nothing
        order = sorted(asked, key=lambda i: len(sources[i]))
        found: list[list[int]] = [[] for _ in sources]
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            text = self._text([sources[i] for i in some])
            most = torch.minimum(self.longest + 1 - text.begin, 2 * text.begin + 10)
            options: dict[str, Any] = {"end": END, "most": most, "steps": steps}
            rows = greedy(self.model, text, **options) if width == 1 else beam(self.model, text, width=width, **options)
            for i, row in zip(some, rows, strict=True):
                found[i] = row
        return self.tokenizer.decode(found)

    def cut(self, sentences: Sequence[str]) -> int:
        """How many sources are too long to be read whole."""
        return sum(len(source) > self.longest // 2 for source in self.tokenizer.encode(sentences))

    def _text(self, sources: list[list[int]]) -> Text:
        begin = torch.tensor([len(source) + 1 for source in sources])
        width = int(begin.max())
        tokens = torch.tensor([[*source, SEP] + [PAD] * (width - len(source) - 1) for source in sources])
        device = self.model.embed.weight.device
        return Text(tokens.to(device), begin.to(device), self.model.config.vocabulary, self.mask, check=False)


def _home(folder: Path) -> Path:
    """The folder of a run, given it or one of its checkpoints."""
    return folder.parent.parent if checkpoint.NAME.fullmatch(folder.name) else folder


@dataclass(frozen=True, kw_only=True)
class Entropy:
    """Cross-entropy in nats after each of `steps` layers or loops: by token (the end is one) and by word of the target.

    `long` pairs had more tokens than there are positions and were left out.
    """

    variant: str
    pairs: int
    tokens: int
    words: int
    long: int
    steps: list[int]
    per_token: list[float]
    per_word: list[float]


def entropy(translator: Translator, lines: Lines, *, steps: Sequence[int] | None = None, batch: int = 8192) -> Entropy:
    """How well the references are predicted, after each of `steps` (None: the model's own); never smoothed."""
    if steps is not None and not len(steps):
        raise ValueError("steps must hold at least one number of steps; got none")
    return _References(translator, lines, batch).entropy(steps)


class _References:
    """Sentences and their translations as the tokens that a translator is asked, encoded once."""

    def __init__(self, translator: Translator, lines: Lines, batch: int = 8192) -> None:
        self.model = model = translator.model
        device = model.embed.weight.device
        encoded = list(zip(*(translator.tokenizer.encode(side) for side in lines[:2]), lines.target, strict=True))
        short = [(a, b, words) for a, b, words in encoded if len(a) + len(b) + 1 <= translator.longest]
        if not short:
            raise ValueError(f"a pair must have at most {translator.longest} tokens to be scored; all are longer")
        short.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        self.pairs, self.long = len(short), len(encoded) - len(short)
        self.tokens = sum(len(b) + 1 for _, b, _ in short)
        self.words = sum(len(words.split()) for *_, words in short)
        self.batches: list[tuple[Text, Tensor, Tensor]] = []
        for some in _batches(short, batch):
            tokens, begin = (v.to(device) for v in packed([(a, b) for a, b, _ in some]))
            at = torch.arange(tokens.shape[1] - 1, device=device)
            target = tokens[:, 1:].where(at >= begin[:, None] - 1, PAD).flatten()
            text = Text(tokens[:, :-1], begin, model.config.vocabulary, translator.mask, check=False)
            asked = target.nonzero()[:, 0]
            self.batches.append((text, asked, target[asked]))

    def entropy(self, steps: Sequence[int] | None = None) -> Entropy:
        """How well the model, as it is now, predicts them."""
        wanted = sorted(set(steps)) if steps is not None else [self.model.steps]
        totals = self.losses(wanted)[0]
        return Entropy(
            variant=self.model.variant,
            pairs=self.pairs,
            tokens=self.tokens,
            words=self.words,
            long=self.long,
            steps=wanted,
            per_token=(totals / self.tokens).tolist(),
            per_word=(totals / self.words).tolist(),
        )

    @torch.no_grad()
    def losses(self, steps: Sequence[int], smoothing: float = 0.0) -> Float[Tensor, "2 t"]:
        """The sums over their tokens of the cross-entropy and of the smoothed one."""
        model = self.model
        training = model.training
        model.eval()
        totals = torch.zeros(2, len(steps), dtype=torch.float64, device=model.embed.weight.device)
        for text, asked, target in self.batches:
            states = (s for t, s in enumerate(model.states(model.prepare(text), steps[-1])) if t in steps)
            for i, state in enumerate(states):
                scores = model.scores(model.endings([state])[0].flatten(0, 1)[asked]).float()
                for kind, share in enumerate((0.0, smoothing) if smoothing else (0.0,)):
                    totals[kind, i] += F.cross_entropy(scores, target, reduction="sum", label_smoothing=share).double()
        if not smoothing:
            totals[1] = totals[0]
        model.train(training)
        return totals.cpu()


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Translations beside their references: BLEU and chrF as sacrebleu signs them, and the share of exact matches."""

    bleu: float
    chrf: float
    exact: float
    cut: int
    signatures: list[str]
    translations: list[str] = field(repr=False)


def quality(
    translator: Translator, lines: Lines, *, width: int = 1, steps: int | None = None, batch: int = 64
) -> Quality:
    """Translate the sources and score them, detokenised and cased, against the references as they are."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise ImportError("BLEU needs sacrebleu: pip install 'algoformer[translation]'") from error

    if not lines.source:
        raise ValueError("lines must hold at least one pair to be scored; got none")
    found = translator(lines.source, width=width, steps=steps, batch=batch)
    metrics: list[Any] = [BLEU(tokenize="13a"), CHRF()]
    scores = [metric.corpus_score(found, [lines.target]).score for metric in metrics]
    same = sum(a == b for a, b in zip(found, lines.target, strict=True))
    return Quality(
        bleu=scores[0],
        chrf=scores[1],
        exact=same / len(found),
        cut=translator.cut(lines.source),
        signatures=[f"{m.__class__.__name__}|{m.get_signature()}" for m in metrics],
        translations=found,
    )


@dataclass(frozen=True, kw_only=True)
class Course:
    """Cross-entropy per token of the validation pairs at some steps, the best of these, and steps a second.

    `trained` is the loss as it is trained, smoothed where labels are; the best look has the lowest.
    """

    steps: list[int]
    per_token: list[float]
    trained: list[float]
    best: int
    rate: float


def validated(
    model: SequenceModel,
    task: Parallel,
    config: TrainConfig,
    folder: str | Path | None = None,
    *,
    checks: int = 20,
    pairs: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Course:
    """Train a model of text, look at the validation pairs (the first `pairs` of them) at `checks` steps, keep the best.

    The model ends with the weights of the best look. With a folder the run goes on where it stopped, and the best
    translator so far is in `best`. When `stop` says so the run writes a checkpoint and is interrupted.
    """
    whole("checks", checks, 1)
    if pairs is not None:
        whole("pairs", pairs, 1)
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise ValueError(f"validated must run in one process; got {dist.get_world_size()}")
    if config.ema:
        raise ValueError(f"ema must be 0 where looks choose the weights; got {config.ema}")
    every = max(1, config.steps // checks)
    config = replace(config, log_every=math.gcd(config.log_every, every))
    home = None if folder is None else Path(folder)
    lines = task.lines("valid")
    lines = lines._replace(source=lines.source[:pairs], target=lines.target[:pairs])
    translator = Translator.of(model, task)
    references = _References(translator, lines)
    found: dict[int, list[float]] = {}
    rates: list[float] = []
    if home is not None and (home / "valid.json").exists():
        found = {int(step): values for step, values in json.loads((home / "valid.json").read_bytes()).items()}
    best: dict[str, Tensor] = {}

    def look(p: Progress) -> None:
        rates.append(p.rate)
        if p.step % every == 0 or p.step == p.steps:
            with plain(model):
                values = (references.losses([model.steps], config.smoothing)[:, 0] / references.tokens).tolist()
                if values[1] <= min((trained for _, trained in found.values()), default=math.inf):
                    best.update({name: v.detach().clone() for name, v in model.state_dict().items()})
                    if home is not None:
                        translator.save(home / "best")
            found[p.step] = values
            if home is not None:
                replace_file(home / "valid.json", json.dumps(found).encode())
        if stop is not None and stop():
            signal.raise_signal(signal.SIGINT)

    train(model, task, config, home, progress=look)
    if home is not None:  # also what ran before an interruption
        rates = [json.loads(line)["rate"] for line in (home / "timing.jsonl").read_text().splitlines()]
    if best:
        model.load_state_dict(best)
    elif home is not None:
        model.load_state_dict(load(home / "best").state_dict())
    order = sorted(found)
    return Course(
        steps=order,
        per_token=[found[step][0] for step in order],
        trained=[found[step][1] for step in order],
        best=min(order, key=lambda step: found[step][1]),
        rate=statistics.median(rates[len(rates) // 2 :]) if rates else math.nan,
    )


def _strings(sentences: Iterable[str]) -> list[str]:
    """Sentences that can be read, in a list; one string would be read letter by letter."""
    if isinstance(sentences, str):
        raise TypeError(f"sentences must be a list of strings; got the string {sentences!r}")
    given = list(sentences)
    for sentence in given:
        if not isinstance(sentence, str):
            raise TypeError(f"sentences must be strings; got {sentence!r}")
        try:
            sentence.encode()
        except UnicodeEncodeError:
            raise ValueError(f"sentences must be strings of whole characters; got {sentence!r}") from None
    return given


def _batches(pairs: Sequence[Any], size: int) -> Iterator[list[Any]]:
    """Pairs in order of length, in batches of at most `size` tokens."""
    some: list[Any] = []
    for pair in pairs:
        if some and (len(some) + 1) * (len(pair[0]) + len(pair[1]) + 1) > size:
            yield some
            some = []
        some.append(pair)
    if some:
        yield some
