"""Run by itself: the fused pass against the blocks it stands for, in Triton's interpreter or on a GPU.

Every uninitialised buffer is filled with NaN, so that one that is read before it is written shows. With "few" among its
arguments, of the longest lists every second case: the interpreter is slow.
"""

import copy
import itertools
import sys

import torch

from algoformer.models import (
    LSTM,
    AlgoFormer,
    AlgoFormerConfig,
    LinearSelfAttention,
    LinearSelfAttentionConfig,
    Looped,
    LoopedConfig,
    LSTMConfig,
    Transformer,
    TransformerConfig,
    fused,
    fused_linear,
    kernels,
)
from algoformer.models.blocks import BlockConfig, Body, initialise
from algoformer.models.wavefront import stacked
from algoformer.prompt import Text
from algoformer.tasks import LinearRegression
from algoformer.training.loss import cross_entropy, window_loss

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FEW = 2 if "few" in sys.argv and DEVICE == "cpu" else 1
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.allow_tf32 = False  # which the library's LSTM takes of itself, on the way back too


def body(width, heads, depth, activation, injection, norm, dropout=0.0):
    g = torch.Generator().manual_seed(0)
    config = BlockConfig(width=width, heads=heads, activation=activation, dropout=dropout)
    made = Body(config, depth, injection=injection, norm=norm)
    initialise(made, 1, g)
    with torch.no_grad():
        for v in made.parameters():
            v.add_(0.1 * torch.randn(v.shape, generator=g))
    return made.to(DEVICE)


def plain(b, e, loops, keep, gradient, rows):
    z, out = torch.zeros_like(e) if b.injection else e, []
    for t in range(loops):
        with torch.set_grad_enabled(t >= loops - gradient):
            z = b.norm(b.stack(z + e if b.injection else z, None, rows))
        if t >= loops - keep:
            out.append(z)
    return torch.stack(out)


def fast(b, e, loops, keep, gradient, rows):
    x, inject = (None, e) if b.injection else (e, None)
    return fused.run(
        x, b.stack.blocks, inject=inject, norm=b.norm, loops=loops, keep=keep, gradient=gradient, rows=rows
    )


def gradients(f, b, e, low, *sizes):
    b.zero_grad()
    e = e.clone().requires_grad_()
    with torch.autocast(DEVICE, low or torch.bfloat16, low is not None):
        out = f(b, e, *sizes).float()
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)).sum().backward()
    return {"out": out.detach(), "e": e.grad, **{name: v.grad for name, v in b.named_parameters()}}


def apart(one, other):
    return {name: float((one[name] - v).norm() / v.norm().clamp(min=1e-12)) for name, v in other.items()}


def refuses_a_second_way_back(loss):
    """A pass whose way back was gone says so."""
    try:
        loss.backward()
    except RuntimeError as error:
        assert "once" in str(error)
    else:
        raise AssertionError("a second way back must be refused")


def check_blocks():
    odd, all_rows = slice(0, None, 2), slice(None)
    some = torch.tensor([0, 2, 3], device=DEVICE)
    cases = [  # tokens, batch, width, heads, depth, activation, injection, norm, loops, kept, gradient, rows
        (1, 3, 16, 1, 1, "gelu", True, True, 2, 1, 2, all_rows),
        (9, 1, 32, 2, 1, "gelu", True, True, 4, 3, 1, all_rows),
        (17, 1, 32, 2, 2, "gelu", True, True, 3, 2, 2, all_rows),
        (41, 1, 32, 2, 1, "gelu", False, True, 1, 1, 1, odd),
        (12, 1, 32, 2, 2, "gelu", False, True, 1, 1, 1, odd),  # too short for the kernel that reads every second token
        (5, 2, 32, 2, 3, "gelu", False, False, 1, 1, 1, some),
        (18, 1, 48, 3, 1, "relu", False, True, 2, 2, 2, all_rows),
        (7, 2, 24, 3, 1, "gelu", True, False, 2, 1, 2, all_rows),  # heads of a width without a kernel
    ]
    for tokens, batch, width, heads, depth, activation, injection, norm, *sizes in cases:
        b = body(width, heads, depth, activation, injection, norm)
        e = torch.randn(batch, tokens, width, generator=torch.Generator().manual_seed(2)).to(DEVICE)
        wanted = gradients(plain, b, e, None, *sizes)
        found = apart(gradients(fast, b, e, None, *sizes), wanted)
        assert max(found.values()) < 2e-5, (tokens, width, depth, injection, sizes, found)
        for low in (torch.bfloat16, torch.float16) if DEVICE == "cuda" else ():
            ours, theirs = (apart(gradients(f, b, e, low, *sizes), wanted) for f in (fast, plain))
            assert all(ours[name] < 2 * theirs[name] + 2e-3 for name in ours), (low, tokens, ours, theirs)


