"""Writing a text on: greedily or by beam search, every token read once.

A looped model remembers the keys and values of each of its loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algoformer.checks import real, whole
from algoformer.models.attention import Attention
from algoformer.models.model import SequenceModel
from algoformer.models.past import Past
from algoformer.prompt import Text


def greedy(
    model: SequenceModel, text: Text, *, end: int, most: int | Int[Tensor, " b"], steps: int | None = None
) -> list[list[int]]:
    """The most likely token again and again until `end`, at most `most` of them; `steps` are layers or loops.

    The text holds sources and separators alone: row i is whole at begin_i, what follows is padding. `most` may be one
    number a row; what is written for a row does not depend on the others.
    """
    limit = _room(model, text, most)
    longest = int(limit.max())
    with _reader(model, text, steps) as reader:
        scores = reader.source()
        written = text.tokens.new_empty(len(text.tokens), 0)
        done = text.tokens.new_zeros(len(text.tokens), dtype=torch.bool)
        while written.shape[1] < longest:
            best = scores.argmax(1).where(~done, end)
            written = torch.cat([written, best[:, None]], 1)
            done = done | (best == end) | (written.shape[1] >= limit)
            if bool(done.all()):
                break
            scores = reader.next(best)
    return [_until(row[:size], end) for row, size in zip(written.tolist(), limit.tolist(), strict=True)]


def beam(
    model: SequenceModel,
    text: Text,
    *,
    end: int,
    most: int | Int[Tensor, " b"],
    width: int = 5,
    alpha: float = 1.0,
    steps: int | None = None,
) -> list[list[int]]:
    """The finished text of largest log p / length^alpha that a beam of `width` finds, `end` counted in the length.

    A beam is left when nothing it could still write would be better than its best finished text. Where none is
    finished after `most` tokens, the most likely unfinished one is taken.
    """
    whole("width", width, 1)
    real("alpha", alpha, least=0)
    limit = _room(model, text, most)
    b, v = len(text.tokens), text.vocabulary
    with _reader(model, text, steps) as reader:
        logs = reader.source().log_softmax(1)[:, None]  # one hypothesis to begin with
        total = logs.new_zeros(b, 1)
        written = text.tokens.new_empty(b, 1, 0)
        best = logs.new_full((b,), -torch.inf)
        least = limit.to(best.dtype) ** alpha  # a log p is divided by no more
        row = torch.arange(b, device=best.device)
        found = text.tokens.new_zeros(b, int(limit.max()))
        size = torch.zeros_like(limit)
        for length in range(1, found.shape[1] + 1):
            alive = total.shape[1]
            score, at = (total[:, :, None] + logs).flatten(1).topk(min(2 * width, alive * v))
            parent, token = at // v, at % v
            ends = token == end
            worth = (score / length**alpha).where(ends & (length <= limit)[:, None], -torch.inf)
            top, which = worth.max(1)
            better = top > best
            found[:, : length - 1] = written[row, parent[row, which]].where(better[:, None], found[:, : length - 1])
            size = size.where(~better, length - 1)
            best = torch.maximum(best, top)
            total, keep = score.where(~ends, -torch.inf).topk(min(width, score.shape[1]))
            parent, token = parent.gather(1, keep), token.gather(1, keep)
            before = written.gather(1, parent[:, :, None].expand(-1, -1, written.shape[2]))
            written = torch.cat([before, token[:, :, None]], 2)
            unfinished = (limit == length) & (best == -torch.inf)
            found[:, :length] = written[:, 0].where(unfinished[:, None], found[:, :length])
            size = size.where(~unfinished, length)
            if bool(((length >= limit) | (total[:, 0] / least <= best)).all()):
                break
            reader.select((row[:, None] * alive + parent).flatten())
            logs = reader.next(token.flatten()).log_softmax(1).view(b, -1, v)
    return [tokens[:n] for tokens, n in zip(found.tolist(), size.tolist(), strict=True)]


class _Reader:
    """A model that reads a source, and then token after token."""

    def __init__(self, model: SequenceModel, text: Text, steps: int | None, pasts: list[Past]) -> None:
        self.model, self.text, self.steps, self.pasts = model, text, steps, pasts
        self.place = text.begin

    def source(self) -> Float[Tensor, "b v"]:
        s = self.text.tokens.shape[1]
        seen = torch.arange(s, device=self.place.device) < self.place[:, None]
        h = self._ending(self.text, seen)
        return self.model.scores(h[torch.arange(len(h), device=h.device), self.place - 1])

    def next(self, tokens: Int[Tensor, " c"]) -> Float[Tensor, "c v"]:
        t = self.text
        seen = torch.ones(len(tokens), 1, dtype=torch.bool, device=tokens.device)
        positions = self.model.config.positions
        place = self.place.clamp(max=positions - 1) if positions else self.place  # a row that has ended reads on
        more = Text(tokens[:, None], place, t.vocabulary, first=place, check=False)
        self.place = self.place + 1
        return self.model.scores(self._ending(more, seen)[:, 0])

    def select(self, rows: Int[Tensor, " c"]) -> None:
        self.place = self.place[rows]
        for past in self.pasts:
            past.select(rows)

    def _ending(self, text: Text, seen: Tensor) -> Tensor:
        for past in self.pasts:
            past.begin(seen)
        q = self.model.prepare(text)
        for state in self.model.states(q, self.steps):  # noqa: B007  # the last one is read
            pass
        return self.model.endings([state])[0]


@contextmanager
def _reader(model: SequenceModel, text: Text, steps: int | None) -> Iterator[_Reader]:
    layers = [part for part in model.modules() if isinstance(part, Attention)]
    if any(layer.kind != "softmax" for layer in layers):
        raise ValueError("attention must be softmax for a text to go on; got another kind")
    pasts = [Past() for _ in layers]
    training, fused = model.training, model.fused is not None
    model.eval()
    model.fuse(False)  # kernels remember nothing
    for layer, past in zip(layers, pasts, strict=True):
        layer.past = past
    try:
        with torch.no_grad():
            yield _Reader(model, text, steps, pasts)
    finally:
        for layer in layers:
            layer.past = None
        model.fuse(fused)
        model.train(training)


def _room(model: SequenceModel, text: Text, most: int | Tensor) -> Int[Tensor, " b"]:
    """How many tokens may follow each row: no more than there are positions."""
    whole("most", int(most.min()) if isinstance(most, Tensor) else most, 1)
    if text.first is not None or int(text.begin.min()) < 1:
        raise ValueError("a source must begin at place 0 and end with its separator")
    limit = torch.as_tensor(most, device=text.begin.device).expand_as(text.begin)
    positions = model.config.positions
    if positions:
        limit = torch.minimum(limit, positions + 1 - text.begin)  # the last token written need not be read
        if int(limit.min()) < 1:
            raise ValueError(f"the source must leave room below {positions} positions; got {int(text.begin.max())}")
    return limit


def _until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
