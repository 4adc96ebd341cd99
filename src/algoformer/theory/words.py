"""E tr of words in a Wishart matrix and fixed matrices, by the pairings of Isserlis (Wick).

    E tr(W B_1 W B_2 ... W B_m) = sum over pairings of the 2m legs of  n^(loops - m) prod of traces.

Each W = (1/n) sum z z' has two legs. A pairing closes the legs of equal W into `loops` (each a free sum over the n
samples) and the gaps B_i into cycles (each a trace, where a gap passed backwards is transposed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
def table(layers: int, symmetric: bool = False) -> Table:
    """E |prod_l (I - W C_l)|_F^2 over the layers, as trace monomials with equal ones collected.

    Where every C_l is symmetric a letter is its own transpose, and fewer monomials differ.
    """
    total: Counter[tuple[tuple[Word, ...], int]] = Counter()
    subsets = [s for size in range(layers + 1) for s in combinations(range(layers), size)]
    for left in subsets:
        for right in subsets:
            _add_moment(total, _gaps(left, right), symmetric)
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


def _add_moment(total: Counter[tuple[tuple[Word, ...], int]], gaps: list[Word], symmetric: bool) -> None:
    """Add (-1)^m E tr(W B_1 ... W B_m) as {(traces, power of 1/n): count}."""
    m = len(gaps)
    if m == 0:
        total[((),), 0] += 1
        return
    through = {leg: gaps[leg // 2] if leg % 2 else _transpose(gaps[(leg // 2 - 1) % m]) for leg in range(2 * m)}
    known: dict[tuple[int, ...], Word] = {}
    for cycles, power in _pairings(m):
        traces = []
        for cycle in cycles:
            if cycle not in known:
                word: Word = sum((through[leg] for leg in cycle), ())
                known[cycle] = _canonical(tuple(max(c, ~c) for c in word) if symmetric else word, symmetric)
            traces.append(known[cycle])
        total[tuple(sorted(traces)), power] += (-1) ** m


@lru_cache
def _pairings(m: int) -> list[tuple[list[tuple[int, ...]], int]]:
    """For every pairing of the legs of m matrices: its cycles of gaps, and m less its loops.

    Leg 2i is left and leg 2i + 1 right of the i-th W. A cycle is named by the legs from which it enters a gap.
    """
    found = []
    partner = [0] * (2 * m)

    def fill(legs: list[int]) -> None:
        if not legs:
            loops = len(_cycles(partner, lambda leg: leg ^ 1))
            found.append((_cycles(partner, lambda leg: (leg + (1 if leg % 2 else -1)) % (2 * m)), m - loops))
            return
        first, *rest = legs
        for i, other in enumerate(rest):
            partner[first], partner[other] = other, first
            fill(rest[:i] + rest[i + 1 :])

    fill(list(range(2 * m)))
    return found


def _cycles(partner: list[int], across: Callable[[int], int]) -> list[tuple[int, ...]]:
    """The closed walks that alternate between edges and pairs, as the legs from which they enter an edge."""
    seen, cycles = [False] * len(partner), []
    for start in range(len(partner)):
        leg, cycle = start, []
        while not seen[leg]:
            other = across(leg)
            seen[leg] = seen[other] = True
            cycle.append(leg)
            leg = partner[other]
        if cycle:
            cycles.append(tuple(cycle))
    return cycles


def _transpose(word: Word) -> Word:
    return tuple(~c for c in reversed(word))


def _canonical(word: Word, symmetric: bool) -> Word:
    """The least of the words with the same trace: rotations, and the transpose."""
    turned = (word, word[::-1] if symmetric else _transpose(word))
    return min((w[i:] + w[:i] for w in turned for i in range(len(w))), default=())
