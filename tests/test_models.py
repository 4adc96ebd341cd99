"""Every model keeps the contract of an Algorithm, and is what its definition says."""

import copy
import importlib
import json
import math
import pickle
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.hub_mixin
import numpy as np
import pytest
import torch
from torch import nn

import algoformer.models.model
from algoformer import Chains, Dense, Prompt, Series
from algoformer.constructions import compile, gradient_descent, gradient_descent_plus_plus
from algoformer.models import (
    LSTM,
    AlgoFormer,
    AlgoFormerConfig,
    LinearSelfAttention,
    LinearSelfAttentionConfig,
    LinearTransformer,
    LinearTransformerConfig,
    Looped,
    LoopedConfig,
    LSTMConfig,
    Transformer,
    TransformerConfig,
)
from algoformer.models.attention import Attention
from algoformer.models.blocks import Block, BlockConfig
from algoformer.models.model import Model
from algoformer.solvers import GradientDescent, GradientDescentPlusPlus, PreconditionedGradientDescent
from algoformer.testing import laws

SMALL = {"features": 4, "labels": 2, "positions": 32, "width": 16, "heads": 2}


def made(kind, config, dtype=torch.float64):
    """A model whose weights are large enough to matter in every part."""
    model = kind(config, torch.Generator().manual_seed(0)).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)  # one for all: parts that are alike differ
    with torch.no_grad():
        for v in model.parameters():
            v += 0.05 * torch.randn(v.shape, generator=generator, dtype=dtype)
    return model


CAUSAL = [
    (AlgoFormer, AlgoFormerConfig(**SMALL, loops=3)),
    (AlgoFormer, AlgoFormerConfig(**SMALL, loops=3, injection=False, loop_norm=False, pre=2, loop=2, post=0)),
    (Looped, LoopedConfig(**SMALL, loops=3)),
    (Looped, LoopedConfig(**SMALL, loops=3, positions_in_loop=False)),
    (Looped, LoopedConfig(**SMALL, loops=3, injection=False)),
    (Transformer, TransformerConfig(**SMALL, layers=3)),
    (Transformer, TransformerConfig(**SMALL, layers=2, attention="relu")),
    (Transformer, TransformerConfig(**SMALL, layers=2, attention="linear", activation="relu")),
    (LSTM, LSTMConfig(features=4, labels=2, width=8, layers=2)),
]
ENCODERS = [
    (Transformer, TransformerConfig(**{**SMALL, "positions": 0}, layers=2, causal=False)),
    (Transformer, TransformerConfig(**{**SMALL, "positions": 0}, layers=2, causal=False, attention="relu")),
    (AlgoFormer, AlgoFormerConfig(**{**SMALL, "positions": 0}, loops=3, causal=False)),
    (LinearSelfAttention, LinearSelfAttentionConfig(features=4, labels=2, width=16, norm=True, clip=5.0)),
    (LinearSelfAttention, LinearSelfAttentionConfig(features=4, labels=2, width=16, hidden=False, scratch=3)),
]
LINEAR = [
    (LinearTransformer, LinearTransformerConfig(features=4, labels=2, form=form, looped=looped))
    for form, looped in (("eq9", False), ("eq9", True), ("eq13", False))
] + [(LinearSelfAttention, LinearSelfAttentionConfig(features=4, labels=2))]


def contract(model, dtype, without):
    return laws(model, dtypes=[dtype], without=without)


CASES = [
    law
    for cases, without in ((CAUSAL, ["permutation", "no_pairs"]), (ENCODERS, ["no_pairs"]), (LINEAR, []))
    for kind, config in cases
    for dtype in (torch.float64, torch.float32)
    for law in contract(made(kind, config, dtype), dtype, without)
]


@pytest.mark.parametrize("law", CASES, ids=str)
def test_every_model_keeps_the_contract(law):
    law()


@pytest.mark.parametrize(("kind", "config"), CAUSAL)
def test_a_series_is_answered_at_every_value_as_from_its_prefix(kind, config, generator):
    model = made(kind, config.__class__(**{**vars(config), "labels": 4}))
    x = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    whole = model.predict(Series(x, every=True))
    each = torch.cat([model.predict(Series(x[:, :t])) for t in range(6)], 1)
    torch.testing.assert_close(whole, each, rtol=1e-9, atol=1e-9)
    assert model.predict(Series(x[:, :0], every=True)).shape == (2, 0, 4)


