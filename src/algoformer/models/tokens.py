"""Prompts as sequences of tokens: interleaved for causal models (Garg et al. 2022), paired for encoders."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from algoformer.prompt import Chains, Dense, Prompt, Series, Text

# Without a mask every token attends to itself and to those before it; with one number for each sequence also to its
# first tokens, so many; else to those it says.
Mask = Bool[Tensor, "b s s"] | Int[Tensor, " b"] | None


def shown(mask: Mask, s: int) -> Bool[Tensor, "b s s"] | None:
    """The mask written out, but for None."""
    if mask is None or mask.dim() == 3:
        return mask
    at = torch.arange(s, device=mask.device)
    return (at[:, None] >= at) | (at < mask[:, None, None])


def repeated(mask: Mask, times: int) -> Bool[Tensor, "c s s"] | Int[Tensor, " c"] | None:
    """The mask of a batch that is there so many times."""
    return mask if mask is None or times == 1 else torch.cat([mask] * times)


class Layout(NamedTuple):
    """Where each token stands, which tokens it may attend to (`Mask`), and which tokens are read."""

    places: Int[Tensor, "#b s"]
    mask: Mask
    rows: slice | Int[Tensor, " o"]


def interleaved(p: Any, width: int) -> tuple[Float[Tensor, "b s width"], Layout]:
    """Tokens x_1, y_1, x_2, y_2, ..., each at the front of a zero-padded vector; read at the tokens of x.

    Unseen pairs are moved behind the seen ones, where nothing attends to them. Queries stand where the next x would,
    and do not see each other. A series begins with a zero token, so that its first value can be asked; the states of
    chains follow one another.
    """
    if isinstance(p, Dense):
        values = torch.stack([_padded(p.x, width), _padded(p.y, width)], 2).flatten(1, 2)[:, :-1]
        return values, _causal(values, slice(0, None, 2))
    if isinstance(p, Series):
        start = p.x.new_zeros(len(p.x), 1, p.x.shape[2])
        values = _padded(torch.cat([start, p.x[:, :-1] if p.every else p.x], 1), width)
        every = slice(None) if p.x.shape[1] else slice(0, 0)  # of no values none is asked, and the zero token is there
        return values, _causal(values, every if p.every else slice(-1, None))
    if isinstance(p, Chains):
        _, n, c, _ = p.chains.shape
        states = p.chains.flatten(1, 2)
        if p.partial is not None:
            values = _padded(torch.cat([states, p.partial], 1), width)
            return values, _causal(values, slice(-1, None))
        values = _padded(states[:, :-1], width)
        index = torch.arange(n * c, device=values.device).view(n, c)[:, :-1].flatten()
        return values, _causal(values, index)
    x, y, seen = p.seen_first
    n, m = x.shape[1], p.queries.shape[1]
    pairs = torch.stack([_padded(x, width), _padded(y, width)], 2).flatten(1, 2)
    values = torch.cat([pairs, _padded(p.queries, width)], 1)
    ones = torch.ones(2 * n + m, 2 * n + m, dtype=torch.bool, device=x.device)
    before = ones.tril()
    before[2 * n :, 2 * n :] = ones[2 * n :, 2 * n :].tril().triu()
    shown = torch.cat([seen.repeat_interleave(2, 1), seen.new_ones(len(x), m)], 1)
    counts = 2 * seen.sum(1, keepdim=True)
    places = torch.arange(2 * n, device=x.device).minimum((counts - 1).clamp(min=0))  # of the unseen no place is read
    return values, Layout(
        torch.cat([places, counts.expand(-1, m)], 1),
        before & (shown[:, None] | ones.tril().triu()),
        slice(2 * n, None),
    )


def paired(p: Any, features: int, labels: int) -> tuple[Float[Tensor, "b s width"], Layout]:
    """Tokens (x_i, y_i) and (query, 0): every token attends to the seen pairs and to itself; read at the queries.

    A series is its values and a zero token after them, which is read.
    """
    if isinstance(p, Series):
        if p.every:
            raise ValueError(
                "an encoder sees the whole series: it answers its next value; got a series that asks every value"
            )
        values = _padded(torch.cat([p.x, p.x.new_zeros(len(p.x), 1, p.x.shape[2])], 1), features + labels)
        b, s = values.shape[:2]
        places = torch.arange(s, device=values.device)[None]
        return values, Layout(places, places.new_ones(b, s, s, dtype=torch.bool), slice(-1, None))
    x, y, seen = p.seen_first
    n, m = x.shape[1], p.queries.shape[1]
    pairs = torch.cat([_padded(x, features), y], 2)
    queries = torch.cat([_padded(p.queries, features), y.new_zeros(len(y), m, y.shape[2])], 2)
    shown = torch.cat([seen, seen.new_zeros(len(x), m)], 1)
    counts = seen.sum(1, keepdim=True)
    places = torch.arange(n, device=x.device).minimum((counts - 1).clamp(min=0))
    return torch.cat([pairs, queries], 1), Layout(
        torch.cat([places, counts.expand(-1, m)], 1),
        shown[:, None] | torch.eye(n + m, dtype=torch.bool, device=x.device),
        slice(n, None),
    )


def written(p: Text) -> tuple[Int[Tensor, "b s"], Layout]:
    """The tokens of a text, each at its place; every one is read."""
    s = p.tokens.shape[1]
    at = torch.arange(s, device=p.tokens.device)
    places = at[None] if p.first is None else p.first[:, None] + at
    return p.tokens, Layout(places, p.begin if p.mask == "prefix" else None, slice(None))


def masked(p: Any) -> bool:
    """Does a causal model need a mask that is written out for this prompt?"""
    return isinstance(p, Prompt)


def sequences(p: Prompt) -> tuple[Prompt, Int[Tensor, " c"]]:
    """One prompt a query with the seen pairs in front, and how many there are: what a recurrent model reads."""
    x, y, seen = p.seen_first
    m = p.queries.shape[1]
    repeat = [v.repeat_interleave(m, 0) for v in (x, y, seen)]
    return Prompt(repeat[0], repeat[1], p.queries.reshape(-1, 1, x.shape[2]), repeat[2], check=False), repeat[2].sum(1)


def _causal(values: Tensor, rows: slice | Tensor) -> Layout:
    return Layout(torch.arange(values.shape[1], device=values.device)[None], None, rows)


def _padded(v: Tensor, width: int) -> Tensor:
    return F.pad(v, (0, width - v.shape[-1])) if v.shape[-1] < width else v
