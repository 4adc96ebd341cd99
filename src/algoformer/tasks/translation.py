"""Translation as one sequence, [source] <sep> [target], whose target is asked (Gao et al. 2024, section 5.5)."""

from __future__ import annotations

import gzip
import json
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from algoformer.checks import one_of, whole
from algoformer.prompt import Text
from algoformer.task import Sample, Task, Truth
from algoformer.tasks.byte_pairs import BYTES, END, PAD, SEP, SPECIAL, BytePairs
from algoformer.tasks.pairs import drawable

PADDING = 0.1  # of the cells of all batches, at most; lengths share as few widths as that takes


class Lines(NamedTuple):
    """Sentences and their translations, and how many pairs were left out because a side is empty."""

    source: list[str]
    target: list[str]
    empty: int = 0


class Bucket(NamedTuple):
    """Pairs of about one length as rows [source] <sep> [target] <end>, padded; and where each target begins."""

    tokens: Int[Tensor, "n s"]
    begin: Int[Tensor, " n"]

    def rows(self, batch: int) -> int:
        """How many rows make a batch of so many tokens; the last one is asked and not read."""
        return max(1, batch // (self.tokens.shape[1] - 1))


class Corpus(NamedTuple):
    """The training pairs in buckets, how many pairs were too long for it, and the share of padding in all batches."""

    buckets: tuple[Bucket, ...]
    long: int
    padding: float


@dataclass(frozen=True, kw_only=True)
class Parallel(Task[Text]):
    """Pairs of sentences: a sample is a batch of `batch` tokens, padding included, of pairs of about one length.

    Byte pairs are trained on the training text of both languages together. Every training pair is equally likely, and
    drawn with replacement. A pair of more than `longest` tokens is left out of training, and counted.
    """

    vocabulary: int = 8000
    mask: Literal["causal", "prefix"] = "causal"
    longest: int = 128

    def __post_init__(self) -> None:
        whole("vocabulary", self.vocabulary, BYTES + SPECIAL)
        whole("longest", self.longest, 3)
        one_of("mask", self.mask, ("causal", "prefix"))

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the parts of the data, "train" first."""

    @abstractmethod
    def read(self, split: str) -> Lines:
        """The sentences of a split."""

    def lines(self, split: str = "train") -> Lines:
        """The sentences of a split, read once."""
        one_of("split", split, self.splits)
        return _lines(self._plain, split)

    @property
    def tokenizer(self) -> BytePairs:
        """The byte pairs of the training text."""
        return _tokenizer(self._plain)

    @property
    def corpus(self) -> Corpus:
        """The training pairs as tokens."""
        return _corpus(self._plain)

    @property
    def account(self) -> str:
        """What is trained on and what is left out, in a sentence."""
        lines, corpus = self.lines(), self.corpus
        count = sum(len(bucket.tokens) for bucket in corpus.buckets)
        return (
            f"{count:,} training pairs in {len(corpus.buckets)} widths with {100 * corpus.padding:.1f} % padding; "
            f"{lines.empty:,} with an empty side and {corpus.long:,} of more than {self.longest} tokens are left out"
        )

    @property
    def files(self) -> dict[str, bytes]:
        about = json.dumps({"mask": self.mask, "longest": self.longest})
        return {"tokenizer.json": self.tokenizer.definition.encode(), "text.json": about.encode()}

    def sample(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Sample[Text]:
        drawable(batch, generator, dtype)
        chances = torch.tensor([chance for chance, _ in self.shapes(batch)])
        draw = torch.rand((), generator=generator, device=generator.device)
        bucket = self.corpus.buckets[int((draw.cpu() * chances.sum() > chances.cumsum(0)[:-1]).sum())]
        rows = torch.randint(
            len(bucket.tokens), (bucket.rows(batch),), generator=generator, device=generator.device
        ).cpu()
        tokens, begin = bucket.tokens[rows].to(generator.device), bucket.begin[rows].to(generator.device)
        return self.asked(tokens, begin)

    def shapes(self, batch: int) -> Iterator[tuple[float, Bucket]]:
        """The chance of each bucket in a sample, so that every pair has the same."""
        total = sum(len(k.tokens) / k.rows(batch) for k in self.corpus.buckets)
        for bucket in self.corpus.buckets:
            yield len(bucket.tokens) / bucket.rows(batch) / total, bucket

    def asked(self, tokens: Int[Tensor, "b s"], begin: Int[Tensor, " b"]) -> Sample[Text]:
        """Rows [source] <sep> [target] <end> as prompts, and the tokens they ask; padding where none is asked."""
        at = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        target = tokens[:, 1:].where(at >= begin[:, None] - 1, PAD)
        # The end is asked and never read: it may stand in the prompt, where nothing that counts sees it.
        prompt = Text(tokens[:, :-1], begin, self.vocabulary, self.mask, check=False)
        return Sample(prompt, target, Truth(target, begin))

    @property
    def _plain(self) -> Parallel:
        """The task without what its tokens do not depend on."""
        return replace(self, mask="causal")


@dataclass(frozen=True, kw_only=True)
class Translation(Parallel):
    """Pairs from aligned files DATA/{train,valid,test}.{source,target}, plain or .gz: a sentence a line, UTF-8.

    Lines are stripped; a pair with an empty side is left out, and counted.
    """

    data: str = ""
    source: str = "de"
    target: str = "en"

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "valid", "test")

    def check(self) -> None:
        """Hold the folder to its six files, and the sides of valid and test to each other: not at the end of a run."""
        for split in self.splits:
            self._sides(split)
        for split in self.splits[1:]:
            self.read(split)

    def read(self, split: str) -> Lines:
        sides = self._sides(split)
        source, target = (_read(side) for side in sides)
        if len(source) != len(target):
            raise ValueError(
                f"{sides[0].name} and {sides[1].name} must have as many lines; got {len(source)} and {len(target)}"
            )
        pairs = [(a, b) for a, b in zip(source, target, strict=True) if a and b]
        if not pairs:
            raise ValueError(f"{sides[0].name} must hold a sentence; got none")
        return Lines([a for a, _ in pairs], [b for _, b in pairs], len(source) - len(pairs))

    def _sides(self, split: str) -> list[Path]:
        if not self.data:
            raise ValueError("data must be a folder of {train,valid,test}.{de,en}, plain or .gz (--data); got none")
        return [_file(Path(self.data), f"{split}.{language}") for language in (self.source, self.target)]


def packed(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Bucket:
    """Pairs as rows, padded to the longest."""
    sizes = torch.tensor([len(a) + len(b) + 2 for a, b in pairs])
    every = chain.from_iterable(chain(a, (SEP,), b, (END,)) for a, b in pairs)
    tokens = torch.full((len(pairs), int(sizes.max())), PAD)
    here = torch.arange(tokens.shape[1]) < sizes[:, None]
    tokens[here] = torch.from_numpy(np.fromiter(every, np.int64, int(sizes.sum())))
    return Bucket(tokens, torch.tensor([len(a) + 1 for a, _ in pairs]))


def widths(lengths: Sequence[int], padding: float = PADDING) -> list[int]:
    """The fewest widths that lengths can be padded to with at most this share of padding, and of these the best.

    With k widths, the least number of cells is a shortest path over the lengths there are.
    """
    counts: dict[int, int] = {}
    for length in lengths:
        counts[length] = counts.get(length, 0) + 1
    edges = sorted(counts)
    below = [0]
    for edge in edges:
        below.append(below[-1] + counts[edge])
    real = sum(lengths)
    n = len(edges)
    cells = [below[j + 1] * edges[j] for j in range(n)]  # all lengths up to the j-th in one width
    chosen = [[edges[j]] for j in range(n)]
    while 1 - real / cells[-1] > padding and len(chosen[-1]) < n:
        best = [
            min(((cells[i] + (below[j + 1] - below[i + 1]) * edges[j], i) for i in range(j)), default=(cells[j], -1))
            for j in range(n)
        ]
        chosen = [[*(chosen[i] if i >= 0 else []), edges[j]] for j, (_, i) in enumerate(best)]
        cells = [c for c, _ in best]
    return chosen[-1]


@lru_cache(maxsize=8)
def _lines(task: Parallel, split: str) -> Lines:
    return task.read(split)


@lru_cache(maxsize=4)
def _tokenizer(task: Parallel) -> BytePairs:
    lines = task.lines()
    return BytePairs.trained([*lines.source, *lines.target], task.vocabulary)


@lru_cache(maxsize=4)
def _corpus(task: Parallel) -> Corpus:
    lines = task.lines()
    pairs = list(zip(*(task.tokenizer.encode(side) for side in lines[:2]), strict=True))
    short = [(a, b) for a, b in pairs if len(a) + len(b) + 1 <= task.longest]
    if not short:
        raise ValueError(f"longest must let a training pair through; got {task.longest}")
    lengths = [len(a) + len(b) + 1 for a, b in short]
    edges = widths(lengths)
    homes: dict[int, list[Any]] = {edge: [] for edge in edges}
    place = {length: min(e for e in edges if e >= length) for length in set(lengths)}
    for pair, length in zip(short, lengths, strict=True):
        homes[place[length]].append(pair)
    cells = sum(len(home) * edge for edge, home in homes.items())
    buckets = tuple(packed(home) for home in homes.values())
    return Corpus(buckets, len(pairs) - len(short), 1 - sum(lengths) / cells)


def _file(folder: Path, name: str) -> Path:
    found = [file for file in (folder / name, folder / f"{name}.gz") if file.is_file()]
    if len(found) != 1:
        raise ValueError(f"{folder} must hold either {name} or {name}.gz; got {'both' if found else 'neither'}")
    return found[0]


def _read(file: Path) -> list[str]:
    """The stripped lines of a file; only a line feed ends a line, since others would break the alignment."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} must be a gzip file; {error}") from error
    lines = data.removesuffix(b"\n").split(b"\n")
    try:
        return [line.decode().strip() for line in lines]
    except UnicodeDecodeError:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"{file} must be UTF-8; line {number} is not: {error}") from None
        raise