@pytest.mark.parametrize(("kind", "config"), CAUSAL)
def test_chains_are_answered_at_every_state_as_from_what_comes_before(kind, config, generator):
    model = made(kind, config.__class__(**{**vars(config), "labels": 4}))
    chains = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64)
    whole = model.predict(Chains(chains)).view(2, 3, 3, 4)
    for i in range(3):
        for level in range(1, 4):
            answer = model.predict(Chains(chains[:, :i], chains[:, i, :level]))
            torch.testing.assert_close(whole[:, i, level - 1], answer[:, 0], rtol=1e-9, atol=1e-9)


def test_an_encoder_answers_the_next_value_of_a_series_and_refuses_every_value(generator):
    model = made(Transformer, TransformerConfig(**{**SMALL, "labels": 4}, layers=2, causal=False))
    x = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    assert model.predict(Series(x)).shape == (2, 1, 4)
    blind = made(Transformer, TransformerConfig(**{**SMALL, "labels": 4, "positions": 0}, layers=2, causal=False))
    torch.testing.assert_close(
        blind.predict(Series(x.flip(1))), blind.predict(Series(x))
    )  # no value asks: a token after
    with pytest.raises(ValueError, match="next value"):
        model.predict(Series(x, every=True))


def test_forty_examples_and_a_query_are_81_tokens_and_41_predictions(generator):
    model = AlgoFormer(AlgoFormerConfig(width=32, loops=2))
    p = Dense(torch.randn(2, 41, 20, generator=generator), torch.randn(2, 41, 1, generator=generator))
    assert model.tokens(p)[0].shape == (2, 81, 20)
    assert model.predict(p).shape == (2, 41, 1)
    other = Dense(p.x, torch.cat([p.y[:, :-1], p.y[:, -1:] + 1], 1))
    torch.testing.assert_close(model.predict(other), model.predict(p), rtol=0, atol=0)


def test_labels_and_inputs_are_told_apart_by_their_place_alone():
    values, _ = AlgoFormer(AlgoFormerConfig(**{**SMALL, "labels": 1})).tokens(
        Dense(torch.tensor([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]), torch.tensor([[[9.0], [10.0]]]))
    )
    assert values.tolist() == [[[1, 2, 3, 4], [9, 0, 0, 0], [5, 6, 7, 8]]]


@pytest.mark.parametrize("injection", [True, False])
@pytest.mark.parametrize("loop_norm", [True, False])
def test_algoformer_is_its_definition(injection, loop_norm, generator):
    model = made(AlgoFormer, AlgoFormerConfig(**SMALL, loops=4, injection=injection, loop_norm=loop_norm))
    x, y = (torch.randn(2, 5, k, generator=generator, dtype=torch.float64) for k in (4, 2))
    tokens = torch.zeros(2, 9, 4, dtype=torch.float64)
    tokens[:, 0::2], tokens[:, 1::2, :2] = x, y[:, :-1]
    w = model.state_dict()
    stream = tokens @ w["embed.weight"].mT + w["embed.bias"] + w["places.weight"][:9]
    e = reference_block(stream, model.pre.blocks[0])
    z = torch.zeros_like(e) if injection else e

    def norm(v, part):
        return nn.functional.layer_norm(v, (16,), part.weight, part.bias)

    for answer in model.trace(Dense(x, y), 6):  # loops run past T
        post = norm(reference_block(z, model.answer.stack.blocks[0]), model.answer.norm)
        wanted = (post @ w["answer.head.weight"].mT + w["answer.head.bias"])[:, 0::2]
        torch.testing.assert_close(answer, wanted, rtol=1e-9, atol=1e-10)
        z = reference_block(z + e if injection else z, model.body.stack.blocks[0])
        z = norm(z, model.body.norm) if loop_norm else z


