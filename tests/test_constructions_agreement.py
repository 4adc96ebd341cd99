"""The interpreter is every lowering that compiles, whatever is seen; what a lowering cannot do it refuses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algoformer.constructions import (
    Clear,
    Code,
    Copy,
    Encoder,
    Equal,
    Gate,
    Gram,
    Group,
    Interpreter,
    Leaky,
    Linear,
    LogCount,
    Mac,
    Program,
    Stream,
    Unit,
    Unsupported,
    autoregression,
    chain_of_thought,
    compile,
    decoder_gradient_descent,
    fuse,
    regression_with_representation,
    scales,
)
from algoformer.prompt import Chains, Dense, Prompt, Series
from algoformer.tasks import Representation

Z = Stream(x=2, y=2, v=2, o=2, s=1, one=1, example=1, label=1, query=1, blank=1, k=4, q=4, log_n=1)
MARKS = {"examples": "example", "labels": "label", "queries": "query", "blank": "blank"}


def encoder(*, start=0, missing=None, coded="labels"):
    fills = {
        "examples": {"x": "x", "q": Code(2)},
        "labels": {"y": "y"},
        "queries": {"x": "x", "y": "x", "v": "x", "o": "x", "s": 0, "q": Code(2)},
        "blank": {"log_n": LogCount()},
    }
    fills[coded]["k"] = Code(2, key=True)
    track = {"labels": "examples"}
    return Encoder(
        tuple(
            Group(name, track.get(name, name), {**fills[name], **{m: 1 for m in (mark, "one") if (name, m) != missing}},
                  start if name == "labels" else 0)
            for name, mark in MARKS.items()
        )
    )  # fmt: skip


def program(*, tokens=None, **sections):
    kept = {"name": "a program", "stream": Z, "encoder": tokens or encoder(), "read": Z.o, "at": "queries", "labels": 2}
    return Program(**kept | {"steps": 0} | sections)


def mac(**options):
    kept = {"into": Z.o, "value": Z.x, "key": Z.x, "query": Z.x, "dump": "blank", "score": 9.0}
    return Mac(**kept | options)


def prompt(seen, m=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x, y, queries = (2 * torch.rand(1, n, 2, generator=g, dtype=torch.float64) - 1 for n in (len(seen), len(seen), m))
    return Prompt(x, y, queries, torch.tensor([seen], dtype=torch.bool))


def differs(p, q, attention):
    """The largest distance between a lowering and the interpreter at any step, in units of the largest answer."""
    wanted = Interpreter(p).trace(q)
    with torch.no_grad():
        got = compile(p, attention, outside="ignore").trace(q)
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def form(width):
    names = {2: ["x", "y", "v", "o"], 1: ["s", "one", "example", "label", "query", "blank"]}[width]
    terms = st.tuples(st.sampled_from([1.0, -1.0, 0.5]), st.sampled_from(names)).map(lambda t: t[0] * getattr(Z, t[1]))
    return st.lists(terms, min_size=1, max_size=2).map(lambda both: sum(both[1:], both[0]))


NAMES = st.sampled_from(list(MARKS))
SOME = st.sets(NAMES, min_size=1, max_size=3).map(lambda names: tuple(sorted(names)))
INTO = st.sampled_from([Z.v, Z.o, Z.y])


@st.composite
def instructions(draw):
    block = draw(st.none() | st.none() | form(1))
    kept = {"into": draw(INTO), "value": draw(form(2)), "add": True, "block": block}
    kind = draw(st.sampled_from(["mac", "mac", "mac", "copy", "linear", "leaky", "equal"]))
    if kind == "mac":
        width = draw(st.sampled_from([1, 2]))
        return Mac(
            **kept, key=draw(form(width)), query=draw(form(width)), keys=draw(SOME), queries=draw(st.none() | SOME),
            mean=draw(st.booleans()), mask=draw(st.none() | form(1)), dump=draw(NAMES), score=40.0, scale=0.5,
            match=draw(st.none() | st.none() | st.just((Z.k, Z.q))),
        )  # fmt: skip
    if kind == "copy":
        return Copy(**kept, key=Z.k, query=Z.q, keys=draw(SOME), queries=draw(st.none() | SOME), sink=draw(NAMES))
    if kind == "linear":
        return Linear(**kept)
    if kind == "leaky":
        return Leaky(**kept, slope=0.3)
    return Equal(into=Z.s, left=draw(st.sampled_from([Z.one, Z.query])), right=Z.one, add=True)


LAYER = st.lists(instructions(), min_size=1, max_size=2).map(lambda half: sorted(half, key=lambda i: not i.attends))
LAYERS = st.lists(LAYER, max_size=1)


@st.composite
def programs(draw):
    tokens = encoder(
        start=draw(st.sampled_from([0, 0, 1])),
        missing=draw(st.sampled_from([None, None, ("blank", "one"), ("labels", "one")])),
        coded=draw(st.sampled_from(["labels", "queries"])),
    )
    loop = {"loop": draw(LAYERS)} if draw(st.booleans()) else {"passes": [draw(LAYERS), draw(LAYERS)]}
    return program(tokens=tokens, pre=draw(LAYERS), post=draw(LAYERS), steps=2, **loop)


@given(programs(), st.lists(st.booleans(), max_size=3), st.integers(1, 2))
@settings(max_examples=150)
def test_a_program_means_the_same_to_every_lowering_that_takes_it(p, seen, m):
    for attention, bar in (("linear", 1e-11), ("relu", 1e-11), ("softmax", 1e-5)):
        try:
            compile(p, attention)
        except Unsupported:
            continue
        assert differs(p, prompt(seen, m), attention) <= bar, attention


SEEN = [[1, 1, 1], [1, 0, 0], [0, 0, 0], []]


@pytest.mark.parametrize("seen", SEEN)
def test_tokens_of_unseen_pairs_are_no_keys_beside_other_groups(seen):
    write = Linear(into=Z.v, value=Z.x.through(torch.zeros(2, 2)) + Z.one.through(torch.ones(2, 1)))
    for keys in (("examples", "queries"), tuple(MARKS)):
        both = program(pre=[[write], [mac(value=Z.v, key=Z.v, query=Z.x, keys=keys)]])
        assert differs(both, prompt(seen), "relu") <= 1e-12
    columns = Encoder((
        Group("examples", "examples", {"x": "x", "v": Unit(2), "one": 1, "example": 1, "k": Code(2, key=True)}),
        Group("queries", "queries", {"x": "x", "o": "x", "one": 1, "query": 1, "q": Code(2)}),
    ))  # fmt: skip
    if len(seen) >= 2:
        matched = mac(value=Z.v, key=Z.one, query=Z.one, match=(Z.k, Z.q), queries="queries", dump=None)
        assert differs(program(tokens=columns, pre=[matched]), prompt(seen), "relu") <= 1e-12


@pytest.mark.parametrize("seen", SEEN)
def test_marks_that_overlap_count_no_token_twice(seen):
    z = Stream(x=2, o=2, one=1, ab=1, bc=1, c=1, query=1)
    marks = {"a": ("ab",), "b": ("ab", "bc"), "c": ("bc", "c")}
    tokens = (Group(g, "examples", {"x": "x", **dict.fromkeys((*m, "one"), 1)}) for g, m in marks.items())
    queries = Group("queries", "queries", {"x": "x", "query": 1, "one": 1})
    total = Mac(into=z.o, value=z.x, key=z.x, query=z.x, keys=tuple(marks))
    p = Program(
        name="a sum", stream=z, encoder=Encoder((*tokens, queries)), read=z.o, at="queries", steps=0, labels=2,
        pre=[total],
    )  # fmt: skip
    q = prompt(seen)
    x = q.x[q.seen]
    with torch.no_grad():
        assert torch.allclose(compile(p, "relu").predict(q)[0], 3 * q.queries[0] @ x.mT @ x, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seen", SEEN)
def test_a_mean_of_nothing_is_nothing_though_empty_tokens_hold_values(seen):
    move = Copy(into=Z.v, value=Z.x, key=Z.k, query=Z.q, keys="queries", queries="examples", sink="blank")
    count = mac(value=Z.v, key=Z.v, mean=True, dump="labels")
    assert differs(program(tokens=encoder(coded="queries"), pre=[[move], [count]]), prompt(seen), "softmax") <= 1e-8


APART = [
    {"key": 2.0 * Z.x}, {"key": Z.x + Z.y}, {"query": -Z.x}, {"query": Z.x + Z.y}, {"keys": "queries"},
    {"keys": ("examples", "queries")}, {"queries": "queries"}, {"block": Z.example}, {"mask": Z.example},
    {"match": (Z.k, Z.q)}, {"mean": True}, {"score": 90.0},
]  # fmt: skip


@pytest.mark.parametrize("options", APART, ids=map(str, map(list, APART)))
def test_instructions_share_their_heads_only_if_they_address_alike(options):
    one, alike, other = mac(add=True), mac(into=Z.v, value=Z.y, scale=2.0, add=True), mac(into=Z.v, add=True, **options)
    for attention, bar in (("relu", 1e-12), ("softmax", 1e-7)):
        assert [compile(program(pre=[[one, i]]), attention).pre[0].heads for i in (alike, other)] == [2, 4]
        for i in (alike, other):
            p = program(pre=[[one, i], [Linear(into=Z.o, value=Z.v, add=True)]])
            assert differs(p, prompt([1, 0, 1]), attention) <= bar


@pytest.mark.parametrize(("attention", "bar"), [("relu", 1e-12), ("softmax", 1e-7)])
def test_heads_that_are_shared_leave_out_what_only_the_second_has_values_on(attention, bar):
    kept = {"key": Z.x[0] + Z.label, "query": Z.query, "add": True}
    shared = [mac(value=Z.x, **kept), mac(into=Z.v, value=Z.y, **kept)]
    unmarked = encoder(missing=("examples", "example"))  # so that only what has values is masked
    p = program(tokens=unmarked, pre=[shared, [Linear(into=Z.o, value=Z.v, add=True)]])
    assert compile(p, attention).pre[0].heads == 2
    assert differs(p, prompt([1, 0, 1]), attention) <= bar


def test_post_reads_after_every_pass():
    passes = [[Linear(into=Z.v, value=Z.x)], [Clear(Z.v)]]
    p = program(passes=passes, steps=2, post=[mac(value=Z.v, key=Z.x, query=Z.x)])
    for attention, bar in (("linear", 1e-12), ("relu", 1e-12), ("softmax", 1e-8)):
        assert differs(p, prompt([1, 1, 1]), attention) <= bar
    with pytest.raises(Unsupported, match="without a mask queries would be keys"):
        compile(p, masked=False)


def test_a_copy_gives_nothing_to_groups_without_a_code():
    p = program(pre=[Copy(into=Z.o, value=Z.y, key=Z.k, query=Z.k, keys="labels", sink="blank")])
    q = prompt([1, 1])
    assert torch.equal(Interpreter(p).predict(q), q.queries)
    assert differs(p, q, "relu") == differs(p, q, "softmax") == 0


CAUSAL = Encoder(
    (
        Group("blank", "blank", {"one": 1, "blank": 1}),
        Group("inputs", "examples", {"x": "x", "o": "x", "one": 1, "query": 1}),
        Group("labels", "examples", {"y": "y", "v": "y", "one": 1, "label": 1}),
    ),
    kind=Dense,
    interleaved=True,
)


@pytest.mark.parametrize(
    ("step", "options", "attention", "reason"),
    [
        (mac(keys="queries", mean=True, dump="queries", value=Z.y, key=Z.y), {}, "softmax", "must be 0 on queries"),
        (mac(keys="examples", mean=True, dump="blank"), {"log": False}, "softmax", "as many blank as examples"),
        (mac(mean=True, dump="labels"), {"start": 1}, "softmax", "as many labels as examples"),
        (mac(keys=("examples", "queries"), mean=True, dump="labels"), {}, "softmax", "queries are keys also where no"),
        (mac(dump="labels"), {}, "softmax", "a sum needs a dump of one token"),
        (mac(mask=Z.query - Z.example), {}, "relu", "mask must be 0 or positive; .* is negative on examples"),
        (mac(mask=-Z.s), {}, "relu", "mask must be 0 or positive; got -s"),
        (mac(mask=Z.one - Z.example), {}, "softmax", "mask must be 0 on blank"),
        (Gate(into=Z.o, value=Z.x, block=Z.one - Z.query), {}, "relu", "block must have no negative coefficients"),
        (Gate(into=Z.o, value=Z.x, block=-Z.example), {}, "linear", "block must have no negative coefficients"),
        (
            Copy(into=Z.o, value=Z.x, key=Z.zero(1), query=Z.one, keys="examples", sink="blank"),
            {}, "softmax", "all of examples match, and a softmax takes their mean",
        ),
        (
            Copy(into=Z.o, value=Z.x, key=Z.k, query=Z.q, keys="queries", sink="labels"),
            {"coded": "queries"}, "softmax", "a sink must be in sight of all tokens",
        ),
    ],
)  # fmt: skip
def test_what_a_lowering_cannot_do_it_refuses(step, options, attention, reason):
    log = options.pop("log", True)
    tokens = encoder(**options)
    if not log:
        bare = tuple(Group(g.name, g.track, {r: f for r, f in g.fill.items() if r != "log_n"}) for g in tokens.groups)
        tokens = Encoder(bare)
    with pytest.raises(Unsupported, match=reason):
        compile(program(tokens=tokens, pre=[step]), attention)


LABELLED = Copy(into=Z.v, value=Z.y, key=Z.k, query=Z.q, keys="labels", queries="examples", sink="blank")
MOVED = Copy(into=Z.v, value=Z.x, key=Z.k, query=Z.q, keys="queries", queries="examples", sink="blank")
FILLED = Linear(into=Z.v, value=Z.blank.through(torch.ones(2, 1)), add=True)


@pytest.mark.parametrize(
    ("layers", "tokens", "options", "reason"),
    [
        ([[mac(mask=Z.s)]], {}, {}, "linear attention has no mask"),
        ([[mac(match=(Z.k, Z.q))]], {}, {}, "linear attention has no match"),
        ([[mac(block=Z.query)]], {}, {}, "linear attention has no block"),
        ([[mac(match=(Z.one, Z.query))]], {}, {"attention": "softmax"}, "key, value and mask must be 0 on blank"),
        ([[mac(queries="queries")]], {}, {}, "linear attention cannot keep examples from receiving"),
        ([[mac(mean=True)]], {}, {"masked": False}, "without a mask there is no 1/n either"),
        ([[mac()]], {"missing": ("blank", "one")}, {"attention": "softmax"}, "a register that holds 1 on every token"),
        (
            [[mac(queries="queries")]], {"missing": ("examples", "example")}, {"attention": "relu"},
            "needs registers that hold 1 on blank and examples and labels, which must not receive",
        ),
        (
            [[mac()]], {"missing": ("queries", "query")}, {"attention": "softmax"},
            "needs registers that hold 1 on queries, which are no keys",
        ),
        (
            [[mac(mask=Z.example + Z.label + Z.query + Z.blank - Z.one)]], {}, {"attention": "relu"},
            "mask must be 0 or positive; .* is negative on unseen examples",
        ),
        (  # a mark that the program overwrites is none
            [[Clear(Z.query)], [mac()]], {}, {"attention": "softmax"},
            "needs registers that hold 1 on queries, which are no keys",
        ),
        (
            [[LABELLED]], {"missing": ("labels", "label")}, {"attention": "relu"},
            "needs a register that holds 1 on labels alone",
        ),
        (
            [[LABELLED]], {"missing": ("blank", "blank")}, {"attention": "softmax"},
            "needs a register that holds 1 on labels and blank alone",
        ),
        (
            [[MOVED, FILLED], [mac(value=Z.v, mean=True, dump="labels")]], {"coded": "queries"},
            {"attention": "softmax"}, "needs a blank token without key and value, for prompts of which nothing is seen",
        ),
        (
            [[MOVED], [mac(value=Z.v, key=Z.v, mean=True, dump="labels", mask=Z.blank)]], {"coded": "queries"},
            {"attention": "softmax"}, "needs a blank token without key and value, for prompts of which nothing is seen",
        ),
    ],
)  # fmt: skip
def test_what_the_tokens_do_not_allow_is_refused(layers, tokens, options, reason):
    with pytest.raises(Unsupported, match=reason):
        compile(program(tokens=encoder(**tokens), pre=layers), **options)


def test_a_mark_that_the_blank_of_a_mean_of_nothing_shares_masks_no_queries():
    shared = tuple(
        Group(g.name, g.track, {**g.fill, **({"s": 1} if g.name in ("queries", "blank") else {})})
        for g in encoder(coded="queries", missing=("queries", "query")).groups
    )
    count = mac(value=Z.v, key=Z.v, mean=True, dump="labels")
    with pytest.raises(Unsupported, match="needs registers that hold 1 on queries, which are no keys"):
        compile(program(tokens=Encoder(shared), pre=[[MOVED], [count]]), "softmax")


@pytest.mark.parametrize(("attention", "key", "taken"), [("relu", Z.v, 0), ("relu", Z.x, 1), ("softmax", Z.x, 0)])
def test_values_on_unseen_pairs_that_nothing_tells_from_seen_ones_are_refused(attention, key, taken):
    tokens = encoder(coded="queries", missing=("examples", "example"))
    p = program(tokens=tokens, pre=[[MOVED], [mac(value=Z.v, key=key)]])
    if taken:
        assert differs(p, prompt([1, 0, 1]), attention) <= 1e-12
        return
    with pytest.raises(Unsupported, match="the program writes to tokens of examples and labels whose pair is unseen"):
        compile(p, attention)


@pytest.mark.parametrize("attention", ["relu", "softmax"])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_tokens_of_unseen_pairs_that_receive_what_only_queries_ask_for_are_told_apart_or_refused(
    attention, copied, told
):
    z = Stream(x=1, v=1, o=1, one=1, pair=1, example=1, query=1, blank=1, k=4, q=4)
    mark = {"one": 1, "pair": 1}
    tokens = Encoder((
        Group("examples", "examples", {"x": "x", "k": Code(2, key=True), **mark, **({"example": 1} if told else {})}),
        Group("labels", "examples", mark),
        Group("queries", "queries", {"x": "x", "one": 1, "query": 1, "q": Code(2)}),
        Group("blank", "blank", {"one": 1, "blank": 1}),
    ))  # fmt: skip
    kept = {"value": z.x, "queries": "queries"}
    take = Mac(into=z.v, key=z.x, query=z.one, dump="blank", score=1.0, **kept)
    if copied:
        take = Copy(
            into=z.v, key=z.k, query=z.q, keys="examples" if told else ("examples", "labels"), sink="blank", **kept
        )
    total = Mac(into=z.o, value=z.v, key=z.v, query=z.x, keys=("examples", "queries"), dump="blank", score=9.0)
    p = Program(
        name="two", stream=z, encoder=tokens, read=z.o, at="queries", steps=0, pre=[[take], [total]]
    )  # fmt: skip
    q = scalars([1.0, 1.0, 1.0], [1.0], [True, True, False])
    if told:
        with torch.no_grad():
            got = compile(p, attention).predict(q)
        assert float(got) == pytest.approx(1.0 if copied else 4.0, abs=1e-6)
    else:
        with pytest.raises(Unsupported, match="writes to tokens of examples and labels whose pair is unseen"):
            compile(p, attention)


@pytest.mark.parametrize("attention", ["relu", "softmax"])
def test_columns_of_matrices_that_would_receive_what_queries_alone_ask_for_are_no_keys(attention):
    """Nothing marks the columns where their pair is unseen, and there they are keys too."""

    def squares(asking):
        kept = {"key": V.x, "query": V.x, "dump": "blank", "score": 2.0}
        first = Mac(into=V.v, value=V.x, keys="queries", queries=asking, **kept)
        return ranged(columns=True, pre=[[first], [Mac(into=V.o, value=V.v, **kept)]])

    q = scalars([1.0, 1.0], [1.0], [False, False])
    with torch.no_grad():
        assert float(compile(squares(None), attention).predict(q)) == pytest.approx(1.0, abs=1e-6)
    assert not Interpreter(squares("queries")).predict(q)
    with pytest.raises(Unsupported, match="no register keeps columns from receiving v where their pair is unseen"):
        compile(squares("queries"), attention)


@pytest.mark.parametrize(
    ("options", "attention", "reason"),
    [
        ({"dump": "inputs"}, "softmax", "a causal mean needs as many inputs as keys in sight of every query"),
        ({"dump": "blank"}, "softmax", "a causal mean needs as many blank as keys in sight of every query"),
        ({"mask": Z.s}, "relu", "a causal mean is over all keys in sight; it cannot have a mask or a match"),
        (
            {"match": (Z.label, Z.one)},
            "relu",
            "a causal mean is over all keys in sight; it cannot have a mask or a match",
        ),
        ({"mean": False, "dump": "inputs"}, "softmax", "a causal sum needs a dump of one token that every query sees"),
    ],
)
def test_a_causal_mean_divides_by_the_keys_in_sight(options, attention, reason):
    step = {"value": Z.y, "key": Z.label, "query": Z.one, "keys": "labels", "queries": "inputs", "mean": True}
    mark = Leaky(into=Z.s, value=Z.label, slope=0.0)
    kept = {"name": "causal", "stream": Z, "encoder": CAUSAL, "read": Z.o, "at": "inputs", "labels": 2, "steps": 0}
    plain = Program(**kept, causal=True, pre=[mac(**step)])
    q = Dense(prompt([1, 1, 1]).x, prompt([1, 1, 1]).y)
    before = torch.cat([torch.zeros_like(q.y[:, :1]), q.y.cumsum(1)[:, :-1] / torch.arange(1, 3)[:, None]], 1)
    assert torch.allclose(Interpreter(plain).predict(q), q.x + before)
    assert differs(plain, q, "relu") <= 1e-12
    with pytest.raises(Unsupported, match=reason):
        compile(Program(**kept, causal=True, pre=[[mark], [mac(**step | options)]]), attention)


@pytest.mark.parametrize("seen", [[1, 0, 1], [1, 1, 1], [0, 0, 0]])
def test_a_causal_mean_leaves_out_unseen_pairs(seen):
    mean = mac(key=Z.example, query=Z.query, mean=True)
    q = prompt(seen)
    wanted = sum(x for x, shown in zip(q.x[0], seen, strict=True) if shown) / max(sum(seen), 1)
    p = program(pre=[mean], causal=True)
    for machine in (Interpreter(p), *(compile(p, attention) for attention in ("linear", "relu"))):
        assert torch.allclose(machine.predict(q), q.queries + wanted, rtol=0, atol=1e-15)


@pytest.mark.parametrize("first", ["blank", "values"])
def test_a_blank_serves_a_causal_layer_only_from_the_front(first):
    z = Stream(x=1, o=1, one=1, blank=1, values=1, k=4, q=4)
    code = {"x": "x", "k": Code(2, key=True), "q": Code(2)}
    groups = sorted([Group("blank", "blank", {}), Group("values", "values", code)], key=lambda g: g.name != first)
    kept = {"into": z.o, "value": z.x, "keys": "values"}
    for step, reason in (
        (Mac(**kept, key=z.values, query=z.values, dump="blank", score=1.0), "a causal sum needs a dump of one token"),
        (Copy(**kept, key=z.k, query=z.q, sink="blank"), "a sink must be in sight of all tokens, whatever is seen"),
    ):
        p = Program(
            name="a step", stream=z, encoder=tokens_of(Series, *groups), read=z.o, at="values", steps=0, pre=[step],
            causal=True, first=True,
        )  # fmt: skip
        if first == "values":
            with pytest.raises(Unsupported, match=reason):
                compile(p, "softmax")
        else:
            v = torch.tensor([[[3.0], [4.0]]], dtype=torch.float64)
            with torch.no_grad():
                state = compile(p, "softmax").init(Series(v))
            wanted = v.cumsum(1) if isinstance(step, Mac) else v
            assert torch.allclose(state.stream[:, 1:, z.rows["o"]], wanted, rtol=0, atol=1e-7)


def test_a_bound_counts_the_groups_of_keys_and_is_none_where_their_number_is_not_declared():
    z = Stream(x=1, v=1, o=1, one=1, a=1, b=1, label=1, query=1, blank=1)
    pair = {"x": "x", "v": "y", "one": 1}
    tokens = Encoder((
        Group("a", "examples", {**pair, "a": 1}), Group("b", "examples", {**pair, "b": 1}),
        Group("labels", "examples", {"one": 1, "label": 1}),
        Group("queries", "queries", {"x": "x", "v": 1, "one": 1, "query": 1}),
        Group("blank", "blank", {"one": 1, "blank": 1}),
    ))  # fmt: skip

    def bound(keys, mean):
        step = Mac(into=z.o, value=z.v, key=z.x, query=z.x, keys=keys, mean=mean, dump="labels" if mean else "blank")
        p = Program(
            name="a mac", stream=z, encoder=tokens, read=z.o, at="queries", steps=0, pre=[step],
            examples=3, bounds={"x": 1.0, "v": 1.0},
        )  # fmt: skip
        model = compile(p, "softmax")
        return model, model.budget[0][1]

    one = torch.ones(1, 3, 1, dtype=torch.float64)
    for keys, mean in ((("a", "b"), True), (("a", "b"), False), ("a", True), ("a", False)):
        model, most = bound(keys, mean)
        assert float(model.measured_error(Prompt(one, one, one)).max()) <= most
    assert bound(("a", "queries"), False)[1] is None


def test_the_declared_range_is_held_in_the_loop():
    z = Stream(x=1, w=1, one=1, label=1, query=1)
    tokens = Encoder((
        Group("examples", "examples", {"x": "x", "one": 1}), Group("labels", "examples", {"one": 1, "label": 1}),
        Group("queries", "queries", {"w": "x", "one": 1, "query": 1}),
    ))  # fmt: skip
    step = Mac(into=z.w, value=z.x, key=z.x, query=z.w, queries="queries", mean=True, dump="labels")
    p = Program(
        name="growth",
        stream=z,
        encoder=tokens,
        read=z.w,
        at="queries",
        steps=9,
        loop=[step],
        bounds={"x": 1.0, "w": 5.0},
    )
    one = torch.ones(1, 3, 1, dtype=torch.float64)
    model, q = compile(p, "softmax"), Prompt(one, one, one)
    assert float(model.predict(q, 2).detach()[0, 0, 0]) == pytest.approx(4.0, abs=1e-7)
    with pytest.raises(ValueError, match=r"growth was declared for \|w\| up to 5; got 8"):
        model.predict(q, 3)


def test_a_fused_program_has_the_range_of_its_parts(generator):
    network = Representation(d=3, layers=1).phi
    plain = regression_with_representation(network, eta=0.1, steps=2, examples=8, h=2.0, y=1.0)
    x, y = (torch.randn(1, 6, d, generator=generator, dtype=torch.float64) for d in (3, 1))
    for scale in ((9.0, 0.1), (0.1, 9.0)):
        for p in (plain, fuse(plain)):
            with pytest.raises(ValueError, match=r"was declared for \|[hr]\| up to [12]; got"):
                compile(p, "softmax").predict(Prompt(scale[0] * x, scale[1] * y, scale[0] * x[:, :1]))


def test_a_fused_program_is_held_to_its_range_after_its_first_part():
    shrink, move, answer = (Linear(into=i, value=v) for i, v in ((Z.x, 0.01 * Z.x), (Z.o, Z.x), (Z.v, Z.o)))
    plain = program(pre=[shrink], loop=[move], post=[answer], steps=1, read=Z.v, bounds={"x": 1.0})
    q = prompt([1, 1])
    for p in (plain, fuse(plain)):
        model = compile(p, "relu")
        with torch.no_grad():
            assert torch.allclose(model.predict(Prompt(50 * q.x, q.y, 50 * q.queries)), q.queries / 2, atol=1e-14)
        with pytest.raises(ValueError, match=r"was declared for \|x\| up to 1; got"):
            model.predict(Prompt(900 * q.x, q.y, q.queries))


def test_a_fused_gate_stops_what_it_stopped_before():
    tokens = encoder()
    gated = {"pre": [Linear(into=Z.o, value=Z.x)], "loop": [Gate(into=Z.o, value=2.0 * Z.o, block=Z.query)]}
    post = [Linear(into=Z.v, value=Z.o)]
    q = prompt([1, 1])
    for at, wanted in (("queries", q.queries), ("examples", 8.0 * q.x)):
        fused = fuse(program(tokens=tokens, **gated, post=post, steps=3, read=Z.v, at=at))
        *_, last = Interpreter(fused).states(q)
        shown = last.stream[:, fused.encoder.tokens(last.layout, (at,))]
        assert torch.allclose(shown[..., fused.stream.rows["v"]], wanted, rtol=0, atol=1e-14)
    z = Stream(x=1, o=1)
    bare = Encoder((Group("examples", "examples", {"x": "x"}), Group("queries", "queries", {"x": "x"})))
    parts = {section: [Linear(into=z.o, value=z.x)] for section in ("pre", "loop", "post")}
    with pytest.raises(ValueError, match="bare must have a register that holds 1 on every token; got none"):
        fuse(Program(name="bare", stream=z, encoder=bare, read=z.o, at="queries", steps=1, **parts))


def tokens_of(kind, *groups, interleaved=False):
    """Tokens that hold 1 in the register of their own name and in `one`."""
    marked = (Group(g.name, g.track, {**g.fill, g.name: 1, "one": 1}, g.start, g.stop) for g in groups)
    return Encoder(tuple(marked), kind, interleaved)


COPIED = [
    (Chains, "partial", -1, False), (Chains, "partial", None, True), (Chains, "partial", 1, True),
    (Prompt, "queries", None, False), (Prompt, "blank", None, True),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "track", "stop", "always"), COPIED)
def test_a_sink_that_may_be_empty_is_refused(kind, track, stop, always):
    z = Stream(x=1, o=1, one=1, keys=1, sink=1, k=6, q=6)
    own, field = ("states", "s") if kind is Chains else ("examples", "x")
    code = {"x": field, "k": Code(3, key=True), "q": Code(3, shift=1)}
    tokens = tokens_of(kind, Group("keys", own, code), Group("sink", track, {}, stop=stop))
    copy = Copy(into=z.o, value=z.x, key=z.k, query=z.q, keys="keys", queries="keys", sink="sink")
    p = Program(name="shift", stream=z, encoder=tokens, read=z.o, at="keys", steps=0, pre=[copy])
    if not always:
        with pytest.raises(
            Unsupported, match="a sink must be in sight of all tokens, whatever is seen; sink may not be"
        ):
            compile(p, "softmax")
        return
    v = torch.arange(1.0, 4.0, dtype=torch.float64)
    q = Chains(v[None, None, :, None], v[None, :1, None]) if kind is Chains else prompt([1, 1, 1], m=0)
    values = q.chains[:, 0] if kind is Chains else q.x[..., :1]
    q = q if kind is Chains else Prompt(values, values, values[:, :0])
    state = compile(p, "softmax").init(q)
    assert torch.equal(state.stream[:, :2, z.rows["o"]], values[:, 1:])
    assert not state.stream[:, 2:, z.rows["o"]].any()


@pytest.mark.parametrize(
    ("keys", "dumps", "causal"),
    [
        ({"stop": 2}, {"start": 2}, False),
        ({"start": -1}, {"start": 2}, False),
        ({"stop": 2}, {"start": 2, "stop": 4}, True),
        ({"start": 4, "stop": -4}, {"start": 5, "stop": -5}, True),  # both are empty up to 8 values
        ({"stop": 8}, {}, True),
        ({"start": -1}, {"start": -1}, False),
    ],
)
def test_a_mean_whose_dumps_may_be_fewer_than_its_keys_is_refused(keys, dumps, causal):
    z = Stream(x=1, o=1, one=1, keys=1, dumps=1, slot=1)
    groups = (
        Group("keys", "values", {"x": "x"}, **keys),
        Group("dumps", "values", {}, **dumps),
        Group("slot", "next", {}),
    )
    mean = Mac(
        into=z.o, value=z.x, key=z.keys, query=z.slot, keys="keys", queries="slot", mean=True, dump="dumps", score=1.0
    )
    p = Program(
        name="a mean",
        stream=z,
        encoder=tokens_of(Series, *groups),
        read=z.o,
        at="slot",
        steps=0,
        pre=[mean],
        causal=causal,
    )
    reason = "a causal mean needs as many dumps as keys" if causal else "keys may be keys where there are no dumps"
    if keys == dumps:  # one token, of which no window begins
        reason = "a mean needs as many dumps as examples"
    with pytest.raises(Unsupported, match=reason):
        compile(p, "softmax")


def test_a_logarithm_that_the_program_overwrites_counts_nothing():
    with pytest.raises(Unsupported, match="a mean needs as many blank as examples, or the logarithm of their number"):
        compile(program(pre=[[Clear(Z.log_n)], [mac(mean=True)]]), "softmax")


def test_the_bound_of_a_mean_whose_dump_counts_has_the_rounding_of_that_larger_score():
    ((_, bound),) = compile(program(pre=[mac(mean=True, scale=-0.5, mass=2.0)]), "softmax").budget
    s = scales(torch.float64, 9.0)
    assert bound == pytest.approx(0.5 * s.bound(2.0, 1, summed=64, counted=True), rel=1e-12)
    assert bound > 0.5 * s.bound(2.0, 1, summed=64)


SERIES = Stream(x=1, o=1, one=1, log_n=1, held=1, blank=1, values=1, last=1, slot=1)


def serial(step, *, causal=False):
    """A program over two blanks (one holds the logarithm of the count), the values, the last of them and the slot."""
    groups = (
        Group("held", "blank", {"x": 3}), Group("blank", "blank", {"log_n": LogCount()}),
        Group("values", "values", {}), Group("last", "values", {"x": "x"}, start=-1), Group("slot", "next", {"x": 1}),
    )  # fmt: skip
    return Program(
        name="serial", stream=SERIES, encoder=tokens_of(Series, *groups, interleaved=causal), read=SERIES.o,
        at="slot", steps=0, pre=[step], causal=causal,
    )  # fmt: skip


def meant(keys, dump):
    """The mean over keys, which the slot asks for."""
    return Mac(
        into=SERIES.o, value=SERIES.x, key=getattr(SERIES, keys), query=SERIES.slot, keys=keys, mean=True,
        queries="slot", dump=dump, score=1.0,
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_mean_over_fewer_keys_than_dumps_divides_by_the_examples(n):
    with torch.no_grad():
        got = compile(serial(meant("last", "values")), "softmax").predict(Series(torch.ones(1, n, 1).double()))
    assert float(got) == pytest.approx(1 / n, abs=1e-7)


def test_a_mean_of_a_token_that_is_there_without_examples_is_refused():
    with pytest.raises(Unsupported, match="slot may be keys where there are no values"):
        compile(serial(meant("slot", "values")), "softmax")


@pytest.mark.parametrize("n", [1, 2, 40])
def test_a_causal_mean_of_one_key_divides_by_one_whatever_its_dump_counts(n):
    with torch.no_grad():
        got = compile(serial(meant("held", "blank"), causal=True), "softmax").predict(
            Series(torch.ones(1, n, 1).double())
        )
    assert float(got) == pytest.approx(3.0, abs=1e-7)


def test_a_copy_of_one_token_and_of_all_others_is_refused():
    copy = Copy(
        into=SERIES.o, value=SERIES.x, key=SERIES.zero(1), query=SERIES.slot, keys=("held", "values"), queries="slot",
        sink="blank",
    )  # fmt: skip
    with pytest.raises(Unsupported, match="all of held and values match, and a softmax takes their mean"):
        compile(serial(copy), "softmax")


def test_a_logarithm_that_other_tokens_hold_too_counts_nothing():
    groups = (Group(g.name, g.track, {**g.fill, "log_n": LogCount()}, g.start) for g in encoder().groups)
    with pytest.raises(Unsupported, match="a mean needs as many blank as examples, or the logarithm of their number"):
        compile(program(tokens=Encoder(tuple(groups)), pre=[mac(mean=True)]), "softmax")


@pytest.mark.parametrize(
    ("kind", "dumps"),
    [
        (Series, {"track": "values", "start": 1}), (Prompt, {"track": "examples", "start": 1}),
        (Prompt, {"track": "queries", "stop": -1}),
    ],
)  # fmt: skip
def test_a_causal_mean_has_the_dumps_of_the_pairs_of_its_keys_where_pairs_may_be_unseen(kind, dumps):
    z = Stream(x=1, o=1, one=1, keys=1, dumps=1, slot=1)
    track, asked = ("values", "next") if kind is Series else ("examples", "queries")
    groups = Group("keys", track, {"x": "x"}, stop=-1), Group("dumps", fill={}, **dumps), Group("slot", asked, {})
    mean = Mac(
        into=z.o, value=z.x, key=z.keys, query=z.slot, keys="keys", queries="slot", mean=True, dump="dumps", score=1.0
    )  # fmt: skip
    p = Program(
        name="a mean", stream=z, encoder=tokens_of(kind, *groups), read=z.o, at="slot", steps=0, pre=[mean],
        causal=True,
    )  # fmt: skip
    wanted = "needs a blank token without key" if kind is Series else "a causal mean needs as many dumps as keys"
    with pytest.raises(Unsupported, match=wanted):  # only the pairs of a series are all seen
        compile(p, "softmax")


def test_tokens_of_a_causal_layer_that_see_no_dump_receive_nothing():
    z = Stream(x=1, o=1, one=1, blank=1, keys=1, dumps=1, slot=1)
    groups = Group("blank", "blank", {}), Group("keys", "values", {"x": "x"}), Group("dumps", "values", {})
    mean = Mac(
        into=z.o, value=z.x, key=z.x, query=z.one, keys="keys", queries="slot", mean=True, dump="dumps", score=9.0
    )  # fmt: skip
    p = Program(
        name="a mean", stream=z, encoder=tokens_of(Series, *groups, Group("slot", "next", {})), read=z.o, at="slot",
        steps=0, pre=[mean], causal=True,
    )  # fmt: skip
    v = torch.tensor([[[1.0], [2.0], [3.0]]], dtype=torch.float64)
    with torch.no_grad():
        got = compile(p, "softmax").init(Series(v)).stream[0, :, z.rows["o"]]
    wanted = torch.zeros(8, 1).double()
    wanted[-1] = v.square().mean()
    assert torch.allclose(got, wanted, rtol=0, atol=1e-6)


def test_what_is_asked_stands_behind_interleaved_examples():
    z = Stream(x=1, o=1, one=1, blank=1, values=1, asked=1)
    for kind, track, after in ((Series, "values", "next"), (Prompt, "examples", "queries")):
        groups = Group("blank", "blank", {}), Group("values", track, {"x": "x"}), Group("asked", after, {})
        total = Mac(into=z.o, value=z.x, key=z.values, query=z.asked, keys="values", dump="blank", score=1.0)
        p = Program(
            name="a sum", stream=z, encoder=tokens_of(kind, *groups, interleaved=True), read=z.o, at="asked",
            steps=0, pre=[total], causal=True,
        )  # fmt: skip
        v = torch.arange(1.0, 5.0, dtype=torch.float64)[None, :, None]
        q = Series(v) if kind is Series else Prompt(v, v, v[:, :2])
        for machine in (Interpreter(p), *(compile(p, attention) for attention in ("linear", "relu", "softmax"))):
            assert torch.allclose(machine.predict(q), v.sum(), rtol=0, atol=1e-7)


GROW = Linear(into=Z.v, value=100.0 * Z.x)
SMALL = {"score": None, "key": Z.v, "query": Z.x}
TURN = Linear(into=Z.v, value=Z.v.through(torch.tensor([[0.0, -100.0], [0.01, 0.0]])))
OUTSIDE = {
    "in pre, declared": {"pre": [mac(score=0.01)]},
    "in pre, of a register that shrinks after": {
        "pre": [[Linear(into=Z.x, value=10.0 * Z.x)], [mac(score=None)], [Linear(into=Z.x, value=0.01 * Z.x)]]
    },
    "between two layers of a loop": {"loop": [[GROW], [mac(**SMALL), Clear(Z.v)]], "steps": 1},
    "between two layers of a loop, declared": {
        "loop": [[GROW], [mac(**SMALL | {"score": 0.5}), Clear(Z.v)]],
        "steps": 1,
    },
    "between two layers of post": {"post": [[GROW], [mac(**SMALL)]]},
    "between two passes": {
        "pre": [Linear(into=Z.v, value=Z.x)],
        "loop": [mac(key=Z.v, score=0.5), TURN],
        "steps": 2,
    },
}


@pytest.mark.parametrize("sections", OUTSIDE.values(), ids=OUTSIDE)
def test_a_score_is_held_where_it_runs(sections):
    p = program(**sections, bounds={"x": 0.5, "v": 0.5})
    q = prompt([1, 1, 1])
    q = Prompt(0.3 * q.x, q.y, 0.3 * q.queries)
    with pytest.raises(ValueError, match=r"a program was declared for <[xv], x> up to 0\.\d+; got"):
        compile(p, "softmax").predict(q)
    tiny = Prompt(1e-4 * q.x, q.y, 1e-4 * q.queries)
    with torch.no_grad():
        assert torch.allclose(compile(p, "softmax").predict(tiny), Interpreter(p).predict(tiny), rtol=0, atol=1e-7)


def test_a_score_that_no_query_takes_is_not_held():
    q = prompt([1, 1, 1])
    low = Prompt(0.1 * q.x, q.y, 9.0 * q.queries)
    for options in ({"queries": "examples"}, {"block": Z.query}):
        p = program(pre=[mac(score=0.05, **options)])
        with torch.no_grad():
            got, wanted = (machine.init(low).stream for machine in (compile(p, "softmax"), Interpreter(p)))
        assert torch.allclose(got, wanted, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"was declared for <x, x> up to 0.05"):
        compile(program(pre=[mac(score=0.05)]), "softmax").predict(low)


V = Stream(x=1, v=1, o=1, one=1, example=1, query=1, blank=1)
HIDDEN = Linear(into=V.v, value=V.one - V.example - V.query - V.blank)  # 1 on tokens of unseen pairs alone


def ranged(*, columns=False, **options):
    """A program of which only tokens of unseen pairs hold anything in v."""
    tokens = tuple(
        Group(name, name, {**fill, name.removesuffix("s").replace("querie", "query"): 1, "one": 1})
        for name, fill in (("examples", {"x": Unit(1) if columns else "x"}), ("queries", {"x": "x"}), ("blank", {}))
    )
    kept = {"name": "ranged", "stream": V, "encoder": Encoder(tokens), "read": V.o, "at": "queries", "steps": 0}
    return Program(**kept | {"pre": [[HIDDEN], [Linear(into=V.o, value=V.x)]]} | options)


def scalars(x, queries, seen):
    v, w = (torch.tensor(numbers, dtype=torch.float64)[None, :, None] for numbers in (x, queries))
    return Prompt(v, v, w, torch.tensor([seen]))


def test_what_tokens_of_unseen_pairs_hold_is_not_held_to_the_range_but_columns_of_matrices_are():
    half, q = {"bounds": {"v": 0.5}}, scalars([1.0, 1.0], [1.0], [True, False])
    total = Mac(into=V.o, value=V.x, key=V.x, query=V.v + 0.1 * V.x, dump="blank", score=0.5)
    for p in (ranged(**half), ranged(pre=[[HIDDEN], [total]])):
        with torch.no_grad():
            got = compile(p, "softmax").predict(q)
        assert torch.allclose(got, Interpreter(p).predict(q), rtol=0, atol=1e-7)
    with pytest.raises(ValueError, match=r"was declared for \|v\| up to 0.5; got 1"):
        compile(ranged(columns=True, **half), "relu").predict(q)
    with pytest.raises(ValueError, match=r"was declared for <x, v \+ 0.1 x> up to 0.5; got 0.6"):
        compile(ranged(pre=[[HIDDEN], [total]]), "softmax").predict(scalars([1.0, 1.0], [6.0], [True, True]))


def test_a_spectrum_is_that_of_the_groups_it_names():
    far = scalars([0.5, 0.5], [3.0, 3.0], [True, True])
    for groups, found in (("examples", 0.25), ("queries", 9.0), (("examples", "queries"), 9.25)):
        for most, fits in ((found * 1.01, True), (found * 0.99, False)):
            model = compile(ranged(gram=Gram(register="x", groups=groups, most=most)), "relu")
            if fits:
                model.predict(far)
            else:
                with pytest.raises(ValueError, match=rf"eigenvalues of x'x up to .*; got {found:g}"):
                    model.predict(far)


def test_bounds_that_scores_after_the_loop_rest_on_are_held_in_the_loop():
    double = [Linear(into=V.v, value=2.0 * V.v)]
    answer = Mac(into=V.o, value=V.x, key=V.x, query=V.v, dump="blank")
    p = ranged(
        pre=[Linear(into=V.v, value=V.x)], loop=double, post=[answer], steps=3, bounds={"x": 1.0, "v": 4.0}
    )  # fmt: skip
    model, q = compile(p, "softmax"), scalars([1.0], [1.0], [True])
    with torch.no_grad():
        assert float(model.predict(q, 2)) == pytest.approx(4.0, abs=1e-7)
    with pytest.raises(ValueError, match=r"was declared for \|v\| up to 4; got 8"):
        model.predict(q)
    free = ranged(
        pre=[Linear(into=V.v, value=V.x), Linear(into=V.o, value=V.x)],
        loop=double,
        steps=3,
        bounds={"x": 1.0, "v": 4.0},
    )
    assert compile(free, "softmax").predict(q).shape == (1, 1, 1), "no score rests on v"


def test_what_a_program_does_not_answer_is_refused():
    series = compile(autoregression(1, 1, eta=0.1, steps=1), "relu")
    with pytest.raises(ValueError, match="answers a Series that asks its next value; this one asks every value"):
        series.predict(Series(torch.ones(1, 3, 1, dtype=torch.float64), every=True))
    chains = compile(chain_of_thought(1, 3, slope=0.5, eta=0.1, steps=1), "relu")
    with pytest.raises(ValueError, match="answers a Chains with a partial chain; this one has none"):
        chains.predict(Chains(torch.ones(1, 2, 3, 1, dtype=torch.float64)))
    with pytest.raises(ValueError, match="chains must have 3 states; got 4"):
        ones = torch.ones(1, 2, 4, 1, dtype=torch.float64)
        chains.predict(Chains(ones, ones[:, 0, :1]))


def test_the_decoder_is_held_to_what_its_scores_are_declared_for_and_to_no_less():
    """All x are 1 and all y 8: the iterate is w_t = 8 (1 - 0.9^t), and the scores are 8 - w and w."""
    p = Dense(torch.ones(1, 3, 1, dtype=torch.float64), torch.full((1, 3, 1), 8.0, dtype=torch.float64))
    model = compile(
        decoder_gradient_descent(1, eta=0.1, steps=9, examples=4, x=1.0, y=8.0, w=4.0), "softmax"
    )  # fmt: skip
    with torch.no_grad():
        for t in (0, 1, 6):
            wanted = torch.tensor([0.0, 1.0, 1.0]) * 8 * (1 - 0.9**t)
            assert torch.allclose(model.predict(p, t)[0, :, 0], wanted.double(), rtol=0, atol=1e-7)
        for got, wanted in zip(model.states(p, 6), Interpreter(model.program).states(p, 6), strict=True):
            assert torch.allclose(got.stream, wanted.stream, rtol=0, atol=1e-7), (
                "nor do tokens that ask nothing receive"
            )
    with pytest.raises(ValueError, match=r"was declared for <x, w> up to 4; got 4\.17"):
        model.predict(p, 7)
    (step, bound), (answer, other) = model.budget
    assert (step.target, answer.target) == ("w", "o")
    assert bound == pytest.approx(0.1 * scales(torch.float64, 12.0).bound(1.0, 1, summed=4), rel=1e-12)
    assert other == pytest.approx(scales(torch.float64, 4.0).bound(1.0, 8, summed=4), rel=1e-12)
