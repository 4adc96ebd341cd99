"""The assembler itself: registers, instructions, errors at build and at run, listings, counts, hooks and training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algoformer.constructions import (
    Clear,
    Code,
    Copy,
    Double,
    Encoder,
    Equal,
    Gate,
    Gram,
    Group,
    Interpreter,
    Leaky,
    Linear,
    Mac,
    OutOfRange,
    Program,
    Stream,
    Table,
    Unsupported,
    autoregression,
    chain_of_thought,
    compile,
    damped_newton,
    decoder_gradient_descent,
    descent_step,
    fuse,
    gradient_descent,
    gradient_descent_plus_plus,
    join,
    least_squares,
    load,
    matrix_inverse,
    newton,
    preconditioned_gradient_descent,
    regression_with_representation,
    save,
    show,
)
from algoformer.constructions.catalogue import CATALOGUE
from algoformer.constructions.encoder import TRACKS, Link, Spread
from algoformer.prompt import Chains, Dense, Prompt, Series
from algoformer.solvers import GradientDescent
from algoformer.tasks import Representation


def prompt(generator, b=2, n=6, d=3, m=2, k=1):
    x, y, queries = (torch.randn(b, *s, generator=generator, dtype=torch.float64) for s in ((n, d), (n, k), (m, d)))
    return Prompt(x, y, queries)


PAIRS = Encoder(
    (
        Group("examples", "examples", {"x": "x", "one": 1, "example": 1, "k": Code(3, key=True)}),
        Group("queries", "queries", {"x": "x", "one": 1, "query": 1, "q": Code(3)}),
        Group("blank", "blank", {"one": 1, "blank": 1}),
    )
)
Z = Stream(x=3, o=3, e=1, one=1, example=1, query=1, blank=1, k=6, q=6)


def program(*layers, read=Z.o, at="queries", **options):
    kept = {
        "name": "a program",
        "stream": Z,
        "encoder": PAIRS,
        "steps": 0,
        "read": read,
        "at": at,
        "labels": read.width,
    }
    return Program(**kept | {"pre": list(layers)} | options)


def both(p, generator, lowerings=("relu",), **options):
    """What the interpreter says, and that the lowerings say the same."""
    q = prompt(generator, k=p.labels)
    wanted = Interpreter(p).predict(q)
    for attention in lowerings:
        with torch.no_grad():
            got = compile(p, attention, **options).predict(q)
        assert torch.allclose(got, wanted, rtol=0, atol=1e-12), attention
    return q, wanted


def test_forms_are_linear_maps_by_name():
    a = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64)
    form = join(2.0 * Z.x[:1] - Z.e, Z.x.through(a))
    z = torch.arange(Z.width, dtype=torch.float64)[None, None]
    x, e = z[0, 0, :3], z[0, 0, 6:7]
    assert torch.equal(Z.of(form, z)[0, 0], torch.cat([2 * x[:1] - e, a @ x]))
    assert torch.equal(z @ Z.matrix(form).mT, Z.of(form, z))
    assert str(Z.x.through(a) + 0.0 * join(Z.one, Z.e)) == "A x"
    assert (str(-Z.x), str(2.0 * Z.x + Z.o), str(Z.x[1]), str(join(Z.x, -Z.one))) == (
        "-x",
        "2 x + o",
        "x[1]",
        "(x, -one)",
    )


@given(st.integers(1, 7), st.integers(0, 40), st.integers(0, 40))
def test_codes_are_zero_apart_on_equal_positions_and_at_least_one_elsewhere(bits, n, m):
    n, m = min(n, 2**bits), min(m, 2**bits)
    z = Stream(k=2 * bits, q=2 * bits)
    keys, queries = (
        Group("keys", "examples", {"k": Code(bits, key=True)}),
        Group("queries", "queries", {"q": Code(bits)}),
    )
    p = Prompt(torch.zeros(1, n, 1), torch.zeros(1, n, 1), torch.zeros(1, m, 1))
    stream, _ = Encoder((keys, queries)).encode(z, p)
    apart = stream[0, n:, z.rows["q"]] @ stream[0, :n, z.rows["k"]].mT
    same = torch.arange(m)[:, None] == torch.arange(n)
    assert torch.equal(apart == 0, same)
    assert bool((apart[~same] >= 1).all())


def test_the_docs_list_every_construction_and_where_it_lowers_to():
    page = (Path(__file__).parent.parent / "docs" / "constructions.md").read_text()
    for name, construction in CATALOGUE.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` | ") and line.count("|") == 6]
        kinds = [low for low in construction.bars if low != "softmax, 4 heads"]
        assert row.endswith(f"| {', '.join(kinds)} |")


def test_copy_gives_the_value_at_the_matching_position_and_exactly_zero_elsewhere(generator):
    copy = Copy(into=Z.o, value=Z.x, key=Z.k, query=Z.q, keys="examples", queries="queries", sink="blank")
    q, wanted = both(program(copy), generator, ("relu", "softmax"))
    assert torch.equal(wanted, q.x[:, :2])  # the codes of queries 0 and 1 match examples 0 and 1
    few = Prompt(q.x[:, :1], q.y[:, :1], q.queries)  # nothing has the code of query 1
    for machine in (Interpreter(program(copy)), compile(program(copy), "softmax"), compile(program(copy), "relu")):
        with torch.no_grad():
            answer = machine.predict(few)
        assert torch.equal(answer[:, 0], few.x[:, 0])
        assert not answer[:, 1].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_gate_passes_exactly_and_stops_exactly(generator, dtype):
    q = prompt(generator, k=3).to(dtype=dtype)
    gate = Gate(into=Z.o, value=Z.x, block=Z.query + Z.blank)
    for at, wanted in (("examples", q.x), ("queries", torch.zeros_like(q.queries))):
        p = program([gate], at=at)
        state = compile(p, "relu", dtype=dtype).init(q)
        tokens = PAIRS.tokens(state.layout, (at,))
        assert torch.equal(state.stream[:, tokens][..., Z.rows["o"]], wanted)


def test_token_instructions_do_what_they_say(generator):
    slope = 0.25
    steps = [
        [Leaky(into=Z.o, value=Z.x, slope=slope)],
        [Leaky(into=Z.o, value=Z.o, slope=slope, inverse=True)],
        [Double(Z.o)],
        [Linear(into=Z.o, value=Z.x, add=True)],
    ]
    q, wanted = both(program(*steps), generator)
    assert torch.allclose(wanted, 3 * q.queries, rtol=0, atol=1e-14)
    assert not both(program(*steps, [Clear(Z.o)]), generator)[1].any()
    q, wanted = both(program([Leaky(into=Z.o, value=Z.x, slope=slope)]), generator)
    assert torch.equal(wanted, torch.nn.functional.leaky_relu(q.queries, slope))


def test_equal_compares_one_hot_codes_exactly(generator):
    _, wanted = both(program([Equal(into=Z.e, left=Z.query, right=Z.one)], read=Z.e), generator)
    assert torch.equal(wanted, torch.ones_like(wanted))
    _, wanted = both(program([Equal(into=Z.e, left=Z.blank, right=Z.one)], read=Z.e), generator)
    assert not wanted.any()


def test_a_mac_sums_over_its_keys_alone(generator):
    mac = Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.x, dump="blank", score=60.0)
    p = program([mac])
    q, wanted = both(p, generator)
    assert torch.allclose(wanted, q.queries @ (q.x.mT @ q.x), rtol=0, atol=1e-13)
    with torch.no_grad():
        assert torch.allclose(compile(p, "softmax").predict(q), wanted, rtol=0, atol=1e-6)


def test_building_refuses_what_cannot_run():
    with pytest.raises(ValueError, match=r"reads register o .*neither the encoder nor an earlier instruction"):
        program([Linear(into=Z.e, value=Z.o[0])])
    program([Linear(into=Z.o, value=Z.x)], [Linear(into=Z.e, value=Z.o[0])])
    loop = [Linear(into=Z.e, value=Z.o[0]), Linear(into=Z.o, value=Z.x)]
    program(pre=(), loop=loop)  # an earlier pass of the loop writes it
    with pytest.raises(ValueError, match="2 instructions of one half-layer write register o; each must say add=True"):
        program([Linear(into=Z.o, value=Z.x), Linear(into=Z.o, value=Z.x, add=True)])
    with pytest.raises(ValueError, match="value must be as wide as o, 3; e has 1"):
        Linear(into=Z.o, value=Z.e)
    with pytest.raises(ValueError, match="key and query must be equally wide; got 3 and 1"):
        Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.e)
    with pytest.raises(ValueError, match="a group must be one of blank, examples, queries; got labels"):
        program([Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.x, keys="labels")])
    with pytest.raises(ValueError, match="attention must come before the token-wise half"):
        program([Clear(Z.o), Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.x)])
    with pytest.raises(ValueError, match="an instruction must write a whole register; got 2 o"):
        Clear(2.0 * Z.o)
    with pytest.raises(ValueError, match="read must be as wide as there are labels, 1; o has 3"):
        program([Linear(into=Z.o, value=Z.x)], labels=1)
    with pytest.raises(ValueError, match="register x must be at least 1 wide; got 0"):
        Stream(x=0)
    for name in ("width", "widths", "rows", "zero", "matrix", "of"):
        with pytest.raises(ValueError, match=f"must not have the name of an attribute of a stream; got {name}"):
            Stream(**{name: 1})
    for build in (descent_step, decoder_gradient_descent):
        with pytest.raises(ValueError, match="eta must be above 0; got 0"):
            build(3, eta=0.0, steps=1)
    with pytest.raises(ValueError, match="start must be one of 'S', 'I'; got 's'"):
        least_squares(3, scale=0.1, steps=1, start="s")
    with pytest.raises(ValueError, match="register w is read, but neither"):
        wider = Stream(**Z.widths, w=1)
        program([Linear(into=wider.o, value=wider.x)], stream=wider, read=wider.w)
    with pytest.raises(ValueError, match=r"alpha must be above 0 and below 2 / most\^2"):
        newton(3, most=2.0, alpha=0.5, steps=1)
    with pytest.raises(ValueError, match="a track of a Prompt is examples, queries, blank; got states"):
        Encoder((Group("states", "states", {"x": "s"}),))
    with pytest.raises(ValueError, match="steps must be the number of passes, 1; got 2"):
        program(passes=[[[Linear(into=Z.o, value=Z.x)]]], steps=2, pre=())


KEYED = {"into": Z.o, "value": Z.x, "key": Z.x}
PHI = Representation(d=3, layers=1).phi
REFUSED = [
    (lambda: damped_newton(3, inner=-1), "inner must be at least 0; got -1"),
    (lambda: least_squares(3, scale=0.1, steps=1, order=1), "order must be at least 2; got 1"),
    (lambda: gradient_descent_plus_plus(3, eta=(0.1, 0.1), gamma=(0.1,)), "as long as eta, 2 numbers; got 1"),
    (lambda: preconditioned_gradient_descent(torch.ones(2, 3, 3), steps=3), "number of preconditioners, 2; got 3"),
    (
        lambda: preconditioned_gradient_descent(torch.ones(3, 3)),
        "steps must be given for a preconditioner that is used",
    ),
    (lambda: gradient_descent(3, eta=-0.1, steps=1), "eta must be above 0; got -0.1"),
    (lambda: chain_of_thought(1, 3, slope=0.5, eta=0.0, steps=1), "eta must be above 0; got 0"),
    (lambda: autoregression(1, 1, eta=0.0, steps=1), "eta must be above 0; got 0"),
    (lambda: regression_with_representation(PHI, eta=0.0, steps=1), "eta must be above 0; got 0"),
    (lambda: Z.x + Z.e, "forms that are added must be equally wide; got 3 and 1"),
    (lambda: Z.x.through(torch.ones(3, 2)), r"a matrix over x must have 3 columns; got shape \(3, 2\)"),
    (lambda: Z.matrix(Stream(x=2).x), "register x is 3 wide; the form x takes 2"),
    (lambda: Stream(), "a stream must have a register; got none"),
    (lambda: Stream(x=True), "register x must be at least 1 wide; got True"),
    (lambda: Clear(Z.x[:2]), "an instruction must write a whole register; got A x"),
    (lambda: Mac(**KEYED, query=Z.x, mask=Z.o), "mask must be one number a token; o has 3"),
    (lambda: Linear(into=Z.o, value=Z.x, block=Z.x), "block must be one number a token; x has 3"),
    (lambda: Mac(**KEYED, query=Z.x, match=(Z.k, Z.x)), "the codes of match must be equally wide; got 6 and 3"),
    (lambda: Copy(**KEYED, query=Z.q), "key and query must be equally wide; got 3 and 6"),
    (lambda: Leaky(into=Z.o, value=Z.x, slope=0.0, inverse=True), "only a positive slope has an inverse; got 0"),
    (lambda: Equal(into=Z.o, left=Z.x, right=Z.x), "Equal writes one number a token; o is 3 wide"),
    (lambda: Equal(into=Z.e, left=Z.x, right=Z.e), "left and right must be equally wide; got 3 and 1"),
    (
        lambda: Table(into=Z.o, value=Z.x, function=torch.sin, name="sine", domain=(1.0, 1.0), hinges=8),
        r"domain must be an interval; got \(1.0, 1.0\)",
    ),
    (
        lambda: Table(into=Z.o, value=Z.x, function=torch.sin, name="sine", domain=(0.0, 1.0), hinges=1),
        "hinges must be at least 2; got 1",
    ),
    (lambda: Encoder((*PAIRS.groups, PAIRS.groups[0])), "groups must have names of their own; got examples, queries"),
    (lambda: program([Clear(Z.o)], encoder=Encoder((Group("queries", "queries", {"w": "x"}),))), "registers .*; got w"),
    (
        lambda: program([Clear(Z.o)], [Copy(**KEYED, query=Z.x, queries="labels")]),
        "a group must be one of .* got labels",
    ),
    (lambda: program([Clear(Z.o)], [Copy(**KEYED, query=Z.x, sink="labels")]), "a group must be one of .*; got labels"),
    (lambda: program([Clear(Z.o)], at="labels"), "a group must be one of .*; got labels"),
    (lambda: program([Clear(Z.o)], bounds={"e": 1.0}), "register e is read, but neither"),
    (lambda: program([Clear(Z.o)], gram=Gram(register="e", groups="examples", most=1.0)), "register e is read, but"),
    (lambda: program([Clear(Z.o)], loop=[Clear(Z.o)], passes=[[Clear(Z.o)]], steps=1), "a loop or passes; got both"),
    (lambda: program([Linear(into=Z.o, value=Z.o)], loop=[Clear(Z.o)]), "pre: .* reads register o"),
    (lambda: program([Mac(**KEYED, query=Z.x, match=(Z.k, Z.e.through(torch.ones(6, 1))))]), r"register e \(match\)"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED)
def test_what_does_not_fit_is_refused_where_it_is_made(build, reason):
    with pytest.raises(ValueError, match=reason):
        build()


def test_a_mixture_of_layers_and_instructions_is_refused():
    with pytest.raises(TypeError, match="a list of instructions or a list of layers; got a mixture"):
        program(Clear(Z.o), [Clear(Z.e)])


def test_running_refuses_a_prompt_that_does_not_fit(generator):
    q = prompt(generator)
    with pytest.raises(ValueError, match="register x must be filled with 4 numbers a token; group examples has 3"):
        compile(gradient_descent(4, eta=0.1, steps=1)).predict(q)
    with pytest.raises(ValueError, match=r"at least d = 7 examples; got 6"):
        wide = Prompt(torch.zeros(1, 6, 7).double(), torch.zeros(1, 6, 1).double(), torch.zeros(1, 1, 7).double())
        compile(least_squares(7, scale=0.1, steps=1), masked=False).predict(wide)
    with pytest.raises(ValueError, match="answers 2 labels at once; got 1"):
        compile(gradient_descent(3, eta=0.1, steps=1, labels=2)).predict(q)
    with pytest.raises(ValueError, match=r"must be torch.float64 as the weights are; got torch.float32"):
        compile(gradient_descent(3, eta=0.1, steps=1)).predict(q.to(dtype=torch.float32))
    with pytest.raises(TypeError, match="answers a Dense; got Prompt"):
        compile(decoder_gradient_descent(3, eta=0.01, steps=1), "relu").predict(q)
    many = prompt(generator, n=9, k=3)
    with pytest.raises(ValueError, match="positions must be 0 to 7 for codes of 3 bits; got 0 to 8"):
        Interpreter(program([Linear(into=Z.o, value=Z.x)])).predict(many)


def test_a_prompt_outside_the_declared_range_raises_or_warns(generator):
    q = prompt(generator)
    p = descent_step(3, eta=0.1, steps=2, x=1.0, y=9.0)
    with pytest.raises(ValueError, match=r"was declared for \|x\| up to 1; got [23]"):
        compile(p, "softmax").predict(q)
    with pytest.warns(OutOfRange, match=r"was declared for \|x\| up to 1"), torch.no_grad():
        warned = compile(p, "softmax", outside="warn").predict(q)
    with torch.no_grad():
        assert torch.equal(compile(p, "softmax", outside="ignore").predict(q), warned)
    steep = descent_step(3, eta=1.9, steps=2, x=9.0, y=9.0)
    with pytest.raises(ValueError, match=r"declared for eigenvalues of x'x up to 1.053"):
        compile(steep, "softmax").predict(q)
    summed = float(torch.linalg.eigvalsh(q.x.mT @ q.x).max())  # of the sum, which the mean does not show
    with pytest.raises(ValueError, match=rf"declared for eigenvalues of x'x up to {summed / 2:.3f}"):
        compile(newton(3, most=round(summed / 2, 3), steps=1), "relu").predict(q)
    with pytest.raises(ValueError, match="was declared for examples up to 5; got 6"):
        compile(newton(3, most=99.0, steps=1, examples=5), "relu").predict(q)
    with pytest.raises(ValueError, match=r"was declared for <u, x> up to 0.01"):
        compile(newton(3, most=99.0, steps=30, reach=0.01), "relu").predict(q)


def test_newton_may_begin_as_far_as_its_scores_are_declared(generator):
    x = 3 * torch.linalg.qr(torch.randn(2, 3, 3, generator=generator, dtype=torch.float64))[0]  # x'x = 9 I
    p = Prompt(x, torch.randn(2, 3, 1, generator=generator, dtype=torch.float64), x[:, :1].contiguous())
    program = newton(3, most=9.01, alpha=1.9 / 9.01**2, steps=4)  # |<x, u>| begins at 1.9
    with torch.no_grad():
        got = compile(program, "softmax").trace(p)
    torch.testing.assert_close(got, Interpreter(program).trace(p), rtol=0, atol=1e-6)


def test_every_refusal_to_lower_names_the_instruction_and_the_reason():
    with pytest.raises(Unsupported) as refused:
        compile(newton(3, most=9.0, steps=1), "linear")
    lines = str(refused.value).splitlines()
    assert len(lines) == 4
    assert "linear attention cannot compare codes" in lines[2]
    together = program([Copy(into=Z.o, value=Z.x, key=Z.x, query=Z.x), Mac(into=Z.e, value=Z.one, key=Z.x, query=Z.x)])
    with pytest.raises(Unsupported) as refused:
        compile(together, "softmax")
    assert len(str(refused.value).splitlines()) == 3, "each of a layer"
    nothing = program([Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.x, dump="blank")])
    with pytest.raises(Unsupported, match="softmax attention needs bounds of x, or a score"):
        compile(nothing, "softmax")
    valued = program([Mac(into=Z.e, value=Z.one, key=Z.x, query=Z.x, dump="blank", score=9.0)], read=Z.e)
    with pytest.raises(Unsupported, match="must be 0 on blank, which takes attention and gives nothing"):
        compile(valued, "softmax")


def test_what_an_attention_would_ignore_is_refused():
    p = gradient_descent(3, eta=0.1, steps=1)
    with pytest.raises(ValueError, match="heads must be left out without softmax attention; got 4 with relu"):
        compile(p, "relu", heads=4)
    with pytest.raises(ValueError, match="masked must be left out without linear attention; got False with softmax"):
        compile(p, "softmax", masked=False)
    with pytest.raises(TypeError, match=r"dump must be the name of one group; got \('labels',\)"):
        Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.x, dump=("labels",))
    with pytest.raises(Unsupported, match="a score of 0 leaves nothing to multiply"):
        compile(program([Mac(into=Z.o, value=Z.x, key=Z.x, query=Z.x, dump="blank")], bounds={"x": 0.0}), "softmax")
    model = compile(p).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"the weights must be torch\.float64 or torch\.float32; .* torch\.bfloat16"):
        model.predict(Prompt(*(torch.zeros(1, 2, k, dtype=torch.bfloat16) for k in (3, 1, 3))))


@pytest.mark.parametrize("declared", [True, False])
def test_scores_above_the_mask_of_relu_attention_are_refused_not_answered_wrongly(generator, declared):
    q, s = prompt(generator, n=6), 3e9
    far = Prompt(s * q.x, s * q.y, s * q.queries)
    made = descent_step(3, eta=0.3 / s**2, steps=2, x=10 * s, y=10 * s)
    if declared:
        with pytest.raises(Unsupported, match=r"scores must be below the mask, 1\.15e\+18; they go up to 9e\+20"):
            compile(made, "relu")
        return
    free = replace(made, bounds={})
    near = compile(free, "relu").predict(q)
    with pytest.raises(ValueError, match=r"was declared for <x, x> up to 1\.153e\+18; got"):
        compile(free, "relu").predict(far)
    torch.testing.assert_close(near, Interpreter(free).predict(q), rtol=0, atol=1e-12)


def test_more_rows_than_a_matrix_has_are_refused(generator):
    model = compile(matrix_inverse(3, alpha=0.1, steps=4), "linear")
    assert model.predict(prompt(generator, n=3)).isfinite().all()
    with pytest.raises(ValueError, match="was declared for examples up to 3; got 6"):
        model.predict(prompt(generator, n=6))


def test_a_prompt_just_outside_is_told_with_all_digits(generator):
    q = prompt(generator, n=4)
    bound = float(q.x.norm(dim=-1).max()) * (1 - 1e-9)
    with pytest.raises(ValueError, match=r"up to (\d\.\d+); got (?!\1)"):
        compile(descent_step(3, eta=0.1, steps=1, x=bound, y=99.0), "softmax").predict(q)


def test_tables_of_different_functions_are_not_saved_under_one_name(tmp_path):
    tables = [
        Table(into=Z.o, value=Z.x, function=f, name="f", domain=(-1, 1), hinges=8) for f in (torch.tanh, torch.cos)
    ]
    with pytest.raises(ValueError, match="tables of different functions must have different names; two are called 'f'"):
        save(compile(program([tables[0]], [tables[1]]), "linear"), tmp_path)


def test_a_causal_program_never_looks_ahead(generator):
    q = prompt(generator, n=7)
    model = compile(decoder_gradient_descent(3, eta=0.02, steps=5, w=9.0), "softmax")
    other = q.x.clone()
    other[:, 4:] = 0.5
    with torch.no_grad():
        one, two = model.predict(Dense(q.x, q.y)), model.predict(Dense(other, q.y))
    assert torch.equal(one[:, :4], two[:, :4])
    assert not torch.equal(one[:, 4:], two[:, 4:])


def test_the_listing_can_be_held_against_the_theorem():
    text = show(newton(20, most=300.0, steps=10), "softmax")
    for line in (
        "    attend  u -= 0.5 sum u <x, u>   [keys examples, dump blank]",
        "    token   u = 2 u",
        "softmax attention: layers x heads pre 1 x 2, loop 1 x 2, post 2 x 2; width 72; 64192 weights",
    ):
        assert line in text.splitlines()
    assert str(newton(20, most=300.0, steps=10)) in text.replace("  (2 heads)", "").replace("  (1 head)", "").replace(
        "  (2 heads, feed-forward 40)", ""
    )


def test_every_construction_keeps_to_the_budget_of_its_paper():
    def size(name, lowering):
        model = CATALOGUE[name].compile(lowering)
        parts = [(len(s), max((b.heads for b in s), default=0)) for s in (model.pre, model.loop, model.post)]
        return parts, model.program.stream.width

    for name in ("gradient-descent", "preconditioned-gradient-descent"):
        assert size(name, "linear") == ([(0, 0), (1, 1), (0, 0)], 21)
    parts, width = size("gd++", "linear")
    assert (parts[1][1], width) == (1, 21)  # both updates share a head
    assert size("descent-step", "softmax")[0] == [(0, 0), (1, 2), (0, 0)]
    assert size("descent-step", "softmax, 4 heads")[0] == [(0, 0), (1, 4), (0, 0)]
    assert size("regression-with-representation", "softmax")[0] == [(3, 1), (1, 2), (1, 1)]  # claimed (4, 2)
    assert size("autoregression", "softmax")[0] == [(3, 3), (1, 2), (1, 0)]  # claimed 1 x q and 4 x 1, .., (1, 1)
    assert size("chain-of-thought", "softmax")[0] == [(1, 2), (1, 2), (1, 1)]  # claimed (7, 2)
    assert size("newton", "softmax")[0] == [(1, 2), (1, 2), (2, 2)]
    assert size("newton", "relu")[0] == [(1, 2), (1, 2), (2, 2)]  # k + 3 layers; claimed k + 8
    assert size("decoder-gradient-descent", "softmax")[0] == [(1, 1), (1, 2), (1, 2)]  # claimed .., (2, 2)
    assert size("matrix-inverse", "bare linear")[0][1] == (1, 2)  # claimed two layers
    parts, width = size("least-squares", "bare linear")
    assert (parts, width) == ([(1, 2), (1, 2), (2, 2)], 4 * 10 + 3)
    parts, width = size("logistic-regression", "linear")
    assert parts[1][0] <= 11 + 2 * 6
    assert width == 6 * 5 + 4
    assert size("fused", "softmax")[0] == [(0, 0), (1, 4), (0, 0)]


def test_three_heads_select_among_three_parts_of_one_head():
    """The paper takes a fourth head to select; the feed-forward layer does it."""
    z = Stream(x=3, a=3, b=3, c=3, one=1, example=1, query=1, blank=1, k=6, q=6)

    def step(into, value):
        return Copy(into=into, value=value, key=z.k, query=z.q, keys="examples", queries="queries", sink="blank")

    tokens = Encoder((
        Group("examples", "examples", {"x": "x", "c": "x", "one": 1, "example": 1, "k": Code(3, key=True)}),
        Group("queries", "queries", {"one": 1, "query": 1, "q": Code(3)}),
        Group("blank", "blank", {"one": 1, "blank": 1}),
    ))  # fmt: skip
    kept = {"name": "copies", "stream": z, "encoder": tokens, "steps": 4, "read": z.b, "at": "queries", "labels": 3}
    plain = Program(**kept, pre=[step(z.a, z.x)], loop=[step(z.b, z.x)], post=[step(z.b, z.c)])
    q = prompt(torch.Generator().manual_seed(0), k=3)
    for attention in ("relu", "softmax"):
        fused = compile(fuse(plain), attention)
        assert fused.loop[0].heads == 3
        with torch.no_grad():
            assert torch.allclose(fused.predict(q), 5 * q.x[:, :2], rtol=0, atol=1e-13)
            assert torch.allclose(fused.predict(q), compile(plain, attention).predict(q), rtol=0, atol=1e-13)


def test_a_layered_program_has_as_many_steps_as_layers(generator):
    steps = 0.3 * torch.eye(3).double() + 0.1 * torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    model = compile(preconditioned_gradient_descent(steps))
    q = prompt(generator)
    assert model.limit == 2
    with pytest.raises(ValueError, match="has 2 steps; got steps = 3"):
        model.predict(q, 3)
    w = torch.zeros(2, 3, 1, dtype=torch.float64)
    for a in steps:
        w = w - a @ (q.x.mT @ (q.x @ w - q.y)) / 6
    assert torch.allclose(model.predict(q), q.queries @ w, rtol=0, atol=1e-14)


def test_any_layer_can_be_hooked(generator):
    model = compile(gradient_descent(3, eta=0.1, steps=4))
    seen = []
    model.loop[0].register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    q = prompt(generator)
    model(q)
    states = [s.stream for s in model.states(q)]
    assert len(seen) == 8
    assert torch.equal(seen[3], states[4])


def test_training_on_from_compiled_weights_repairs_a_disturbed_model(generator):
    model = compile(gradient_descent(3, eta=0.3, steps=3))
    p, fresh = (prompt(generator, b=64) for _ in range(2))
    target = GradientDescent(eta=0.3, steps=3)

    def loss(q):
        return (model.predict(q) - target.predict(q)).square().mean()

    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    before = float(loss(fresh).detach())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(40):
        optimizer.zero_grad()
        loss(p).backward()
        optimizer.step()
    assert float(loss(fresh).detach()) < before / 5


@pytest.mark.parametrize(("attention", "least", "most"), [("linear", 0.0, 1e-9), ("relu", 1.0, float("inf"))])
def test_a_change_of_the_last_digits_opens_the_masks_of_relu_attention_alone(generator, attention, least, most):
    model = compile(descent_step(3, eta=0.3, steps=3, x=9.0, y=9.0), attention)
    q = prompt(generator)
    wanted = GradientDescent(eta=0.3, steps=3).predict(q)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1e-12 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        model.outside = "ignore"
        assert least <= float((model.predict(q) - wanted).abs().max()) <= most


@pytest.mark.parametrize("options", [{}, {"masked": False}, {"attention": "softmax", "heads": 4}, {"outside": "warn"}])
def test_a_transformer_is_loaded_with_the_options_it_was_compiled_with(options, tmp_path):
    built = descent_step(3, eta=0.1, steps=1) if "heads" in options else least_squares(3, scale=0.1, steps=1)
    model = compile(built, **options)
    model.loop[0].value.data += 0.5  # as training would: what is loaded is not compiled anew
    save(model, tmp_path)
    again = load(tmp_path)
    assert torch.equal(again.loop[0].value, model.loop[0].value)
    kept = {"attention": "linear", "heads": 2, "masked": True, "outside": "raise"} | options
    assert {name: getattr(again, name) for name in kept} == kept


def test_a_function_of_your_own_is_saved_by_name(generator, tmp_path):
    table = Table(into=Z.o, value=Z.x, function=torch.tanh, name="tanh", domain=(-4.0, 4.0), hinges=64)
    q = prompt(generator, k=3)
    model = compile(program([table]), "relu")
    with torch.no_grad():
        assert torch.allclose(model.predict(q), q.queries.tanh(), rtol=0, atol=2e-3)
        save(model, tmp_path)
        with pytest.raises(ValueError, match="functions must hold the table 'tanh'"):
            load(tmp_path)
        assert torch.equal(load(tmp_path, {"tanh": torch.tanh}).predict(q), model.predict(q))


@pytest.mark.parametrize("seen", [[1, 1, 1], [1, 1, 0], [0, 0, 0]])
@pytest.mark.parametrize(("keys", "wanted"), [("queries", 1.0), ("examples", None)])
def test_a_token_of_an_unseen_pair_is_no_key_even_if_it_is_written_to(keys, wanted, seen):
    z = Stream(x=1, v=1, o=1, one=1, example=1, query=1)
    pairs = Group("examples", "examples", {"x": "x", "example": 1, "one": 1})
    tokens = Encoder((pairs, Group("queries", "queries", {"x": "x", "query": 1, "one": 1})))
    count = Mac(into=z.o, value=z.v, key=z.v, query=z.x, keys=keys)
    program = Program(
        name="count", stream=z, encoder=tokens, read=z.o, at="queries", steps=1,
        pre=[Linear(into=z.v, value=z.one)], loop=[count],
    )  # fmt: skip
    x = torch.ones(1, 3, 1, dtype=torch.float64)
    p = Prompt(x, x, x[:, :1], torch.tensor([seen], dtype=torch.bool))
    answers = [Interpreter(program), *(compile(program, attention) for attention in ("linear", "relu"))]
    assert [a.predict(p).item() for a in answers] == [sum(seen) if wanted is None else wanted] * 3


@pytest.mark.parametrize(("n", "m"), [(0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("attention", ["linear", "relu", "softmax"])
def test_a_prompt_may_be_empty(attention, n, m):
    model = compile(descent_step(2, eta=0.5, steps=2, x=1.0, y=1.0), attention)
    x = torch.full((1, n, 2), 0.5, dtype=torch.float64)
    p = Prompt(x, x[..., :1], torch.ones(1, m, 2, dtype=torch.float64) / 2)
    assert torch.equal(model.predict(p), torch.zeros(1, m, 1, dtype=torch.float64))


def test_a_program_without_layers_answers_as_it_begins(generator):
    q = prompt(generator)
    none = compile(gradient_descent_plus_plus(3, eta=(), gamma=()))
    assert none.dtype is torch.float64 and torch.equal(none.predict(q), torch.zeros(2, 2, 1, dtype=torch.float64))


def test_a_table_of_your_own_cannot_be_saved_under_a_name_of_ours(tmp_path):
    cube = Table(into=Z.o, value=Z.x, function=lambda v: v**3, name="square", domain=(-1.0, 1.0), hinges=8)
    with pytest.raises(ValueError, match="must have a name of its own to be saved; 'square' is taken"):
        save(compile(program([cube])), tmp_path)


def test_a_name_that_begins_as_ours_does_is_your_own(generator, tmp_path):
    table = Table(into=Z.o, value=Z.x, function=torch.sin, name="step size of mine", domain=(-4.0, 4.0), hinges=64)
    model, q = compile(program([table])), prompt(generator, k=3)
    save(model, tmp_path)
    assert torch.equal(load(tmp_path, {"step size of mine": torch.sin}).predict(q), model.predict(q))


def test_a_table_may_have_jumps_but_must_be_differentiated(generator):
    def table(function):
        return Table(into=Z.o, value=Z.x, function=function, name="f", domain=(-4.0, 4.0), hinges=256)

    q = prompt(generator, k=3)
    far = q.queries.abs() > 0.1
    for function in (lambda v: (v > 0).to(v), torch.ones_like):
        with torch.no_grad():
            got = compile(program([table(function)])).predict(q)
        assert torch.allclose(got[far], function(q.queries)[far], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"a function that torch can differentiate twice; got: .*heaviside"):
        compile(program([table(lambda v: torch.heaviside(v, torch.ones_like(v)))]))


def test_numbers_that_are_none_are_refused_at_the_door():
    kept = {"into": Z.o, "value": Z.x, "key": Z.x, "query": Z.x}
    for options, reason in (
        ({"scale": float("nan")}, "scale must be finite; got nan"),
        ({"score": -1.0}, "score must be above 0; got -1"),
        ({"mass": float("inf")}, "mass must be finite and at least 0; got inf"),
    ):
        with pytest.raises(ValueError, match=reason):
            Mac(**kept, **options)
    with pytest.raises(TypeError, match="scale must be a number; got 'a'"):
        Mac(**kept, scale="a")
    with pytest.raises(ValueError, match="slope must be finite; got nan"):
        Leaky(into=Z.o, value=Z.x, slope=float("nan"))
    with pytest.raises(ValueError, match="an end of the domain must be finite; got inf"):
        Table(into=Z.o, value=Z.x, function=torch.sin, name="sine", domain=(0.0, float("inf")), hinges=8)
    for options, reason in (
        ({"answers": 2}, "answers must be one of None, 1; got 2"),
        ({"examples": -1}, "examples must be at least 0; got -1"),
        ({"bounds": {"x": -1.0}}, "the bound of x must be at least 0; got -1"),
    ):
        with pytest.raises(ValueError, match=reason):
            program([Linear(into=Z.o, value=Z.x)], **options)


def test_rows_of_a_form_count_from_its_end_as_well():
    assert (str(Z.x[-1]), str(Z.x[-3])) == ("x[2]", "x[0]")
    for row in (3, -4):
        with pytest.raises(ValueError, match=f"rows of a form must lie in its 3; got {row}"):
            Z.x[row]


def test_a_series_must_hold_a_window():
    model = compile(autoregression(2, 3, eta=0.1, steps=1), "relu")
    three, two = (Series(torch.ones(1, n, 2, dtype=torch.float64)) for n in (3, 2))
    assert not model.predict(three).any()
    with pytest.raises(ValueError, match="a series must have at least q = 3 values; got 2"):
        model.predict(two)


def test_sizes_may_be_numbers_of_numpy(generator):
    q, d = prompt(generator), np.int64(3)
    for theirs, ours, attention in (
        (gradient_descent(d, eta=0.1, steps=np.int64(2)), gradient_descent(3, eta=0.1, steps=2), "linear"),
        (newton(d, most=99.0, steps=2, examples=np.int64(8)), newton(3, most=99.0, steps=2, examples=8), "relu"),
    ):
        assert str(theirs) == str(ours)
        assert torch.equal(compile(theirs, attention).predict(q), compile(ours, attention).predict(q))


def test_the_listing_says_how_many_queries_codes_can_count():
    network = Representation(d=3, layers=1).phi
    few = regression_with_representation(network, eta=0.1, steps=1, examples=8)
    assert "answers at most 8 queries and 1 label at once" in str(few)
    assert "answers any number of queries and 1 label at once" in str(newton(3, most=9.0, steps=1))


def test_the_listing_says_all_that_a_program_holds():
    a = torch.stack([torch.eye(2), torch.eye(2), 2 * torch.eye(2)]).double()
    said = (
        (
            autoregression(2, 2, eta=0.1, steps=3, examples=5),
            "tokens initial   values[:2]: x = x, initial = 1, k = key code(position +2), one = 1",
            "tokens slot      next: slot = 1, one = 1, q1 = query code(position +1), q2 = query code(position)",
            "    token   h = (x2, x1)",
            "    token   x = -r   [unless initial + window + blank]",
            "declared for |h| <= 8, |r| <= 8, at most 5 examples, eigenvalues of the mean of h h' <= 20",
        ),
        (
            newton(3, most=9.0, steps=1),
            "declared for |x| <= 8, at most 64 examples, eigenvalues of the sum of x x' <= 9",
        ),
        (
            decoder_gradient_descent(2, eta=0.1, steps=1),
            "tokens labels    examples: y = y, label = 1, q = query code(position), one = 1",
            "causal, tokens of one position together",
            "    attend  o += sum (first + later) <x, w>   "
            "[keys first later, queries first later, where k = q, dump blank]",
        ),
        (
            preconditioned_gradient_descent(a, labels=2),
            "loop 1 to 2",
            "loop 3",
            "answers any number of queries and 2 labels at once",
        ),
    )
    for p, *lines in said:
        assert set(lines) <= set(str(p).splitlines())
    text = show(least_squares(3, scale=0.1, steps=2, order=4), "linear", masked=False).splitlines()
    assert {
        "loop 2 to 3  (2 heads)",
        "post 1  (1 head)",
        "read o at the first of columns after 2 steps",
        "answers one query and 1 label at once",
        "bare linear attention: layers x heads pre 1 x 2, loop 4 x 2, post 2 x 2; width 21; "
        f"{13 * 21 * (21 + 3 + 3)} weights",  # 13 heads with a value and three rows of key and of query
    } <= set(text)
    with pytest.raises(Unsupported, match="does not lower to bare linear attention"):
        show(gradient_descent(3, eta=0.1, steps=1), "linear", masked=False)
    step = "r -= 0.1 mean r <s, s>   [keys states, queries states last, mask state - match, dump blank]"
    assert {
        "pre 1  (2 heads, feed-forward 13)",
        "loop 1  (4 heads)",
        "    attend  o -= r at 0 = one   [keys last, queries blank, sink blank]",
        f"error of r not bounded a priori: {step}",
    } <= set(show(chain_of_thought(2, 3, slope=0.5, eta=0.1, steps=2), "softmax", heads=4).splitlines())
    coded = [Group("queries", "queries", {"x": "x", "q": Code(3, shift=2)}), Group("again", "queries", {"k": Code(3)})]
    assert "answers at most 6 queries and 3 labels at once" in str(program([Clear(Z.o)], encoder=Encoder((*coded,))))
    assert [str(f) for f in (Z.one - Z.e, join(Z.zero(3), Z.e) + join(Z.x, Z.zero(1)))] == ["one - e", "(x, e)"]


def test_numbers_of_numpy_are_saved_as_numbers(generator, tmp_path):
    q = prompt(generator)
    q = Prompt(q.x / 9, q.y.sign(), q.queries / 9)
    for mu in (np.float64(0.1), 1 / 3):
        model = compile(damped_newton(3, mu=mu, steps=np.int64(1), hinges=8))
        save(model, tmp_path)
        assert torch.equal(load(tmp_path).predict(q), model.predict(q))


@pytest.mark.parametrize("kind", TRACKS)
def test_a_group_may_be_filled_with_the_fields_of_its_track_alone(kind):
    """Every field that is let in is in the prompt; every other is refused before there is one."""
    v = torch.arange(1.0, 5.0, dtype=torch.float64)[None, :, None]
    p = {Prompt: Prompt(v, 2 * v, 3 * v), Dense: Dense(v, 2 * v), Series: Series(v), Chains: Chains(v[None], v[:, :3])}
    p, held = p[kind], {("examples", "x"): v, ("examples", "y"): 2 * v, ("queries", "x"): 3 * v, ("values", "x"): v}
    held |= {("states", "s"): v, ("partial", "s"): v[:, :3]}
    for track in TRACKS[kind]:
        for field in ("x", "y", "s", "z", "queries"):
            group = Group("group", track, {"a": field})
            if (track, field) in held:
                assert torch.equal(Encoder((group,), kind).encode(Stream(a=1), p)[0], held[track, field])
            else:
                with pytest.raises(ValueError, match=f"a field of {track} must be one of .*; group group has {field}"):
                    Encoder((group,), kind)
    for fill, only in ((Spread(), Prompt), (Link(2), Chains)):
        if kind is not only:
            with pytest.raises(ValueError, match=f"is of a {only.__name__}; group group is of a {kind.__name__}"):
                Encoder((Group("group", "blank", {"a": fill}),), kind)