def reference_block(x, block):
    """torch's own pre-LayerNorm layer with the same weights."""
    layer = nn.TransformerEncoderLayer(
        16,
        2,
        64,
        0.0,
        activation=lambda v: nn.functional.gelu(v, approximate="tanh"),
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": block.attention.qkv.weight,
            "self_attn.in_proj_bias": block.attention.qkv.bias,
            "self_attn.out_proj.weight": block.attention.out.weight,
            "self_attn.out_proj.bias": block.attention.out.bias,
            "linear1.weight": block.up.weight,
            "linear1.bias": block.up.bias,
            "linear2.weight": block.down.weight,
            "linear2.bias": block.down.bias,
            "norm1.weight": block.norm1.weight,
            "norm1.bias": block.norm1.bias,
            "norm2.weight": block.norm2.weight,
            "norm2.bias": block.norm2.bias,
        }
    )
    s = x.shape[1]
    with torch.no_grad():
        return layer.train()(x, nn.Transformer.generate_square_subsequent_mask(s, dtype=x.dtype))


def test_a_block_read_at_some_tokens_gives_those_of_the_whole(generator):
    block = made(lambda c, g: Block(c), BlockConfig(**SMALL))
    x = torch.randn(2, 9, 16, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(block(x, None, slice(0, None, 2)), block(x, None)[:, 0::2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["relu", "linear"])
def test_unnormalised_attention_is_its_sum(kind, generator):
    layer = made(lambda c, g: Attention(6, 2, kind), None)
    x = torch.randn(1, 4, 6, generator=generator, dtype=torch.float64)
    q, k, v = (layer.qkv(x)[0].view(4, 3, 2, 3)[:, i] for i in range(3))
    out = torch.zeros(4, 2, 3, dtype=torch.float64)
    for i in range(4):
        for j in range(i + 1):
            for h in range(2):
                score = float((q[i, h] @ k[j, h]).detach()) / math.sqrt(3)
                out[i, h] += (max(score, 0) if kind == "relu" else score) / (i + 1) * v[j, h]
    torch.testing.assert_close(layer(x, None, slice(None))[0], layer.out(out.view(4, 6)), rtol=1e-10, atol=1e-10)


def regression(generator, d=4, n=9, m=3, k=1):
    x, queries = (torch.randn(2, c, d, generator=generator, dtype=torch.float64) for c in (n, m))
    w = torch.randn(2, d, k, generator=generator, dtype=torch.float64)
    return Prompt(x, x @ w + 0.1 * torch.randn(2, n, k, generator=generator, dtype=torch.float64), queries)


def test_a_linear_transformer_with_scalar_a_is_gradient_descent_at_every_layer(generator):
    model = made(LinearTransformer, LinearTransformerConfig(features=4, layers=6))
    model.A.data = 0.3 * torch.eye(4, dtype=torch.float64).repeat(6, 1, 1)
    p = regression(generator)
    torch.testing.assert_close(model.trace(p), GradientDescent(eta=0.3, steps=6).trace(p), rtol=1e-11, atol=1e-12)


def test_a_looped_linear_transformer_is_preconditioned_gradient_descent_past_its_loops(generator):
    model = made(LinearTransformer, LinearTransformerConfig(features=4, layers=3, looped=True, symmetric=True))
    a = model.A[0].detach()
    solver = PreconditionedGradientDescent(preconditioner=(a + a.mT) / 2, eta=1.0, steps=9)
    p = regression(generator)
    torch.testing.assert_close(model.trace(p, 9), solver.trace(p), rtol=1e-9, atol=1e-11)


def test_the_form_of_equation_13_is_gradient_descent_plus_plus(generator):
    eta, gamma = (0.2, 0.3, 0.4), (0.1, 0.05, 0.2)
    model = made(LinearTransformer, LinearTransformerConfig(features=4, layers=3, form="eq13"))
    eye = torch.eye(4, dtype=torch.float64)
    model.A.data = torch.stack([h * eye for h in eta])
    model.B.data = torch.stack([g / h * eye for g, h in zip(gamma, eta, strict=True)])
    p = regression(generator)
    solver = GradientDescentPlusPlus(eta=eta, gamma=gamma)
    torch.testing.assert_close(model.trace(p), solver.trace(p), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("form", ["full", "eq9", "eq13", "u"])
def test_a_linear_transformer_is_the_papers_matrix_formula(form, generator):
    model = made(LinearTransformer, LinearTransformerConfig(features=4, layers=2, form=form))
    p = regression(generator, m=1)
    n, m = 9, np.diag([1.0] * 9 + [0.0])
    for row in range(2):
        z = np.zeros((5, n + 1))
        z[:4, :n], z[:4, n], z[4, :n] = p.x[row].numpy().T, p.queries[row, 0].numpy(), p.y[row, :, 0].numpy()
        for t in range(2):
            if form == "full":
                P, Q = model.P[t].detach().numpy(), model.Q[t].detach().numpy()
            else:
                P, Q = np.zeros((5, 5)), np.zeros((5, 5))
                P[4, 4], Q[:4, :4] = 1, model.A[t].detach().numpy()
                if form == "eq13":
                    P[:4, :4] = model.B[t].detach().numpy()
                if form == "u":
                    P[4, :4] = model.u[t, 0].detach().numpy()
            z = z - P @ z @ m @ (z.T @ Q @ z) / n
        assert model.predict(p)[row, 0, 0].item() == pytest.approx(-z[4, n], rel=1e-10)


@pytest.mark.parametrize("form", ["full", "eq9", "eq13", "u"])
def test_a_linear_transformer_answers_each_label_alone_or_as_many_as_it_was_made_for(form, generator):
    model = made(LinearTransformer, LinearTransformerConfig(features=4, layers=3, form=form, init=0.3))
    p = regression(generator, k=2)
    if form in ("full", "u"):  # where labels meet
        with pytest.raises(ValueError, match="must ask answers of 1 numbers; got 2"):
            model.predict(p)
    else:
        alone = [model.predict(Prompt(p.x, p.y[..., i, None], p.queries, p.seen)) for i in (0, 1)]
        torch.testing.assert_close(model.predict(p), torch.cat(alone, 2), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_linear_self_attention_is_its_sum_over_heads_and_keys(hidden, mean, norm, generator):
    config = LinearSelfAttentionConfig(
        features=4, layers=2, heads=2, width=6, scratch=1, hidden=hidden, mean=mean, norm=norm, clip=0.5
    )
    model = made(LinearSelfAttention, config)
    p = regression(generator, m=2)
    for row in range(2):
        for query in range(2):
            tokens = torch.zeros(10, 6, dtype=torch.float64)
            tokens[:9, 1:5], tokens[:9, 5:], tokens[9, 1:5] = p.x[row], p.y[row], p.queries[row, query]
            h = model.embed(tokens)
            keys = 9 if hidden else 10
            norms = [*model.norms, model.last] if norm else [torch.nn.Identity()] * 3
            for layer, inner in zip(model.layers, norms, strict=False):
                q, k, v = (layer.qkv(inner(h)).view(10, 3, 2, 3)[:, i] for i in range(3))
                scores = torch.einsum("jhc,ihc->hji", q, k)[:, :, :keys] / math.sqrt(3)
                out = torch.einsum("hji,ihc->jhc", scores, v[:keys]) / (keys if mean else 1)
                h = (h + layer.out(out.reshape(10, 6))).clamp(-0.5, 0.5)
            answer = model.head(norms[2](h[9]))
            torch.testing.assert_close(model.predict(p)[row, query], answer, rtol=1e-9, atol=1e-11)


def test_a_compiled_construction_loads_into_the_trainable_class_of_its_form_and_trains_on(generator):
    """GD++ (von Oswald et al. 2023): a head's z_i (K z_i . Q z_j) V is P = V and Q = K'Q of linear self-attention."""
    program = gradient_descent_plus_plus(4, eta=(0.2, 0.3, 0.4), gamma=(0.1, 0.05, 0.2))
    compiled = compile(program, "linear")
    heads = compiled.loop[0].heads
    model = LinearSelfAttention(LinearSelfAttentionConfig(features=4, layers=3, heads=heads)).double()
    weights = {}
    for t, block in enumerate(compiled.loop):
        assert block.hidden == 0
        weights[f"layers.{t}.P"] = block.value
        weights[f"layers.{t}.Q"] = block.key.mT @ block.query
    model.load_state_dict(weights)
    p = regression(generator)
    solver = GradientDescentPlusPlus(eta=(0.2, 0.3, 0.4), gamma=(0.1, 0.05, 0.2))
    torch.testing.assert_close(model.trace(p), compiled.trace(p), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(model.trace(p), solver.trace(p), rtol=1e-10, atol=1e-11)
    model(p).square().sum().backward()
    assert all(bool(v.grad.any()) for v in model.parameters())


def test_a_compiled_gradient_descent_loads_into_the_linear_transformer(generator):
    compiled = compile(gradient_descent(4, eta=0.25, steps=3), "linear")
    (block,) = compiled.loop
    model = LinearTransformer(LinearTransformerConfig(features=4, layers=3, looped=True, form="full")).double()
    model.load_state_dict({"P": -block.value, "Q": block.key.mT @ block.query})  # the loop subtracts
    p = regression(generator)
    torch.testing.assert_close(model.trace(p, 5), compiled.trace(p, 5), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(model.trace(p, 5), GradientDescent(eta=0.25, steps=5).trace(p), rtol=1e-11, atol=1e-12)


def test_the_sizes_are_those_of_the_papers():
    def used(model, *without):
        return sum(v.numel() for name, v in model.named_parameters() if not name.startswith(without or "-"))

    assert used(Transformer(TransformerConfig()), "places") == pytest.approx(9.48e6, rel=1e-3)  # Yang et al. print it
    assert used(Looped(LoopedConfig()), "places") == pytest.approx(0.79e6, rel=0.01)
    assert used(LSTM(LSTMConfig())) == pytest.approx(5.3e6, rel=0.01)  # Fu et al.


def test_the_first_weights_are_a_function_of_the_generator():
    def first(seed):
        return AlgoFormer(AlgoFormerConfig(**SMALL), torch.Generator().manual_seed(seed)).embed.weight

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


@pytest.mark.parametrize(
    ("model", "depth"),
    [
        (AlgoFormer(AlgoFormerConfig(width=64, pre=2, loop=1, post=1), torch.Generator().manual_seed(0)), 4),
        (Looped(LoopedConfig(width=64, layers=3), torch.Generator().manual_seed(0)), 3),
        (Transformer(TransformerConfig(width=64, layers=5), torch.Generator().manual_seed(0)), 5),
    ],
    ids=["AlgoFormer", "Looped", "Transformer"],
)
def test_the_first_weights_are_those_of_gpt_2(model, depth):
    """N(0, 0.02^2), at the ends of residual branches / sqrt(2 depth); each within four of its own standard errors."""
    for name, v in model.named_parameters():
        if v.ndim == 1:
            assert torch.equal(v, torch.full_like(v, float("norm" in name and name.endswith("weight")))), name
            continue
        wanted = 0.02 / math.sqrt(2 * depth) if name.endswith(("attention.out.weight", "down.weight")) else 0.02
        assert float(v.detach().std()) == pytest.approx(wanted, rel=4 / math.sqrt(2 * v.numel())), name


@pytest.mark.parametrize(("init", "std"), [(None, 0.3 / 8), (0.7, 0.7)])
def test_the_first_weights_of_linear_self_attention_have_the_deviation_asked_for(init, std, generator):
    for width in (None, 64):
        config = LinearSelfAttentionConfig(features=63, width=width, init=init)
        for name, v in LinearSelfAttention(config, generator).named_parameters():
            if v.ndim > 1:
                assert float(v.detach().std()) == pytest.approx(std, rel=4 / math.sqrt(2 * v.numel())), name


@pytest.mark.parametrize("form", ["full", "eq9", "eq13", "u"])
def test_the_first_weights_of_a_linear_transformer_are_normal_beside_the_1_of_p(form, generator):
    for init in (0.0, 0.5):
        config = LinearTransformerConfig(features=30, labels=2, layers=4, form=form, init=init)
        weights = {name: v.detach().numpy() for name, v in LinearTransformer(config, generator).named_parameters()}
        if form == "full":
            weights["P"] = weights["P"] - np.diag([0.0] * 30 + [1.0] * 2)
        assert sum(v.size for v in weights.values()) == 4 * {"full": 2048, "eq9": 900, "eq13": 1800, "u": 960}[form]
        for v in weights.values():
            assert np.abs(v.std() - init) <= 4 * init / math.sqrt(2 * v.size)


def test_results_say_which_variant():
    assert AlgoFormer(AlgoFormerConfig(**SMALL)).variant == "AlgoFormer + injection"
    assert "equation 2" in AlgoFormer(AlgoFormerConfig(**SMALL, injection=False)).variant


@pytest.mark.parametrize(("kind", "config"), CAUSAL + ENCODERS + LINEAR)
def test_models_save_and_load_as_folders_without_a_network(kind, config, tmp_path, generator, capsys):
    model = made(kind, config)
    model.save_pretrained(tmp_path)
    assert {"config.json", "model.safetensors"} <= {f.name for f in tmp_path.iterdir()}
    twin = kind.from_pretrained(tmp_path)
    assert twin.config == config and not twin.training
    p = regression(generator, k=2)
    assert torch.equal(twin.predict(p), model.predict(p))
    assert capsys.readouterr().out == ""


def test_a_folder_of_another_class_is_refused_by_its_name(tmp_path):
    class Mine(AlgoFormer):
        pass

    AlgoFormer(AlgoFormerConfig(**SMALL)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"must hold a model of Transformer; its config\.json names AlgoFormer"):
        Transformer.from_pretrained(tmp_path)
    assert isinstance(Mine.from_pretrained(tmp_path), Mine)


def test_a_model_of_ones_own_loads_whose_annotations_are_strings(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\n"
        "from algoformer.models import AlgoFormer, AlgoFormerConfig\n"
        "class Own(AlgoFormer):\n"
        "    config: AlgoFormerConfig\n"
        "    def __init__(self, config: AlgoFormerConfig) -> None:\n"
        "        super().__init__(config)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("own").Own
    kind(AlgoFormerConfig(**SMALL)).save_pretrained(tmp_path / "saved")
    assert kind.from_pretrained(tmp_path / "saved").config == AlgoFormerConfig(**SMALL)
    with pytest.raises(TypeError, match="must be AlgoFormerConfig; got dict"):
        kind(SMALL)


@pytest.mark.parametrize("kind", [AlgoFormer, Looped, Transformer, LinearTransformer, LinearSelfAttention, LSTM])
def test_a_model_refuses_what_is_not_its_config(kind):
    for wrong in (BlockConfig(**SMALL), SMALL):
        with pytest.raises(TypeError, match=f"must be {kind.__name__}Config; got {type(wrong).__name__}"):
            kind(wrong)


def test_weights_of_another_config_are_refused_by_name(tmp_path):
    AlgoFormer(AlgoFormerConfig(**SMALL)).save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**about, "width": 32}))
    with pytest.raises(ValueError, match=r"must hold .* as the config says"):
        AlgoFormer.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps({"embed.weight": torch.ones(3)}))
    with pytest.raises(ValueError, match="must be a safetensors file"):
        AlgoFormer.from_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json"):
        AlgoFormer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 15}, "multiple of heads"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"attention": "sigmoid"}, "attention must be one of"),
        ({"dropout": 1.0}, "dropout must be below 1"),
        ({"loop": 0}, "loop must be at least 1"),
        ({"positions": -1}, "positions must be at least 0"),
    ],
)
def test_a_bad_config_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        AlgoFormerConfig(**{**SMALL, **change})


