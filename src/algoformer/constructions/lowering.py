"""Programs as the weights of a transformer, with linear, ReLU or softmax attention.

A layer is X + sum_h W_V X a(X' W_K' W_Q X) and then X + W_2 relu(W_1 X + b_1) + b_2 (AlgoFormer eq. 1 with a = softmax;
a(s) = relu(s) as in Bai et al. 2023; a(s) = s as in Ahn et al. 2023, eq. 3-4, with their mask on keys and their 1/n, or
without both as in Giannou et al. 2024, eq. 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algoformer.checks import one_of
from algoformer.constructions.budget import FEW, Scales, scales
from algoformer.constructions.encoder import Layout, LogCount
from algoformer.constructions.instructions import Copy, Equal, Instruction, Leaky, Linear, Mac, Table, groups
from algoformer.constructions.interpreter import Held, Interpreter, Machine, Outside, State, in_range
from algoformer.constructions.program import Place, Program, Support, carried, nonzero, receives
from algoformer.constructions.stream import Form
from algoformer.constructions.tables import hinges

Attention = Literal["linear", "relu", "softmax"]

# A score that no score reaches: masks are this times an indicator that is exactly 0 where nothing is masked, so that
# its size costs no precision. A power of two, so that sums of it are exact.
_FAR = 2.0**60
_SINK = {torch.float64: 2000.0, torch.float32: 200.0}  # e^-x is 0 in the dtype


class Unsupported(ValueError):
    """A program that an attention cannot run: every instruction that it cannot, and why."""


def compile(
    program: Program,
    attention: Attention = "linear",
    *,
    dtype: torch.dtype = torch.float64,
    heads: Literal[2, 4] = 2,
    masked: bool = True,
    outside: Outside = "raise",
) -> Compiled:
    """The transformer that runs a program.

    `heads` is what a multiply-accumulate takes in softmax attention; `masked=False` asks for linear attention without a
    mask on keys (so that a token of an unseen pair is a key where a program writes to it) and without 1/n. A prompt
    `outside` the declared range raises, warns, or is ignored.
    """
    if not isinstance(program, Program):
        raise TypeError(f"program must be a Program of algoformer.constructions; got {type(program).__name__}")
    one_of("attention", attention, get_args(Attention))
    one_of("heads", heads, (2, 4))
    if heads != 2 and attention != "softmax":
        raise ValueError(f"heads must be left out without softmax attention; got {heads} with {attention}")
    if not masked and attention != "linear":
        raise ValueError(f"masked must be left out without linear attention; got {masked} with {attention}")
    one_of("outside", outside, get_args(Outside))
    if dtype not in _SINK:
        raise ValueError(f"dtype must be torch.float64 or torch.float32; got {dtype}")
    lowering = _Lowering(program, attention, dtype, heads, masked)
    problems: list[str] = []
    sections: dict[str, list[Block]] = {}
    for place in program.places():
        try:
            block = lowering.block(place)
        except Unsupported as found:
            problems += [f"{place.section}: {problem}" for problem in found.args]
            continue
        sections.setdefault(place.section, []).append(block)
    if problems:
        kind = attention if masked or attention != "linear" else "bare linear"
        told = "\n  ".join(dict.fromkeys(problems))  # passes that are alike have one line
        raise Unsupported(f"{program.name} does not lower to {kind} attention:\n  {told}")
    return Compiled(program, attention, sections, dtype=dtype, heads=heads, masked=masked, outside=outside)


class Block(nn.Module):
    """One transformer layer: attention, residual, ReLU feed-forward, residual."""

    query: Tensor
    key: Tensor
    value: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    keyed: Tensor
    mean: Tensor
    carried: Tensor

    def __init__(self, attention: Attention, weights: dict[str, Tensor], *, causal: bool, structural: bool) -> None:
        super().__init__()
        self.attention, self.causal, self.structural = attention, causal, structural
        for name in ("query", "key", "value", "up", "up_bias", "down", "down_bias"):
            self.register_parameter(name, nn.Parameter(weights[name]))
        self.register_buffer("keyed", weights["keyed"])
        self.register_buffer("mean", weights["mean"])
        self.register_buffer("carried", weights["carried"], persistent=False)
        self.averages = bool(weights["mean"].any())

    @property
    def heads(self) -> int:
        """The number of attention heads."""
        return self.query.shape[0]

    @property
    def hidden(self) -> int:
        """The width of the feed-forward layer."""
        return self.up.shape[0]

    def scores(self, z: Float[Tensor, "b s e"]) -> Float[Tensor, "b h s s2"]:
        """<query_j, key_i> of every head: [batch, head, query, key]."""
        return (z[:, None] @ self.query.mT) @ (z[:, None] @ self.key.mT).mT

    def weights(self, z: Float[Tensor, "b s e"], layout: Layout) -> Float[Tensor, "b h s s2"]:
        """How much each query takes of each key."""
        scores = self.scores(z)
        if self.attention == "softmax":
            if self.causal:
                later = torch.ones(scores.shape[2:], dtype=torch.bool, device=z.device).triu(1)
                scores = scores.masked_fill(later, -torch.inf)
            return scores.softmax(-1)
        weights = scores.relu() if self.attention == "relu" else scores
        if self.causal:
            weights = weights.tril()
        if self.structural:
            shown = layout.seen[:, None, None] | self.carried[:, None, None]
            weights = weights * (self.keyed[:, None, layout.group] * shown)
        if self.averages:
            weights = weights / self._count(layout)
        return weights

    def forward(self, z: Float[Tensor, "b s e"], layout: Layout) -> Float[Tensor, "b s e"]:
        """The stream after the layer."""
        if self.heads:
            # Scores first, as the equations have it: Newton's iteration X (S X) is one-sided in its rounding errors.
            out = self.weights(z, layout) @ (z[:, None] @ self.value.mT)
            z = z + out.sum(1)  # the heads first: they cancel to far below the size of one
        if self.hidden:
            z = z + torch.nn.functional.linear((z @ self.up.mT + self.up_bias).relu(), self.down, self.down_bias)
        return z

    def _count(self, layout: Layout) -> Tensor:
        """What each head divides by: the examples, in a causal layer those in sight; 1 where it takes a sum."""
        if self.causal:
            count = (self.keyed[:, layout.group] * layout.seen[:, None]).cumsum(-1)[..., None]
        else:
            count = layout.number[:, None, None, None]
        return count.clamp(min=1).where(self.mean[:, None, None], 1.0)


class Compiled(nn.Module, Machine):
    """A transformer that runs a program: an `nn.Module` to save, hook and train, and an Algorithm."""

    def __init__(
        self,
        program: Program,
        attention: Attention,
        sections: dict[str, list[Block]],
        *,
        dtype: torch.dtype,
        heads: int,
        masked: bool,
        outside: Outside,
    ) -> None:
        super().__init__()
        self.program, self.attention, self.heads, self.masked, self.outside = program, attention, heads, masked, outside
        self.compiled_for = dtype
        self.pre = nn.ModuleList(sections.get("pre", []))
        self.loop = nn.ModuleList(sections.get("loop", []))
        self.post = nn.ModuleList(sections.get("post", []))
        lowering = _Lowering(program, attention, dtype, heads, masked)
        self.held = {
            name: [lowering.held(place, places) for place in places] for name, places in program.sections().items()
        }

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights: the one they were compiled for, unless they were cast."""
        return next((v.dtype for v in self.parameters()), self.compiled_for)

    def forward(self, p: Any) -> Float[Tensor, "b o k"]:
        """The predictions of the last step."""
        return self.predict(p)

    def init(self, p: Any) -> State:
        v = p.chains if hasattr(p, "chains") else p.x
        if self.dtype not in _SINK:
            raise ValueError(f"the weights must be torch.float64 or torch.float32; they were cast to {self.dtype}")
        if v.dtype != self.dtype:
            raise ValueError(f"the prompt must be {self.dtype} as the weights are; got {v.dtype}")
        state = super().init(p)
        if not self.program.settled:
            in_range(self.program, "pre", state, self.outside)
        return state

    def step(self, p: Any, s: State, t: int) -> State:
        state = super().step(p, s, t)
        in_range(self.program, "pre" if t + 1 == self.program.settled else "loop", state, self.outside)
        return state

    def run(self, section: str, state: State) -> State:
        for held, block in zip(self.held[section], self.section(section), strict=True):
            in_range(self.program, held, state, self.outside)
            state = State(block(state.stream, state.layout), state.layout)
        return state

    def section(self, section: str) -> Iterable[nn.Module]:
        """The layers of a section: "pre", "post", or the number of a step."""
        if section in ("pre", "post"):
            return getattr(self, section)  # type: ignore[no-any-return]
        if self.program.passes is None:
            return self.loop
        sizes = [len(body) for body in self.program.bodies]
        start = sum(sizes[: int(section)])
        return self.loop[start : start + sizes[int(section)]]

    @property
    def budget(self) -> tuple[tuple[Mac, float | None], ...]:
        """Each softmax multiply-accumulate and the a-priori bound of its error, None where its values have no bound."""
        if self.attention != "softmax":
            return ()
        lowering = _Lowering(self.program, self.attention, self.compiled_for, self.heads, self.masked)
        return tuple((i, lowering.bound(i, self.dtype)) for i in self.program.instructions if isinstance(i, Mac))

    def measured_error(self, p: Any, steps: int | None = None) -> Float[Tensor, " t"]:
        """Measured, not derived: the largest |this - the interpreted program| on a prompt, at every step."""
        with torch.no_grad():
            exact = Interpreter(self.program).trace(p.to(dtype=torch.float64), steps)
            return (self.trace(p, steps).double() - exact).abs().flatten(1).amax(1)


