"""E tr of words in a Wishart matrix and fixed matrices, by the pairings of Isserlis (Wick).

    E tr(W B_1 W B_2 ... W B_m) = sum over pairings of the 2m legs of  n^(loops - m) prod of traces.

Each W = (1/n) sum z z' has two legs. A pairing closes the legs of equal W into `loops` (each a free sum over the n
samples) and the gaps B_i into cycles (each a trace, where a gap passed backwards is transposed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

Letter = int  # l for the l-th matrix, ~l for its transpose
Word = tuple[Letter, ...]


class Table(NamedTuple):
    """A loss as sum_r count_r n^-power_r prod_c tr(words[factor_rc]); the empty word has trace d, factor -1 is 1."""

    words: list[Word]
    factors: np.ndarray
    powers: np.ndarray
    counts: np.ndarray


@lru_cache
def table(layers: int) -> Table:
    """E |prod_l (I - W C_l)|_F^2 over the layers, as trace monomials with equal ones collected."""
    total: Counter[tuple[tuple[Word, ...], int]] = Counter()
    subsets = [s for size in range(layers + 1) for s in combinations(range(layers), size)]
    for left in subsets:
        for right in subsets:
            gaps = _gaps(left, right)
            for key, count in _moment(gaps).items():
                total[key] += (-1) ** len(gaps) * count
    rows = [(key, count) for key, count in total.items() if count]
    words = sorted({word for (monomial, _), _ in rows for word in monomial}, key=lambda w: (len(w), w))
    index = {word: i for i, word in enumerate(words)}
    width = max(len(monomial) for (monomial, _), _ in rows)
    factors = [[index[w] for w in monomial] + [-1] * (width - len(monomial)) for (monomial, _), _ in rows]
    powers = [power for (_, power), _ in rows]
    return Table(words, np.array(factors), np.array(powers), np.array([count for _, count in rows]))


def _gaps(left: tuple[int, ...], right: tuple[int, ...]) -> list[Word]:
    """The gaps of tr(W C_i1 ... W C_ip (W C_j1 ... W C_jq)')."""
    ahead: list[Word] = [(i,) for i in left]
    back: list[Word] = [(~j,) for j in reversed(right)]
    if not ahead or not back:
        return ahead + back
    return [*ahead[:-1], ahead[-1] + back[0], *back[1:], ()]


def _moment(gaps: list[Word]) -> Counter[tuple[tuple[Word, ...], int]]:
    """{(traces, power of 1/n): count} of E tr(W B_1 ... W B_m); leg 2i is left and leg 2i + 1 right of the i-th W."""
    m = len(gaps)
    if m == 0:
        return Counter({(((),), 0): 1})
    total: Counter[tuple[tuple[Word, ...], int]] = Counter()
    for partner in _pairings(list(range(2 * m))):
        traces = []
        for cycle in _cycles(partner, {2 * i + 1: (2 * i + 2) % (2 * m) for i in range(m)}):
            word: Word = ()
            for leg in cycle:  # the legs from which the cycle enters a gap
                word += gaps[leg // 2] if leg % 2 else tuple(~c for c in reversed(gaps[(leg // 2 - 1) % m]))
            traces.append(_canonical(word))
        loops = len(_cycles(partner, {2 * i: 2 * i + 1 for i in range(m)}))
        total[tuple(sorted(traces)), m - loops] += 1
    return total


def _pairings(legs: list[int]) -> Iterator[dict[int, int]]:
    if not legs:
        yield {}
        return
    first, *rest = legs
    for i, other in enumerate(rest):
        for pairing in _pairings(rest[:i] + rest[i + 1 :]):
            pairing[first], pairing[other] = other, first
            yield pairing


def _cycles(partner: dict[int, int], edges: dict[int, int]) -> list[list[int]]:
    """The closed walks that alternate between edges and pairs, as the legs from which they enter an edge."""
    across = edges | {b: a for a, b in edges.items()}
    open_, cycles = set(across), []
    while open_:
        leg, cycle = min(open_), []
        while leg in open_:
            open_ -= {leg, across[leg]}
            cycle.append(leg)
            leg = partner[across[leg]]
        cycles.append(cycle)
    return cycles


def _canonical(word: Word) -> Word:
    """The least of the words with the same trace: rotations, and the transpose read backwards."""
    back = tuple(~c for c in reversed(word))
    return min((w[i:] + w[:i] for w in (word, back) for i in range(len(w))), default=())