def test_a_prompt_that_does_not_fit_is_refused(generator):
    model = AlgoFormer(AlgoFormerConfig(**SMALL))
    x, y = torch.randn(1, 20, 4, generator=generator), torch.randn(1, 20, 2, generator=generator)
    with pytest.raises(ValueError, match="positions must be at least the prompt's 39 tokens; got 32"):
        model.predict(Dense(x, y))
    with pytest.raises(ValueError, match="at most 4 features; got 5"):
        model.predict(Dense(torch.randn(1, 3, 5), y[:, :3]))
    with pytest.raises(ValueError, match="must ask answers of 2 numbers; got 1"):
        model.predict(Dense(x[:, :3], y[:, :3, :1]))
    with pytest.raises(ValueError, match=r"must be torch\.float32 on cpu"):
        model.predict(Dense(x[:, :3].double(), y[:, :3].double()))


@pytest.mark.parametrize(("causal", "tokens"), [(True, 7), (False, 4)])
def test_a_model_has_room_for_as_many_tokens_as_it_has_positions(causal, tokens, generator):
    p, seen = regression(generator, n=5), torch.arange(5).expand(2, 5) < 3
    prompts = [Prompt(p.x, p.y, p.queries, seen)]  # queries share a place
    prompts += [Dense(p.x[:, :4], p.y[:, :4])] if causal else []
    for positions in (tokens, tokens - 1):
        config = LoopedConfig(**{**SMALL, "labels": 1, "positions": positions}, loops=1, causal=causal)
        told = f"at least the prompt's {tokens} tokens; got {positions}"
        for prompt in prompts:
            with nullcontext() if positions == tokens else pytest.raises(ValueError, match=told):
                assert made(Looped, config).predict(prompt).shape == prompt.asked