def by_hand(b, e, prefix, loops, keep, gradient, _):
    """The loop with dropout written out; the coins are those that the kernels toss."""
    torch.manual_seed(7)
    seed = torch.randint(2**62, (1,), device=DEVICE)
    z, out, blocks = torch.zeros_like(e) if b.injection else e, [], b.stack.blocks
    (n, s, width), at = e.shape, torch.arange(e.shape[1], device=DEVICE)
    hidden = at[:, None] < at if prefix is None else (at[:, None] < at) & (at >= prefix[:, None, None, None])
    for t in range(loops):
        with torch.set_grad_enabled(t >= loops - gradient):
            h = z + e if b.injection else z
            for i, block in enumerate(blocks):
                heads, p = block.attention.heads, block.dropout

                def coins(place, *shape, i=i, t=t, p=p):
                    return kernels.coins(shape, (seed, 3 * (t * len(blocks) + i) + place, 1 - p))

                split = block.attention.qkv(block.norm1(h)).view(n, s, 3, heads, -1).permute(2, 0, 3, 1, 4)
                q, k, v = split.float()
                weight = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
                seen = ((weight * coins(0, n, heads, s, s)) @ v).transpose(1, 2).flatten(2)
                h = h + block.attention.out(seen) * coins(1, n, s, width)
                u = torch.nn.functional.gelu(block.up(block.norm2(h)), approximate="tanh")
                h = h + block.down(u) * coins(2, n, s, width)
            z = b.norm(h)
        if t >= loops - keep:
            out.append(z)
    return torch.stack(out)


def check_dropout():
    """Coins fall as they must, and the pass with them is that written out, with a prefix that all see and without."""
    seed = torch.tensor([2**61 + 12345], device=DEVICE)
    tossed = torch.stack([kernels.coins((300, 100), (seed, site, 0.75)) for site in (0, 1, 2, 1000)]).flatten(1)
    assert set(tossed.unique().tolist()) == {0.0, float(torch.tensor(1.0) / torch.tensor(0.75))}
    assert (tossed.mean(1) - 1).abs().max() < 4 * (0.25 / 0.75 / 30000) ** 0.5
    together = torch.corrcoef(torch.cat([tossed, tossed[:1].roll(1, 1), tossed[:1].roll(100, 1)])) - torch.eye(
        6, device=DEVICE
    )
    assert together.abs().max() < 4 / 30000**0.5
    some = torch.tensor([3, 9], device=DEVICE)
    cases = [  # tokens, heads, depth, injection, norm, loops, kept, gradient, prefix
        (9, 2, 1, True, True, 3, 2, 2, some),
        (40, 2, 1, True, True, 2, 2, 2, None),  # two parts
        (18, 1, 2, False, True, 1, 1, 1, some),
        (7, 4, 2, False, False, 2, 1, 2, some),  # heads of a width without a kernel
        (7, 4, 1, True, True, 2, 1, 1, None),
    ]
    for tokens, heads, depth, injection, norm, loops, keep, gradient, prefix in cases[::FEW]:
        for rate in (0.25,) if prefix is None else (0.0, 0.25):  # neither is `check_blocks`
            b = body(32, heads, depth, "gelu", injection, norm, rate).train()
            e = torch.randn(2, tokens, 32, generator=torch.Generator().manual_seed(2)).to(DEVICE)

            def tossing(b, e, *sizes, prefix=prefix):
                torch.manual_seed(7)
                x, inject = (None, e) if b.injection else (e, None)
                loops, keep, gradient, _ = sizes
                return fused.run(
                    x, b.stack.blocks, inject=inject, norm=b.norm, loops=loops, keep=keep, gradient=gradient,
                    prefix=prefix,
                )  # fmt: skip

            def written(b, e, *sizes, prefix=prefix):
                return by_hand(b, e, prefix, *sizes)

            sizes = loops, keep, gradient, None
            wanted = gradients(written, b, e, None, *sizes)
            found = apart(gradients(tossing, b, e, None, *sizes), wanted)
            assert max(found.values()) < 2e-5, (tokens, heads, depth, rate, found)
            if DEVICE == "cuda":
                found = apart(gradients(tossing, b, e, torch.bfloat16, *sizes), wanted)
                assert max(found.values()) < 5e-2, (tokens, heads, depth, rate, found)
    b = body(32, 2, 1, "gelu", True, True, 0.25).eval()  # nothing is dropped outside of training
    e = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    torch.testing.assert_close(
        fast(b, e, 2, 1, 2, slice(None)), plain(b, e, 2, 1, 2, slice(None)), rtol=1e-4, atol=1e-5
    )