@dataclass(frozen=True)
class _Lowering:
    """Instructions as rows of weights. Everything is built in float64 and rounded once."""

    program: Program
    attention: Attention
    dtype: torch.dtype
    heads: int
    masked: bool

    def block(self, place: Place) -> Block:
        attending = [i for i in place.layer if isinstance(i, Mac | Copy)]
        z = self.program.stream
        parts, keyed, means, shown = [], [], [], []
        problems: list[str] = []
        for same in _shared(attending):
            value = torch.zeros(z.width, z.width, dtype=torch.float64)
            for i in same:
                value[z.rows[i.target]] += z.matrix(i.scale * i.value)
            try:
                heads = self.head(same, place)
            except Unsupported as problem:
                problems += problem.args
                continue
            for key, query, factor in heads:
                parts.append((key, query, factor * value))
                keyed.append([name in groups(same[0].keys) for name in self.program.encoder.names])
                means.append(isinstance(same[0], Mac) and same[0].mean and self.attention != "softmax")
                shown.append(carried(self.program, same[0]))
        rows = max((k.shape[0] for k, _, _ in parts), default=0)

        def stack(matrices: list[Tensor], shape: tuple[int, ...]) -> Tensor:
            padded = [nn.functional.pad(m, (0, 0, 0, shape[0] - m.shape[0])) for m in matrices]
            return torch.stack(padded).to(self.dtype) if padded else torch.zeros(0, *shape, dtype=self.dtype)

        up, bias, down = self.feedforward(place, problems)
        if problems:
            raise Unsupported(*problems)
        weights = {
            "key": stack([k for k, _, _ in parts], (rows, z.width)),
            "query": stack([q for _, q, _ in parts], (rows, z.width)),
            "value": stack([v for _, _, v in parts], (z.width, z.width)),
            "up": up.to(self.dtype),
            "up_bias": bias.to(self.dtype),
            "down": down.to(self.dtype),
            "down_bias": torch.zeros(z.width if len(bias) else 0, dtype=self.dtype),
            "keyed": torch.tensor(keyed, dtype=self.dtype).reshape(len(parts), len(self.program.encoder.names)),
            "mean": torch.tensor(means, dtype=torch.bool),
            "carried": torch.tensor(shown, dtype=torch.bool),
        }
        structural = self.attention == "linear" and self.masked
        return Block(self.attention, weights, causal=self.program.causal, structural=structural)

    def head(self, same: list[Mac | Copy], place: Place) -> list[tuple[Tensor, Tensor, float]]:
        """Key rows, query rows and the factor of the values, a head each, of instructions that address alike."""
        i, support = same[0], place.before
        valued, empty = (frozenset().union(*(nonzero(j.value, s) for j in same)) for s in (support, place.unseen))
        self._hold_sign(i, support, place.unseen)
        if self.attention == "linear":
            self._hold_linear(i, valued, support)
            return [self._rows([(i.key, i.query)], 1.0)]
        if isinstance(i, Mac) and i.mean and self.program.causal and (i.mask is not None or i.match is not None):
            raise Unsupported(f"{i}: a causal mean is over all keys in sight; it cannot have a mask or a match")
        dump = i.sink if isinstance(i, Copy) else i.dump
        if self.attention == "softmax" and dump is None:
            raise Unsupported(f"{i}: softmax attention needs a {'sink' if isinstance(i, Copy) else 'dump'}")
        read = {name for form in (i.key, *(j.value for j in same)) for name in form.parts}
        if carried(self.program, i) and (astray := self._astray() & read):
            told = " and ".join(sorted(astray))
            raise Unsupported(f"{i}: no register keeps columns from receiving {told} where their pair is unseen")
        pairs = self._masks(i, valued, empty, place)
        if self.attention == "relu":
            silent = [(self.one(i), -_FAR * form) for form in self.silent(i, support)]
            largest = self.score(i) if isinstance(i, Mac) and [*pairs, *silent] else None
            if largest is not None and largest >= _FAR:
                raise Unsupported(f"{i}: scores must be below the mask, {_FAR:.3g}; they go up to {largest:.3g}")
            if isinstance(i, Copy):
                return [self._rows([(self.one(i), self.one(i)), (-i.key, i.query), *pairs, *silent], 1.0)]
            return [self._rows([(i.key, sign * i.query), *pairs, *silent], sign) for sign in (1.0, -1.0)]
        dump = str(dump)
        self._hold_dump(i, dump, valued, support)
        one, mark = self.one(i), self.indicator((dump,), i)
        # What queries that receive nothing attend to: the dump, or in a causal layer a blank, which all can see.
        hid = self.program.causal and dump not in self._blanks()
        rest = self.indicator((self._blank(i, valued, support),), i) if hid else mark
        pairs += [(_FAR * rest, form) for form in self.silent(i, support)]
        if isinstance(i, Copy):
            return [self._rows([(i.key, -_FAR * i.query), (-_SINK[self.dtype] * mark, one), *pairs], 1.0)]
        s, log_count = self.scales(i), self._log_count(i, dump)
        dumped = s.dump * mark if log_count is None else s.dump * mark + log_count
        gain = math.exp(s.dump)
        return [
            self._rows([(i.key, factor * i.query), (dumped, one), *pairs], share * gain) for factor, share in s.taps
        ]

    def scales(self, i: Mac) -> Scales:
        """The scales of a softmax multiply-accumulate."""
        score = self.score(i)
        if score == 0:
            raise Unsupported(f"{i}: a score of 0 leaves nothing to multiply")
        if score is None:
            missing = sorted({n for f in (i.key, i.query) for n in f.parts} - set(self.program.bounds))
            raise Unsupported(f"{i}: softmax attention needs bounds of {', '.join(missing)}, or a score")
        return scales(self.dtype, score, self.heads)

    def score(self, i: Mac) -> float | None:
        """The largest |<key, query>|: as declared, or from the declared bounds."""
        key, query = self.size(i.key), self.size(i.query)
        return i.score if i.score is not None else None if key is None or query is None else key * query

    def held(self, place: Place, section: list[Place]) -> Held:
        """The scores to hold where a layer runs: those declared, and in softmax those that move within the section.

        Others cannot leave the bounds of their registers, which are held after pre and after every pass; where there
        are none, ReLU attention has its mask as the bound.
        """
        moving = {i.target for other in section for i in other.layer} if self.attention == "softmax" else set()
        macs = [i for i in place.layer if isinstance(i, Mac)]
        found = [(i, self.score(i)) for i in macs if i.score is not None or moving & {*i.key.parts, *i.query.parts}]
        if self.attention == "relu":
            found += [(i, _FAR) for i in macs if self.score(i) is None and self._sunk(i, place)]
        asking = [tuple(receives(self.program, i, place.before)) for i, _ in found]
        return Held(place, tuple((i, names, s) for (i, s), names in zip(found, asking, strict=True) if s is not None))

    def _sunk(self, i: Mac, place: Place) -> bool:
        """Does ReLU attention mask keys or queries of it?"""
        valued, empty = nonzero(i.value, place.before), nonzero(i.value, place.unseen)
        return bool(self._masks(i, valued, empty, place) or self.silent(i, place.before))

    def size(self, form: Form) -> float | None:
        """The largest norm of a form that the declared bounds allow."""
        total = 0.0
        for name, m in form.parts.items():
            bound = 1.0 if name in self._constants() else self.program.bounds.get(name)
            if bound is None:
                return None
            total += float(torch.linalg.matrix_norm(m, 2)) * bound
        return total

    def mass(self, i: Mac) -> float | None:
        """The largest sum (mean) of |value| over the keys: as declared, or from the declared bounds."""
        size, many = self.size(i.value), self.number(i)
        return i.mass if i.mass is not None else None if size is None or many is None else many * size

    def number(self, i: Mac) -> int | None:
        """The most keys of a sum, or of a mean for each example; None where the declared range does not tell."""
        encoder, keys = self.program.encoder, groups(i.keys)
        told = all(encoder[k].track == "examples" or encoder.counts(k) or encoder.single(k) for k in keys)
        many = 1 if i.mean else self.program.examples
        return len(keys) * many if told and many is not None else None

    def bound(self, i: Mac, dtype: torch.dtype) -> float | None:
        """The a-priori bound of the error of a softmax multiply-accumulate that is run in this dtype."""
        mass, many = self.mass(i), self.number(i)
        run = replace(self.scales(i), dtype=dtype)
        if mass is None or many is None:
            return None
        counted = self._log_count(i, str(i.dump)) is not None
        return abs(i.scale) * run.bound(mass, many, summed=self.program.examples or FEW, counted=counted)

    def one(self, i: Instruction) -> Form:
        """The constant."""
        form = self._one()
        if form is None:
            raise Unsupported(f"{i}: needs a register that holds 1 on every token")
        return form

    def _one(self) -> Form | None:
        everyone = frozenset(self.program.encoder.names)
        held = [name for name in self._constants() if self.program.encoder.constant(name) == everyone]
        return getattr(self.program.stream, held[0]) if held else None

    def indicator(self, names: tuple[str, ...], i: Instruction) -> Form:
        """A form that is exactly 1 on the named groups and 0 elsewhere."""
        form = self._cover(frozenset(names), frozenset(names), disjoint=True)
        if form is None:
            raise Unsupported(f"{i}: needs a register that holds 1 on {' and '.join(names)} alone")
        return form

    def silent(self, i: Mac | Copy, support: Support) -> list[Form]:
        """Forms that are positive on the queries that must receive nothing."""
        everyone = frozenset(self.program.encoder.names)
        asking = nonzero(i.query, support)
        quiet = everyone - (asking if i.queries is None else asking & frozenset(groups(i.queries)))
        form = self._cover(quiet, quiet)
        if isinstance(i, Mac) and (form is None or self.attention == "relu"):  # a query that is 0 gets 0 unasked
            form = self._cover(quiet & asking, quiet)
        if form is None:
            raise Unsupported(
                f"{i}: needs registers that hold 1 on {' and '.join(sorted(quiet))}, which must not receive"
            )
        return [f for f in (form, i.block) if f is not None and f.parts]

    def _masks(
        self, i: Mac | Copy, valued: frozenset[str], empty: frozenset[str], place: Place
    ) -> list[tuple[Form, Form]]:
        """Pairs (key form, query form) that sink the score of every token that is no key.

        Values are on the groups `valued`, and on the tokens of unseen pairs of the groups `empty`.
        """
        keys = frozenset(groups(i.keys))
        if isinstance(i, Copy):  # also the tokens of unseen pairs: an empty code matches everything
            left = groups(i.keys) if self.attention == "relu" else (*groups(i.keys), str(i.sink))
            return [(-_FAR * (self.one(i) - self.indicator(left, i)), self.one(i))]
        softmax = self.attention == "softmax"
        kept = keys | {str(i.dump)} if softmax else keys
        free, others = frozenset(self.program.encoder.names) - kept, self._others(kept, i)
        if others is None:
            wrong = empty - (kept if carried(self.program, i) else frozenset())
            if wrong := wrong if softmax else wrong & nonzero(i.key, place.unseen):
                raise Unsupported(
                    f"{i}: needs registers that hold 1 on each of {' and '.join(sorted(kept))} alone: "
                    f"the program writes to tokens of {' and '.join(sorted(wrong))} whose pair is unseen"
                )
        alone = softmax and empty and i.dump in self.program.encoder.hidden  # nothing seen: no dump, only empty tokens
        rest = self._blank(i, valued, place.before) if alone else None
        form = others if others is not None and not softmax else self._cover(free & valued, free - {rest or ""})
        if form is None:
            missing = " and ".join(sorted(free & valued))
            raise Unsupported(f"{i}: needs registers that hold 1 on {missing}, which are no keys")
        sunk = -_FAR * form
        if softmax and others is not None:  # empty tokens: not as far, so that they are left where there is no key
            sunk -= _SINK[self.dtype] * others
        if rest is not None:  # a blank before them where they hold values
            sunk += _SINK[self.dtype] / 2 * self.indicator((rest,), i)
        masks = [sunk] if sunk.parts else []
        masks += [-_FAR * i.mask] if i.mask is not None else []
        pairs = [(mask, self.one(i)) for mask in masks]
        return [*pairs, *([(i.match[0], -_FAR * i.match[1])] if i.match is not None else [])]

    def _others(self, kept: frozenset[str], i: Mac) -> Form | None:
        """1 on every token but those of the named groups whose pair is seen; None where registers do not tell."""
        one, held = self._one(), self._cover(kept, kept, disjoint=True)
        return None if one is None or held is None or carried(self.program, i) else one - held

    def _blanks(self) -> set[str]:
        """Tokens that every token sees."""
        encoder = self.program.encoder
        first = len(encoder.groups) if encoder.interleaved or not self.program.causal else 1
        return {g.name for g in encoder.groups[:first] if g.track == "blank"}

    def _astray(self) -> set[str]:
        """Registers that columns of matrices may hold unasked where their pair is unseen, as no mark stands there."""
        encoder, found = self.program.encoder, set()
        for place in self.program.places():
            for i in place.layer:
                if isinstance(i, Mac | Copy) and nonzero(i.value, place.before):
                    reached = nonzero(i.query, place.unseen) if isinstance(i, Mac) else encoder.hidden
                    if encoder.carries(tuple(reached - receives(self.program, i, place.before))):
                        found.add(i.target)
        for _ in self.program.stream.widths:  # and what is made of them
            found |= {i.target for i in self.program.instructions if found & {n for f, _ in i.reads() for n in f.parts}}
        return found

    def _codes(self, i: Mac | Copy) -> list[Form]:
        """What decides on the key side whether a token is attended."""
        codes = [i.mask, i.match and i.match[0]] if isinstance(i, Mac) else []
        return [form for form in (i.key, *codes) if form is not None]

    def _blank(self, i: Mac | Copy, valued: frozenset[str], support: Support) -> str:
        """A token that is always there and holds neither key nor value."""
        free = self._blanks().difference(valued, *(nonzero(form, support) for form in self._codes(i)))
        if not free:
            why = "those that must not receive" if self.program.causal else "prompts of which nothing is seen"
            raise Unsupported(f"{i}: needs a blank token without key and value, for {why}")
        return sorted(free)[0]

    def _hold_linear(self, i: Mac | Copy, valued: frozenset[str], support: Support) -> None:
        if isinstance(i, Copy):
            raise Unsupported(f"{i}: linear attention cannot compare codes")
        for name in ("mask", "match", "block"):
            if getattr(i, name) is not None:
                raise Unsupported(f"{i}: linear attention has no {name}")
        if i.queries is not None and (more := nonzero(i.query, support) - frozenset(groups(i.queries))):
            raise Unsupported(f"{i}: linear attention cannot keep {' and '.join(sorted(more))} from receiving")
        if self.masked:
            return
        if i.mean:
            raise Unsupported(f"{i}: without a mask there is no 1/n either")
        if more := (valued & nonzero(i.key, support)) - frozenset(groups(i.keys)):
            raise Unsupported(f"{i}: without a mask {' and '.join(sorted(more))} would be keys")

    def _rows(self, pairs: list[tuple[Form, Form]], factor: float) -> tuple[Tensor, Tensor, float]:
        z = self.program.stream
        return torch.cat([z.matrix(k) for k, _ in pairs]), torch.cat([z.matrix(q) for _, q in pairs]), factor

    def _constants(self) -> list[str]:
        """Registers that hold 1 or nothing, whatever the program does."""
        written = {i.target for i in self.program.instructions}
        names = [n for n, w in self.program.stream.widths.items() if w == 1 and n not in written]
        return [n for n in names if self.program.encoder.constant(n)]

    def _cover(self, must: frozenset[str], may: frozenset[str], *, disjoint: bool = False) -> Form | None:
        """A sum of constants that is positive on `must` and 0 outside `may`; None if there is none.

        With `disjoint` it is 1 on `must`, and 0 on the tokens of unseen pairs.
        """
        form, left, encoder = Form(1, {}), set(must), self.program.encoder
        constants = sorted(self._constants(), key=lambda n: -len(encoder.constant(n)))
        for name in constants:
            held = encoder.constant(name)
            if disjoint and encoder.hidden and encoder.everywhere(name):
                continue
            if held <= may and held & left and not (disjoint and not held <= left):
                form, left = form + getattr(self.program.stream, name), left - held
        return form if not left else None

    def _hold_dump(self, i: Mac | Copy, dump: str, valued: frozenset[str], support: Support) -> None:
        """The dump must be invisible but for its score, and as many as the mean needs."""
        if dump in valued.union(*(nonzero(form, support) for form in self._codes(i))):
            raise Unsupported(f"{i}: key, value and mask must be 0 on {dump}, which takes attention and gives nothing")
        encoder, keys = self.program.encoder, groups(i.keys)
        if isinstance(i, Copy):
            if not encoder.always(dump) or (self.program.causal and dump not in self._blanks()):
                raise Unsupported(f"{i}: a sink must be in sight of all tokens, whatever is seen; {dump} may not be")
            if (more := frozenset(keys) - nonzero(i.key, support)) and not (len(keys) == 1 and encoder.single(keys[0])):
                raise Unsupported(f"{i}: all of {' and '.join(sorted(more))} match, and a softmax takes their mean")
            return
        if self.program.causal:
            self._hold_sight(i, dump, receives(self.program, i, support))
        elif i.mean and self._log_count(i, dump) is None and not encoder.counts(dump):
            raise Unsupported(f"{i}: a mean needs as many {dump} as examples, or the logarithm of their number")
        elif i.mean and dump in encoder.hidden and (more := frozenset(keys) - encoder.hidden):
            raise Unsupported(f"{i}: {' and '.join(sorted(more))} are keys also where no {dump} are seen")
        elif i.mean and self._log_count(i, dump) is None and (bare := {k for k in keys if self._outlives(k, dump)}):
            raise Unsupported(f"{i}: {' and '.join(sorted(bare))} may be keys where there are no {dump}")
        elif not i.mean and encoder[dump].track != "blank":
            track = encoder[dump].track
            raise Unsupported(f"{i}: a sum needs a dump of one token; {dump} has one for each of {track}")

    def _outlives(self, key: str, dump: str) -> bool:
        """May a group have tokens where another, from `start` on, has none?"""
        k, d = self.program.encoder[key], self.program.encoder[dump]
        return k.track != d.track or (d.start > 0 and k.start < d.start)

    def _hold_sight(self, i: Mac, dump: str, receiving: frozenset[str]) -> None:
        """Every query of a causal layer must see one dump, for a mean as many as keys, whatever pairs there are."""
        ends = [abs(end) for g in self.program.encoder.groups for end in (g.start, g.stop or 0)]
        for long in range(3 + 2 * max(ends), -1, -1):  # beyond the ends of groups, from both sides, all are alike
            self._hold_sight_of(long, i, dump, receiving)

    def _hold_sight_of(self, long: int, i: Mac, dump: str, receiving: frozenset[str]) -> None:
        """The same for prompts of one length."""
        encoder = self.program.encoder
        tokens = [
            (at + encoder.begins(g, long), at, g)
            for g in encoder.groups
            for at in range(1 if g.track in ("blank", "next") else long)[g.start : g.stop]
        ]
        if encoder.interleaved:
            tokens.sort(key=lambda token: token[0])
        alike = {encoder[name].track for name in groups(i.keys)} == {encoder[dump].track}
        for j in (j for j, (_, _, g) in enumerate(tokens) if g.name in receiving):
            keys, dumps = (
                sorted(at for _, at, g in tokens[: j + 1] if g.name in names) for names in (groups(i.keys), (dump,))
            )
            if i.mean and not (alike and (keys == dumps if encoder.hidden else len(keys) == len(dumps))):
                raise Unsupported(f"{i}: a causal mean needs as many {dump} as keys in sight of every query")
            if not i.mean and not (encoder[dump].track == "blank" and dumps):
                raise Unsupported(f"{i}: a causal sum needs a dump of one token that every query sees; got {dump}")

    def _hold_sign(self, i: Instruction, support: Support, unseen: Support) -> None:
        """A mask or a block must not be negative, as far as numbers that nothing writes tell."""
        encoder, written = self.program.encoder, {j.target for j in self.program.instructions}
        for form, what in i.reads():
            if what not in ("mask", "block"):
                continue
            signs = [bool((m < 0).any()) for m in form.parts.values() if m.any()]
            if any(signs) and (all(signs) or not i.attends):  # in a neuron a sum that cancels swallows the value
                must = "be 0 or positive" if i.attends else "have no negative coefficients"
                raise Unsupported(f"{i}: {what} must {must}; got {form}")
            unseens = {f"unseen {g}": unseen for g in encoder.names if g in encoder.hidden}
            tokens = dict.fromkeys(encoder.names, support) | unseens
            for where, reached in tokens.items():
                group = where.removeprefix("unseen ")
                read = [name for name in form.parts if group in reached[name]]
                fills = [encoder.filled(name).get(group) for name in read]
                numbers = [float(v) for v in fills if isinstance(v, int | float)]
                told = not written & set(read) and len(numbers) == len(read)
                if told and sum(float(form.parts[n]) * v for n, v in zip(read, numbers, strict=True)) < 0:
                    raise Unsupported(f"{i}: {what} must be 0 or positive; {form} is negative on {where}")

    def _log_count(self, i: Mac, dump: str) -> Form | None:
        """The register that holds log n on a dump of one token, for a mean that divides by n."""
        written = {j.target for j in self.program.instructions}
        if not i.mean or self.program.causal or self.program.encoder[dump].track != "blank":
            return None
        for name in self.program.stream.widths.keys() - written:
            fills = self.program.encoder.filled(name)
            if set(fills) == {dump} and isinstance(fills[dump], LogCount):
                return getattr(self.program.stream, name)  # type: ignore[no-any-return]
        return None

    def feedforward(self, place: Place, problems: list[str]) -> tuple[Tensor, Tensor, Tensor]:
        """W_1, b_1 and W_2 of the token-wise half; what cannot be lowered goes to the problems."""
        z = self.program.stream
        ups, biases, downs = ([torch.zeros(s, dtype=torch.float64)] for s in ((0, z.width), (0,), (z.width, 0)))
        for i in (i for i in place.layer if not i.attends):
            try:
                self._hold_sign(i, place.between, place.unseen)
                neurons = self._neurons(i)
            except Unsupported as problem:
                problems += problem.args
                continue
            for up, bias, out in neurons:
                down = torch.zeros(z.width, up.shape[0], dtype=torch.float64)
                down[z.rows[i.target]] = out
                ups.append(up if i.block is None else up - _FAR * z.matrix(i.block))
                biases.append(bias)
                downs.append(down)
        return torch.cat(ups), torch.cat(biases), torch.cat(downs, 1)

    def _neurons(self, i: Instruction) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Hidden rows, their biases, and what they add to the register."""
        z, eye = self.program.stream, torch.eye(i.into.width, dtype=torch.float64)

        def through(form: Form, negative: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:  # v, or leaky(v)
            m = z.matrix(form)
            return (
                torch.cat([m, -m]),
                torch.zeros(2 * len(m), dtype=torch.float64),
                torch.cat([eye, -negative * eye], 1),
            )

        removed = [] if i.add else [through(-i.into)]
        if isinstance(i, Linear):
            change = i.value if i.add else i.value - i.into
            return [through(change)]
        if isinstance(i, Leaky):
            return [through(i.value, i.factor), *removed]
        if isinstance(i, Equal):
            both = z.matrix(i.left + i.right)
            return [
                (both, -torch.ones(len(both), dtype=torch.float64), i.scale * torch.ones_like(both[:, :1].mT)),
                *removed,
            ]
        if isinstance(i, Table):
            return [*(self._table(i, row) for row in range(i.into.width)), *removed]
        raise Unsupported(f"{i}: not an instruction of this machine")

    def _table(self, i: Table, row: int) -> tuple[Tensor, Tensor, Tensor]:
        h = hinges(i.function, i.domain, i.hinges)
        m = self.program.stream.matrix(i.value[row])
        up = torch.cat([h.slope[:, None] * m, torch.zeros_like(m)])  # the last neuron is the constant 1
        bias = torch.cat([h.offset, h.offset.new_ones(1)])
        out = torch.zeros(i.into.width, len(bias), dtype=torch.float64)
        out[row] = i.scale * torch.cat([h.out, h.out.new_tensor([h.constant])])
        return up, bias, out


def _shared(instructions: list[Mac | Copy]) -> list[list[Mac | Copy]]:
    """Instructions that address alike, together: they share their heads."""
    found: list[tuple[tuple[object, ...], list[Mac | Copy]]] = []
    for i in instructions:
        own = {"into", "value", "scale", "add", "mass"}
        address = (type(i), *(getattr(i, f.name) for f in fields(i) if f.name not in own))
        same = next((same for other, same in found if other == address), None)
        if same is None:
            found.append((address, [i]))
        else:
            same.append(i)
    return [same for _, same in found]