def test_fewer_features_are_padded_with_zeros(generator):
    model = made(AlgoFormer, AlgoFormerConfig(**SMALL, loops=2))
    x, y = (torch.randn(2, 5, k, generator=generator, dtype=torch.float64) for k in (3, 2))
    wide = torch.cat([x, torch.zeros(2, 5, 1, dtype=torch.float64)], 2)
    torch.testing.assert_close(model.predict(Dense(x, y)), model.predict(Dense(wide, y)), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["softmax", "relu", "linear"])
def test_dropout_is_at_work_in_attention_and_behind_both_branches_of_a_block(kind, generator):
    config = BlockConfig(**SMALL, attention=kind, dropout=0.25)
    x = torch.randn(2, 7, 16, generator=generator, dtype=torch.float64)

    def added(block):
        return block(x, None) - x

    with torch.random.fork_rng(), torch.no_grad():
        for silent in ("attention", "down"):
            block = made(lambda c, g: Block(c), config)
            for v in (block.attention.out if silent == "attention" else block.down).parameters():
                v.zero_()
            if silent == "down":
                plain = block.attention(x, None, slice(None))
                assert not torch.allclose(block.attention.train()(x, None, slice(None)), plain)
                block.attention.dropout = 0.0
            whole = added(block.eval())
            kept = added(block.train()) / whole
            assert bool((kept.isclose(0 * kept) | kept.isclose(0 * kept + 4 / 3)).all())
            assert 0.6 < float((kept > 1).double().mean()) < 0.9