def check_models():
    """A model gives the same loss and gradients with its passes fused, and can be gone back through once."""
    task = LinearRegression(d=3, n=3, dense=True)
    sample = task.sample(2, torch.Generator().manual_seed(0))
    prompt, target = sample.prompt.to(device=DEVICE), sample.target.to(DEVICE)
    models = [
        AlgoFormer(AlgoFormerConfig(features=3, width=32, heads=2, positions=16, loops=3)),
        AlgoFormer(AlgoFormerConfig(features=3, width=32, heads=2, positions=16, loops=2, injection=False, loop=2)),
        Transformer(TransformerConfig(features=3, width=32, heads=2, positions=16, layers=2)),
    ]
    for model in models:
        model.to(DEVICE)
        found = []
        for run in (None, fused.run):
            model.passed_by(run)
            model.zero_grad()
            weight = torch.ones(target.shape[1], device=DEVICE)
            loops, window = model.steps, 1 if isinstance(model, Transformer) else 2
            loss = window_loss(model, prompt, target, weight, loops=loops, window=window, gradient=loops).mean()
            loss.backward(retain_graph=True)
            found.append((loss.detach(), [v.grad.clone() for v in model.parameters()]))
        torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=0)
        for one, other in zip(found[1][1], found[0][1], strict=True):
            assert (one - other).norm() < 2e-5 * max(other.norm(), 1e-3), model.variant
        refuses_a_second_way_back(loss)


def check_lstm():
    """Stacked LSTMs along diagonals are the library's, one layer after another, and can be gone back through once."""
    cases = (
        (1, 2, 5, 8, False), (1, 2, 5, 8, True), (3, 2, 7, 24, False), (3, 2, 7, 24, True), (4, 3, 2, 16, True),
        (2, 1, 1, 40, False), (3, 9, 4, 64, True),
    )  # fmt: skip
    for layers, batch, tokens, width, residual in cases[FEW - 1 :: FEW]:
        config = LSTMConfig(features=3, width=width, layers=layers, residual=residual)
        model = LSTM(config, torch.Generator().manual_seed(0)).to(DEVICE)
        e = torch.randn(batch, tokens, width, generator=torch.Generator().manual_seed(2)).to(DEVICE)

        def way(model, e, run):
            model.fused = run
            return model._passed(e, 0, len(model.layers))

        def found(low, run, model=model, e=e):
            return {k: v for k, v in gradients(way, model, e, low, run).items() if v is not None}

        wanted = found(None, None, model=copy.deepcopy(model).double(), e=e.double())
        plainly, ours = (max(apart(found(None, run), wanted).values()) for run in (None, stacked))
        assert ours < 5 * max(plainly, 1e-6), (config, batch, tokens, plainly, ours)
        ours = apart(found(torch.bfloat16, stacked), wanted)
        assert max(ours.values()) < 3e-2, (config, batch, tokens, ours)
        out = way(model, e.requires_grad_(), stacked).sum()
        out.backward(retain_graph=True)
        refuses_a_second_way_back(out)


def check_linear():
    """Layers of linear attention: sizes, norm, clipping and keys; programs that have one share of rows, and many."""
    cases = (
        ({"layers": 2, "heads": 2, "width": 16, "scratch": 2, "hidden": False, "mean": False, "clip": 1.0}, 3, 2),
        ({"layers": 1, "heads": 4, "width": 24, "norm": True}, 20, 5),
        ({"layers": 3, "heads": 1, "width": 20, "scratch": 1, "norm": True, "clip": 0.5}, 60, 3),
        ({"layers": 2, "heads": 4, "width": 64, "scratch": 3, "clip": 2.0}, 50, 7),
    )
    for sizes, n, batch in cases:
        config = LinearSelfAttentionConfig(features=3, init=0.2, **sizes)
        model = LinearSelfAttention(config, torch.Generator().manual_seed(0)).to(DEVICE)
        task = LinearRegression(d=3, n=n, queries=2)
        p = task.sample(batch, torch.Generator().manual_seed(1)).prompt.to(device=DEVICE)
        exact = found_of(copy.deepcopy(model).double(), p.to(dtype=torch.float64), None)
        plainly = max(apart(found_of(model, p, None), exact).values())
        for most in (2, 264):
            fused_linear.PROGRAMS = most
            ours = apart(found_of(model, p, fused_linear.layer), exact)
            assert max(ours.values()) < 5 * max(plainly, 1e-6), (sizes, n, most, plainly, ours)


def found_of(model, p, run):
    """Answers and gradients of a model by this way through its layers."""
    model.fused = run
    model.zero_grad()
    out = model(p)
    (out * torch.arange(1, out.numel() + 1, device=DEVICE).view_as(out)).sum().backward()
    return {"out": out.detach(), **{name: v.grad for name, v in model.named_parameters()}}