def test_dropout_changes_training_and_not_evaluation(generator):
    model = Transformer(TransformerConfig(**SMALL, layers=1, dropout=0.5)).train()
    p = Dense(torch.randn(2, 5, 4, generator=generator), torch.randn(2, 5, 2, generator=generator))
    assert not torch.equal(model(p), model(p))
    model.eval()
    assert torch.equal(model(p), copy.deepcopy(model)(p))


@pytest.mark.parametrize("residual", [False, True])
def test_all_that_the_layers_of_an_lstm_make_may_be_dropped_in_training(generator, residual):
    config = LSTMConfig(features=4, labels=1, width=8, layers=2, dropout=1 - 1e-12, residual=residual)
    model, p = LSTM(config, generator).double().train(), regression(generator)
    s = model.init(p)
    without = model.read(p, s._replace(h=residual * s.h))
    torch.testing.assert_close(model(p), without)
    assert float((model.eval()(p) - without).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_all_layers_of_an_lstm_in_one_call_are_its_layers_one_by_one(generator, dropout, residual):
    config = LSTMConfig(features=4, labels=1, width=8, layers=3, dropout=dropout, residual=residual)
    model = LSTM(config, generator).double()
    p = regression(generator, k=1)

    def asked(plain):
        torch.manual_seed(0)
        visited = Model.visited if plain else LSTM.visited
        out = model.read(p, visited(model, p, first=3, loops=3, gradient=3)[-1])
        return [out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))]

    for one, other in zip(asked(True), asked(False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    h = model.init(p).h
    for layer in model.layers:
        h = residual * h + layer(h)[0]
    torch.testing.assert_close(model.eval().visited(p, first=3, loops=3, gradient=3)[0].h, h)


def test_an_lstm_stays_in_its_own_precision_under_autocast(generator):
    model = LSTM(LSTMConfig(features=4, labels=1, width=8, layers=2), generator)
    p = regression(generator, k=1).to(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert {s.h.dtype for s in model.visited(p, first=1, loops=2, gradient=2)} == {torch.float32}
        assert model.visited(p, first=2, loops=2, gradient=2)[0].h.dtype == torch.float32


def test_an_lstm_takes_tf32_only_where_all_products_may(generator, monkeypatch):
    """cuDNN has a switch of its own, which is on when the others are off."""
    model = LSTM(LSTMConfig(features=4, labels=1, width=8, layers=2), generator)
    p, real, seen = regression(generator, k=1).to(dtype=torch.float32), torch.lstm, []

    def watched(*arguments):
        seen.append(torch.backends.cudnn.allow_tf32)
        return real(*arguments)

    monkeypatch.setattr(torch, "lstm", watched)
    before = torch.backends.cudnn.allow_tf32
    for precision in ("highest", "high"):
        try:
            torch.set_float32_matmul_precision(precision)
            model(p)
        finally:
            torch.set_float32_matmul_precision("highest")
    half = len(seen) // 2
    assert seen == [False] * half + [True] * half
    assert half
    assert torch.backends.cudnn.allow_tf32 == before


@pytest.mark.parametrize("causal", [True, False])
def test_unseen_pairs_take_no_positions(causal, generator):
    model = AlgoFormer(AlgoFormerConfig(**SMALL | {"causal": causal, "positions": 12}))
    x, y = torch.randn(2, 10, 4, generator=generator), torch.randn(2, 10, 2, generator=generator)
    queries, seen = torch.randn(2, 1, 4, generator=generator), torch.arange(10).expand(2, 10) % 2 == 0
    wanted = model.predict(Prompt(x[:, ::2], y[:, ::2], queries))
    torch.testing.assert_close(model.predict(Prompt(x, y, queries, seen)), wanted, rtol=1e-5, atol=1e-6)


def test_the_context_of_a_model_is_kept_with_it(tmp_path):
    model = AlgoFormer(AlgoFormerConfig(**SMALL))
    model.context = 7
    model.save_pretrained(tmp_path)
    assert AlgoFormer.from_pretrained(tmp_path).context == 7


class Hub:
    """Stands for the Hugging Face Hub: a folder."""

    def __init__(self, folder, **_):
        self.folder = folder

    def __call__(self, **_):
        return self

    def create_repo(self, repo_id, **_):
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, folder_path, **_):
        shutil.copytree(folder_path, self.folder)

    def file(self, repo_id, filename, **_):
        return str(self.folder / filename)


def test_a_model_goes_to_the_hub_and_comes_back_whole(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub.hub_mixin, "HfApi", hub)
    for module in (huggingface_hub.hub_mixin, algoformer.models.model):
        monkeypatch.setattr(module, "hf_hub_download", hub.file)
    model = AlgoFormer(AlgoFormerConfig(**SMALL))
    model.context = 17
    model.push_to_hub("me/model")
    twin = AlgoFormer.from_pretrained("me/model")
    assert twin.context == 17 and twin.config == model.config
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"me/model must hold a model of Looped; its config\.json names AlgoFormer"):
        Looped.from_pretrained("me/model")
    with pytest.raises(ValueError, match=r"config must be left out, or be the model's own; got \{'width': 3\}"):
        model.save_pretrained(tmp_path / "other", config={"width": 3})
    (hub.folder / "config.json").write_text('{"torn')
    with pytest.raises(ValueError, match=r"config\.json must be JSON; "):
        AlgoFormer.from_pretrained(hub.folder)


def test_a_saved_model_can_be_read_by_others_and_says_what_it_is(tmp_path):
    AlgoFormer(AlgoFormerConfig(**SMALL)).save_pretrained(tmp_path)
    modes = {(tmp_path / name).stat().st_mode & 0o777 for name in ("model.safetensors", "config.json")}
    assert len(modes) == 1
    card = (tmp_path / "README.md").read_text()
    assert "# AlgoFormer + injection" in card and "pushed" not in card
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors must be a file that can be read; No such file"):
        AlgoFormer.from_pretrained(tmp_path)


def test_a_model_of_ones_own_must_say_of_which_class_its_config_is():
    class Mine(Model):
        def __init__(self, config):
            super().__init__(config)

        steps, variant = 0, "mine"

        def init(self, p): ...

        def step(self, p, s, t): ...

        def read(self, p, s): ...

    with pytest.raises(TypeError, match="Mine must say of which class its config is, as in `config: MyConfig`"):
        Mine(AlgoFormerConfig(**SMALL))


def test_an_lstm_without_tokens_answers_nothing():
    model = LSTM(LSTMConfig(features=4, width=8, layers=2))
    assert model.trace(Dense(torch.zeros(2, 0, 4), torch.zeros(2, 0, 1))).shape == (3, 2, 0, 1)
    with pytest.raises(ValueError, match="dropout must be below 1; got 1"):
        LSTMConfig(dropout=1.0)