def check_text():
    """A model of text gives the same loss and gradients, also where the source sees all of itself."""
    sizes = {"vocabulary": 12, "width": 32, "heads": 2, "positions": 16}
    tokens = torch.randint(3, 12, (2, 7), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    at, begin = torch.tensor([3, 4, 9, 12], device=DEVICE), torch.tensor([3, 2], device=DEVICE)
    models = [
        AlgoFormer(AlgoFormerConfig(**sizes, loops=3)),
        Looped(LoopedConfig(**sizes, loops=3)),
        Transformer(TransformerConfig(**sizes, layers=2)),
    ]
    for model, mask in itertools.product(models[::FEW], ("causal", "prefix")):
        model.to(DEVICE)
        found = []
        for run in (None, fused.run):
            model.passed_by(run)
            model.zero_grad()
            loops, window = model.steps, 1 if isinstance(model, Transformer) else 2
            text = Text(tokens, begin, 12, mask)
            weight = torch.full((4,), 0.25, device=DEVICE)
            loss = cross_entropy(
                model, text, tokens.flatten()[at], at, weight, loops=loops, window=window, gradient=loops, smoothing=0.1
            )
            loss.backward()
            found.append((loss.detach(), [v.grad.clone() for v in model.parameters()]))
        torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=0)
        for one, other in zip(found[1][1], found[0][1], strict=True):
            assert (one - other).norm() < 2e-5 * max(other.norm(), 1e-3), (model.variant, mask)


def check_attention():
    """The attention kernel beside the definition in float64, at odd lengths, for heads of several widths."""
    g = torch.Generator().manual_seed(0)
    lengths = ((2, 33, 2, 16, 1), (1, 17, 1, 16, 1), (2, 41, 2, 16, 2), (1, 64, 1, 32, 2), (1, 65, 1, 16, 1))
    for (b, s, h, c, step), dtype in itertools.product(lengths, (torch.float32, torch.float16)):
        if DEVICE == "cuda" and dtype == torch.float32:
            continue
        o = -(-s // step)
        qkv = torch.randn(b, s, 3 * h * c, generator=g).to(DEVICE, dtype)
        grad = torch.randn(b, o, h * c, generator=g).to(DEVICE, dtype)
        exact = qkv.double().requires_grad_()
        q, k, v = exact.view(b, s, 3, h, c).permute(2, 0, 3, 1, 4)
        hidden = ~torch.ones(s, s, device=DEVICE).tril().bool()
        p = (q @ k.mT / c**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        wanted = (p @ v).transpose(1, 2).flatten(2)[:, ::step]
        (gradient,) = torch.autograd.grad(wanted, exact, grad.double())
        assert kernels.attends(qkv, h, step)
        out, lse = torch.empty_like(grad), torch.empty(b, h, o, device=DEVICE)
        sums = torch.zeros(b, 3 * h * c, device=DEVICE)
        kernels.attend(qkv, out, lse, h, step)
        kernels.attend_back(qkv, out, grad, lse, (sums, True), h, step)
        tolerance = 2e-6 if dtype == torch.float32 else 4e-3
        for one, other in ((out, wanted), (qkv, gradient), (sums, gradient.sum(1))):
            error = float((one - other.detach()).norm() / other.detach().norm())
            assert error < tolerance, (b, s, h, c, step, dtype, error)


def check_adam():
    """The kernel goes on where torch's optimiser is, and as it would."""
    for kind, decay, betas in (
        (torch.optim.Adam, 0.0, (0.9, 0.95)),
        (torch.optim.Adam, 0.1, (0.0, 0.95)),
        (torch.optim.AdamW, 0.1, (0.9, 0.95)),
    ):
        g = torch.Generator().manual_seed(0)
        start = torch.randn(3000, generator=g).to(DEVICE)
        ways = [start.clone() for _ in range(2)]
        rate = torch.tensor(3e-3, device=DEVICE)
        cuda = DEVICE == "cuda"
        made = [kind([w], rate if cuda else 3e-3, betas, weight_decay=decay, capturable=cuda) for w in ways]
        for step in range(6):
            grad = torch.randn(3000, generator=g).to(DEVICE) * 10.0**-step
            clip = None if step == 3 else 1.0
            for i, (w, optimiser) in enumerate(zip(ways, made, strict=True)):
                w.grad = grad.clone()
                if i and step >= 2:
                    group = {**optimiser.param_groups[0], "lr": rate}
                    kernels.adam(w, w.grad, w.grad.norm(), clip, optimiser.state[w], group)
                else:
                    torch.nn.utils.clip_grad_norm_([w], clip or torch.inf)
                    optimiser.step()
        torch.testing.assert_close(ways[1], ways[0], rtol=2e-6, atol=1e-7)
        for name, value in made[0].state[ways[0]].items():
            torch.testing.assert_close(made[1].state[ways[1]][name], value, rtol=1e-5, atol=1e-8)


if __name__ == "__main__":
    for name in (name for name in sys.argv[1:] if name != "few"):
        globals()[f"check_{name}"]()
    print("equal")
