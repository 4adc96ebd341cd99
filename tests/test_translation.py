"""Translation: the text, its tokens, the models on them, what they write, and how it is judged."""

import dataclasses
import gzip
import itertools
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import algoformer
from algoformer import Text, zoo
from algoformer.bench import translation as bench
from algoformer.cli import app
from algoformer.experiments.algoformer2024_table1 import at
from algoformer.models import AlgoFormer, AlgoFormerConfig, Looped, LoopedConfig, Transformer, TransformerConfig
from algoformer.models.decoding import beam, greedy
from algoformer.tasks import LinearRegression, NumberWords, Translation
from algoformer.tasks import number_words as words
from algoformer.tasks.byte_pairs import END, PAD, SEP, BytePairs
from algoformer.tasks.translation import Lines, packed, widths
from algoformer.training import (
    Ramp,
    TrainConfig,
    Translator,
    cross_entropy,
    entropy,
    evaluate,
    quality,
    train,
    validated,
    with_data,
)
from algoformer.training.codec import model_of
from algoformer.training.cost import cost
from algoformer.training.curriculum import Curriculum
from algoformer.training.data import Data, Size
from algoformer.training.presets import preset
from algoformer.training.step import Step

TASK = NumberWords(size=2000, vocabulary=300)
TINY = {"vocabulary": 300, "positions": 64, "width": 16, "heads": 2}
MODELS = {
    "AlgoFormer": lambda **k: AlgoFormer(AlgoFormerConfig(**{**TINY, "loops": 3, **k}), seeded()),
    "eq2": lambda **k: AlgoFormer(AlgoFormerConfig(**{**TINY, "loops": 3, "injection": False, **k}), seeded()),
    "Looped": lambda **k: Looped(LoopedConfig(**{**TINY, "loops": 3, "layers": 2, **k}), seeded()),
    "Transformer": lambda **k: Transformer(TransformerConfig(**{**TINY, "layers": 3, **k}), seeded()),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def lively(model):
    """The same model with weights large enough that every part of it matters."""
    with torch.no_grad():
        for v in model.parameters():
            if v.ndim > 1:
                v.mul_(12)
    return model


def text(rows, mask="causal", vocabulary=300):
    tokens = torch.tensor(rows)
    return Text(tokens, (tokens == SEP).int().argmax(1) + 1, vocabulary, mask)


# The built-in corpus, held against grammars that read it back


UNITS = {
    "de": "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn",
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
}
TENS = {
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
}
MONTHS = {
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "en": "January February March April May June July August September October November December",
}


def german(text):
    """The number that German words say; None if they say none."""
    units = {word: i for i, word in enumerate(UNITS["de"].split())}
    tens = {word: 20 + 10 * i for i, word in enumerate(TENS["de"].split())}
    head, thousand, tail = text.rpartition("tausend")
    if thousand:
        high, low = german(head + "s" if head.endswith("ein") else head), german(tail) if tail else 0
        return None if high is None or low is None or not 0 < high < 1000 else 1000 * high + low
    head, hundred, tail = text.partition("hundert")
    if hundred:
        high, low = german(head + "s" if head.endswith("ein") else head), german(tail) if tail else 0
        return None if high is None or low is None or high >= 20 else 100 * high + low
    if text == "eins":
        return 1
    if "und" in text:
        unit, _, ten = text.partition("und")
        return units[unit] + tens[ten] if ten in tens and units.get(unit, 10) < 10 else None
    return {**units, **tens}.get(text) if text != "ein" else None


def english(text):
    """The number that English words say, by adding up."""
    small, ten = UNITS["en"].split(), TENS["en"].split()
    total = group = 0
    for word in text.replace("-", " ").split():
        if word == "thousand":
            total, group = total + 1000 * group, 0
        elif word == "hundred":
            group *= 100
        elif word != "and":
            group += small.index(word) if word in small else 20 + 10 * ten.index(word)
    return total + group


def test_number_words_are_read_back_by_a_grammar_of_each_language():
    draw = random.Random(0)
    for n in [*range(10_000), *(draw.randrange(10_000, 1_000_000) for _ in range(5000)), 999_999, 100_000, 101_001]:
        assert german(words.number(n, "de")) == n
        assert english(words.number(n, "en")) == n
    assert words.number(21_304, "de") == "einundzwanzigtausenddreihundertvier"
    assert words.number(21_304, "en") == "twenty-one thousand three hundred and four"
    assert words.number(700_000, "en") == "seven hundred thousand"
    assert (
        words.number(1_001, "en") == "one thousand and one" and words.number(1_100, "en") == "one thousand one hundred"
    )
    with pytest.raises(ValueError, match="0 to 999,999; got 1000000"):
        words.number(1_000_000, "de")


def test_dates_are_read_back():
    odd = {"first": "one", "second": "two", "third": "three", "fifth": "five", "eighth": "eight", "ninth": "nine",
           "twelfth": "twelve", "erste": "eins", "dritte": "drei", "siebte": "sieben", "achte": "acht"}  # fmt: skip

    def day(word, language):
        if word in odd:
            return english(odd[word]) if language == "en" else german(odd[word])
        if language == "de":
            return german(word.removesuffix("te")) or german(word.removesuffix("ste"))
        *front, last = word.split("-")
        last = odd.get(last, last.removesuffix("th").replace("tie", "ty"))
        return english("-".join([*front, last]))

    def year(text, language):
        if language == "de":
            return german(text)
        if "thousand" in text:
            return english(text)
        century, _, rest = text.partition(" ")
        return 100 * english(century) + (0 if rest == "hundred" else english(rest.removeprefix("oh ")))

    draw = random.Random(0)
    cases = [(d, m, draw.randint(1100, 2099)) for m in range(1, 13) for d in range(1, 30)]
    cases += [(31, 12, y) for y in (*range(1100, 2100, 9), 1900, 2000, 2001, 2010)]
    for d, m, y in cases:
        article, first, name, rest = words.date(d, m, y, "de").split(" ", 3)
        assert (article, day(first, "de"), name, year(rest, "de")) == ("der", d, MONTHS["de"].split()[m - 1], y)
        article, first, of, name, rest = words.date(d, m, y, "en").split(" ", 4)
        assert (article, of, day(first, "en"), name) == ("the", "of", d, MONTHS["en"].split()[m - 1])
        assert year(rest, "en") == y


def test_clock_times_are_read_back():
    def minutes(text, language):
        """Minutes after twelve, from the words."""
        word = {"de": german, "en": english}[language]
        special = {"Viertel": 15, "quarter": 15, "half": 30}
        if text.endswith(("Uhr", "o'clock")):
            first = text.split()[0]
            return 60 * (1 if first == "ein" else word(first)) % 720
        *front, hour = text.split()
        at = 60 * word(hour)
        if "halb" in front:
            at -= 30
            front.remove("halb")
        if not front:
            return at % 720
        *count, side = front
        count = [c for c in count if c not in ("Minute", "Minuten", "minute", "minutes")]
        amount = special.get(count[0]) or (1 if count[0] == "eine" else word(count[0]))
        return (at + amount * (1 if side in ("nach", "past") else -1)) % 720

    for hour, minute in itertools.product(range(1, 13), range(60)):
        for language in ("de", "en"):
            assert minutes(words.time(hour, minute, language), language) == (60 * hour + minute) % 720
    assert words.time(3, 25, "de") == "fünf vor halb vier" and words.time(3, 25, "en") == "twenty-five past three"


def test_no_training_sentence_holds_a_combination_that_is_held_out():
    task = NumberWords(size=6000)
    spoken = [words.number(n, "en") for n in words.UNSEEN]
    assert len(spoken) == 9 and {n % 10 for n in words.UNSEEN} == set(range(1, 10))
    train_lines = task.lines("train")
    assert not [line for line in train_lines.target if any(part in line for part in spoken)]
    assert all(any(part in line for part in spoken) for line in task.lines("structural").target)
    every = " ".join(train_lines.target)
    assert all(word in every for part in spoken for word in part.split("-"))  # each word alone is seen
    seen = set(train_lines.source)
    for split in ("valid", "test"):
        assert not seen & set(task.lines(split).source)
    assert not set(task.lines("valid").source) & set(task.lines("test").source)


def test_a_tenth_of_the_values_is_held_out_and_every_count_of_digits_is_as_likely():
    places = [words.split_of("number", (n,)) for n in range(100_000)]
    rest = [p for p in places if p != "structural"]
    assert sum(p != "train" for p in rest) / len(rest) == pytest.approx(0.1, abs=0.005)
    lines = NumberWords(size=20_000).lines("train")
    numbers = [n for n in map(german, lines.source) if n is not None]
    assert len(numbers) / 20_000 == pytest.approx(0.8, abs=0.02)
    counts = np.bincount([len(str(n)) for n in numbers])[1:]
    # what is left by the nine combinations: of 90 numbers of two digits, of 100 endings, of two pairs
    shares = np.array([1, 0.9, 0.91, 0.91, 0.91**2, 0.91**2])
    assert counts / counts.sum() == pytest.approx(shares / shares.sum(), abs=0.02)


# Tokens


@given(st.text(max_size=40))
def test_every_text_has_tokens_and_comes_back_from_them(line):
    import unicodedata

    pairs = TASK.tokenizer
    wanted = unicodedata.normalize("NFC", line).replace("\ufffd", "").strip()
    (tokens,) = pairs.encode([line])
    assert all(SEP < i < 300 and i != END for i in tokens)
    if line.isprintable():
        assert pairs.decode([tokens])[0] == wanted


def test_no_text_can_spell_a_special_token():
    (tokens,) = TASK.tokenizer.encode(["<sep> <pad> </s> <end>"])
    assert not {PAD, SEP, END} & set(tokens) and len(tokens) > 10


def test_the_tokenizer_is_made_of_the_training_text_alone_and_always_the_same(tmp_path):
    lines = ["ein Hund", "eine Katze"] * 9, ["a dog", "a cat"] * 9
    write(tmp_path / "one", train=lines, valid=(["x"], ["y"]))
    write(tmp_path / "two", train=lines, valid=(["Hund"] * 9, ["dog"] * 9))
    made = [Translation(data=str(tmp_path / name), vocabulary=270).tokenizer for name in ("one", "two")]
    assert made[0].definition == made[1].definition and made[0].size == 270
    assert BytePairs(made[0].definition).encode(["ein Hund"]) == made[1].encode(["ein Hund"])
    with pytest.raises(ValueError, match=r"must be a tokenizer\.json"):
        BytePairs("{}")


# Files


def write(folder, zipped=False, **splits):
    folder.mkdir(parents=True, exist_ok=True)
    for split, sides in splits.items():
        for language, lines in zip(("de", "en"), sides, strict=True):
            data = lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
            name = f"{split}.{language}" + (".gz" if zipped else "")
            (folder / name).write_bytes(gzip.compress(data) if zipped else data)
    return str(folder)


def test_plain_and_gzip_files_are_read_alike(tmp_path):
    lines = ["ein Haus", "zwei\u2028Häuser", " drei \r"], ["a house", "two houses", "three"]
    plain = Translation(data=write(tmp_path / "plain", train=lines)).lines()
    zipped = Translation(data=write(tmp_path / "gz", zipped=True, train=lines)).lines()
    assert plain == zipped == Lines(["ein Haus", "zwei\u2028Häuser", "drei"], ["a house", "two houses", "three"])


def test_files_that_do_not_fit_are_refused_with_what_is_wrong(tmp_path):
    def reading(name, split="train", **files):
        return lambda: Translation(data=write(tmp_path / name, **files)).lines(split)

    two = write(tmp_path / "two", train=(["a"], ["b"]))
    write(tmp_path / "two", zipped=True, train=(["a"], ["b"]))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "train.de.gz").write_bytes(gzip.compress(b"x" * 99)[:20])
    (tmp_path / "torn" / "train.en.gz").write_bytes(gzip.compress(b"x\n"))
    packed = gzip.compress(bytes(range(256)))
    (tmp_path / "flipped").mkdir()
    (tmp_path / "flipped" / "train.de.gz").write_bytes(packed[:10] + bytes([packed[10] ^ 6]) + packed[11:])
    (tmp_path / "flipped" / "train.en.gz").write_bytes(gzip.compress(b"x\n"))
    for call, message in (
        (reading("uneven", train=(["a", "b"], ["c"])), r"train\.de and train\.en must have as many lines; got 2 and 1"),
        (reading("bytes", train=(b"a\n\xff\n", ["c", "d"])), r"train\.de must be UTF-8; line 2 is not"),
        (reading("none"), r"must hold either train\.de or train\.de\.gz; got neither"),
        (reading("blank", train=(["a"], [""])), r"train\.de must hold a sentence; got none"),
        (
            reading("split", train=(["a"], ["b"]), split="dev"),
            "split must be one of 'train', .*; got 'dev'",
        ),
        (lambda: Translation(data=two).lines(), "got both"),
        (lambda: Translation(data=str(tmp_path / "torn")).lines(), "must be a gzip file"),
        (lambda: Translation(data=str(tmp_path / "flipped")).lines(), r"train\.de\.gz must be a gzip file"),
        (lambda: Translation().lines(), r"data must be a folder .* got none"),
        (lambda: Translation(mask="full"), "mask must be one of"),
        (lambda: Translation(vocabulary=100), "vocabulary must be at least 259; got 100"),
        (lambda: NumberWords(source="fr"), "source must be one of 'de', 'en'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_pairs_with_an_empty_side_or_too_many_tokens_are_left_out_and_counted(tmp_path):
    lines = (["a", "", "c", "d " * 50], ["1", "2", "  ", "4"])
    task = Translation(data=write(tmp_path, train=lines), vocabulary=260, longest=20)
    assert task.lines() == Lines(["a", ("d " * 50).strip()], ["1", "4"], 2)
    assert task.corpus.long == 1 and sum(len(b.tokens) for b in task.corpus.buckets) == 1
    left = "2 with an empty side and 1 of more than 20 tokens are left out"
    assert task.account == f"1 training pairs in 1 widths with 0.0 % padding; {left}"
    with pytest.raises(ValueError, match="longest must let a training pair through; got 3"):
        replace(task, longest=3).corpus  # noqa: B018


# Batches


@given(st.lists(st.integers(3, 12), min_size=1, max_size=30), st.sampled_from([0.02, 0.1, 0.3]))
def test_the_widths_are_the_fewest_with_so_little_padding_and_the_best_of_these(lengths, padding):
    found = widths(lengths, padding)

    def cells(edges):
        return sum(min(e for e in edges if e >= n) for n in lengths)

    def least(k):
        sizes = sorted(set(lengths))
        return min(cells((*some, sizes[-1])) for some in itertools.combinations(sizes[:-1], k - 1))

    assert cells(found) == least(len(found)) and 1 - sum(lengths) / cells(found) <= padding
    if len(found) > 1:
        assert 1 - sum(lengths) / least(len(found) - 1) > padding


def test_batches_have_so_many_tokens_little_padding_and_every_pair_alike(generator):
    size, padding, cells, seen = 512, 0, 0, {}
    for _ in range(400):
        sample = TASK.sample(size, generator)
        tokens = sample.prompt.tokens
        assert size - tokens.shape[1] < tokens.numel() <= size
        rows = torch.cat([tokens, torch.zeros_like(tokens[:, :1])], 1)
        lengths = ((sample.target != PAD).sum(1) + sample.prompt.begin - 1).tolist()
        padding, cells = padding + tokens.numel() - sum(lengths), cells + tokens.numel()
        for row in rows.tolist():
            seen[len(row)] = seen.get(len(row), 0) + 1
    assert padding / cells < 0.1 and TASK.corpus.padding <= 0.1
    total = sum(seen.values())
    for bucket in TASK.corpus.buckets:  # each bucket as often as it has pairs
        share = len(bucket.tokens) / 2000
        assert seen[bucket.tokens.shape[1]] / total == pytest.approx(share, abs=5 * math.sqrt(share / 400))


def test_a_row_is_source_separator_target_and_only_the_target_is_asked(generator):
    sample = replace(TASK, mask="prefix").sample(256, generator)
    lines = TASK.lines()
    known = dict(zip(lines.source, lines.target, strict=True))
    pairs = TASK.tokenizer
    for row, begin, asked in zip(sample.prompt.tokens, sample.prompt.begin, sample.target, strict=True):
        assert row[begin - 1] == SEP and (asked[: begin - 1] == PAD).all()
        wanted = [i for i in asked[begin - 1 :].tolist() if i != PAD]
        assert wanted[-1] == END and row[begin : begin + len(wanted) - 1].tolist() == wanted[:-1]
        assert known[pairs.decode([row[: begin - 1].tolist()])[0]] == pairs.decode([wanted])[0]
    assert sample.prompt.mask == "prefix" and sample.prompt.asked == (*sample.target.shape, 300)


@given(st.lists(st.tuples(*[st.lists(st.integers(3, 99), max_size=6)] * 2), min_size=1, max_size=8))
def test_rows_are_padded_to_the_longest(pairs):
    made = [[*a, SEP, *b, END] for a, b in pairs]
    width = max(map(len, made))
    tokens, begin = packed(pairs)
    assert tokens.tolist() == [row + [PAD] * (width - len(row)) for row in made]
    assert begin.tolist() == [row.index(SEP) + 1 for row in made]


def test_a_width_has_few_shapes_and_what_fills_them_up_weighs_nothing():
    config = TrainConfig(batch=1024)
    filled, plain = (Data(TASK, config, torch.device("cpu"), torch.float64, padded=p) for p in (True, False))
    shapes = set()
    for step in range(60):
        batch, other = (data.batch(step, Size(None, None, 0)) for data in (filled, plain))
        shapes.add((batch.prompt.tokens.shape[1], len(batch.at)))
        assert len(batch.at) % 128 == 0 and (batch.weight > 0).sum() == len(other.at)
        assert torch.equal(batch.at[: len(other.at)], other.at) and batch.weight.sum() == pytest.approx(1)
    assert len(shapes) <= 2 * len(TASK.corpus.buckets)


def test_the_processes_of_a_run_share_its_batch():
    config = TrainConfig(batch=400, window=2)
    model = MODELS["AlgoFormer"]().double()
    size = Size(None, None, 3)

    def losses(world):
        for rank in range(world):
            batch = Data(
                TASK, config, torch.device("cpu"), torch.float64, rank=rank, world=world, padded=world == 2
            ).batch(5, size)
            yield Step(model, TASK, config, torch.device("cpu")).loss(batch, 3).item()

    assert sum(losses(2)) == pytest.approx(sum(losses(1)), rel=1e-12)


# Models of text


@pytest.mark.parametrize("mask", ["causal", "prefix"])
@pytest.mark.parametrize("name", MODELS)
def test_a_token_sees_itself_those_before_it_and_with_a_prefix_its_source(name, mask):
    model = lively(MODELS[name]())
    base = text([[5, 6, 7, SEP, 8, 9, 10]], mask)
    before = model(base)
    for place in range(7):
        tokens = base.tokens.clone()
        tokens[0, place] = 11 if place != 3 else 12
        changed = (model(replace(base, tokens=tokens)) - before).abs().amax((0, 2)) > 1e-6
        reach = 0 if mask == "prefix" and place < 4 else place
        assert changed.tolist() == [i >= reach for i in range(7)]


@pytest.mark.parametrize("name", MODELS)
def test_one_matrix_reads_and_scores_tokens(name):
    model = MODELS[name]()
    assert not [n for n, _ in model.named_parameters() if "head" in n]
    p = text([[5, SEP, 6]])
    state = list(model.states(p))[-1]
    wanted = model.endings([state])[0] @ model.embed.weight.T
    torch.testing.assert_close(model.read(p, state), wanted)
    assert model.predict(p).shape == p.asked == (1, 3, 300)


def test_a_course_is_looked_at_by_one_process(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="validated must run in one process; got 2"):
        validated(MODELS["AlgoFormer"](), TASK, TrainConfig(window=2))


def test_models_of_text_refuse_what_does_not_fit_them():
    model = MODELS["AlgoFormer"]()
    for call, message in (
        (lambda: model(text([[5, SEP]], vocabulary=301)), "must have a vocabulary of 300 on cpu"),
        (lambda: model(text([[5] * 70 + [SEP]])), "positions must be at least the prompt's 71 tokens; got 64"),
        (lambda: AlgoFormerConfig(vocabulary=9, causal=False), "causal must be true for a model of text"),
        (lambda: text([[5, 300]]), "tokens must be 0 to 299; got 5 to 300"),
        (lambda: Text(torch.tensor([[1, 2]]), torch.tensor([1, 1]), 9), r"begin must be \(b,\) = \(1,\); got \(2,\)"),
        (lambda: Text(torch.tensor([[1, 2]]), torch.tensor([1]), 9, "all"), "mask must be one of"),
        (lambda: Text(torch.tensor([[1, 2]]), torch.tensor([3]), 9), "begin must be 0 to s = 2; got 3 to 3"),
        (lambda: Text(torch.tensor([[1]]), torch.tensor([1]), 9, first=torch.ones(7, dtype=torch.int64)), "first must"),
        (lambda: Translator(AlgoFormer(AlgoFormerConfig()), TASK.tokenizer), "model must be one of text"),
        (lambda: train(model, TASK, TrainConfig(loss="eq6", window=2)), "loss must be window"),
        (lambda: train(model, replace(TASK, longest=65), TrainConfig(window=2)), "positions must be at least the 65"),
        (
            lambda: train(
                Transformer(TransformerConfig(width=16, heads=2)),
                LinearRegression(dense=True),
                TrainConfig(smoothing=0.1),
            ),
            "smoothing must be 0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="the error of text is its cross-entropy"):
        evaluate(model, TASK)
    with pytest.raises(TypeError, match="sentences must be a list of strings; got the string 'eins'"):
        Translator.of(model, TASK)("eins")
    with pytest.raises(TypeError, match="AlgoFormer answers a Text; got Dense"):
        model(LinearRegression(dense=True).sample(1, seeded()).prompt)
    with pytest.raises(TypeError, match=r"tokens must be a tensor of torch\.int64"):
        Text(torch.ones(1, 2), torch.tensor([1]), 9)


# The loss


def whole_batch(task=TASK, batch=300, step=0):
    return Data(task, TrainConfig(batch=batch), torch.device("cpu"), torch.float64).batch(step, Size(None, None, 0))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_mean_of_minus_log_p_of_the_asked_tokens_over_the_last_loops(smoothing):
    model = lively(MODELS["AlgoFormer"]().double())
    batch = whole_batch()
    loss = cross_entropy(
        model, batch.prompt, batch.target, batch.at, batch.weight, loops=4, window=2, gradient=2, smoothing=smoothing
    )
    trace = model.trace(batch.prompt, 4)[3:].detach().numpy()
    logs = trace - np.log(np.exp(trace).sum(-1, keepdims=True))
    values = []
    for row, begin, tokens in zip(
        range(len(batch.prompt.tokens)), batch.prompt.begin.tolist(), batch.prompt.tokens.tolist(), strict=True
    ):
        written = tokens[begin:]
        written = written[: written.index(END)] if END in written else [i for i in written if i != PAD]
        for place, token in enumerate([*written, END], begin - 1):
            for step in logs:
                values.append(-(1 - smoothing) * step[row, place, token] - smoothing * step[row, place].mean())
    assert loss.item() == pytest.approx(np.mean(values), rel=1e-10)
    assert float(batch.weight.sum()) == pytest.approx(1)


def test_one_loop_of_the_window_a_step_has_the_mean_of_the_whole_window():
    model = lively(MODELS["AlgoFormer"](loops=6).double())
    batch = whole_batch()

    def gradient(loops, window):
        model.zero_grad()
        loss = cross_entropy(
            model, batch.prompt, batch.target, batch.at, batch.weight, loops=loops, window=window, gradient=6
        )
        loss.backward()
        return torch.cat([loss.detach()[None], *(v.grad.flatten() for v in model.parameters())])

    whole = gradient(6, 4)
    config = TrainConfig(random_loops=(3, 6), window=1, gradient_loops=6, batch=300)
    curriculum = Curriculum(TASK, config, 6)
    drawn = np.array([curriculum.size(step).loops for step in range(4000)])
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [3, 4, 5, 6] and counts / 4000 == pytest.approx([0.25] * 4, abs=0.03)
    torch.testing.assert_close(torch.stack([gradient(int(j), 1) for j in values]).mean(0), whole, rtol=1e-9, atol=1e-12)


def test_the_cost_of_text_is_what_is_counted_on_real_batches():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    config = TrainConfig(batch=600, random_loops=(2, 3), window=1, gradient_loops=3)
    task = replace(TASK, size=500)
    model = MODELS["AlgoFormer"]()
    step = Step(model, task, config, torch.device("cpu"))
    data = Data(task, config, torch.device("cpu"), torch.float32)
    counted = {}
    for i in itertools.count():
        batch = data.batch(i, Size(None, None, 2))
        width = batch.prompt.tokens.shape[1]
        if width not in counted:
            counted[width] = []
            for loops in (2, 3):
                with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                    step.loss(batch, loops).backward()
                counted[width].append(counter.get_total_flops())
        if len(counted) == len(task.corpus.buckets):
            break
    about = cost(model.config, task, config)
    wanted = sum(c * np.mean(counted[bucket.tokens.shape[1] - 1]) for c, bucket in task.shapes(600))
    assert about["flops"] == pytest.approx(wanted, rel=0.03)  # the asked tokens of a batch vary
    assert about["parameters"] == sum(v.numel() for v in model.parameters()) and about["memory"] > 0


# Writing


def slowly(model, row, mask, most, steps):
    """Greedy, reading everything again for every token."""
    begin, written = len(row), []
    for _ in range(most):
        tokens = torch.tensor([row + written])
        p = Text(tokens, torch.tensor([begin]), model.config.vocabulary, mask)
        written.append(int(model(p, steps)[0, -1].argmax()))
        if written[-1] == END:
            return written[:-1]
    return written


@pytest.mark.parametrize("mask", ["causal", "prefix"])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_what_is_remembered_changes_nothing_that_is_written(name, mask):
    sources = [[5, SEP], [6, 7, 8, 9, SEP], [20, 30, SEP], [40] * 8 + [SEP]]
    tokens = torch.full((4, 9), PAD)
    for i, row in enumerate(sources):
        tokens[i, : len(row)] = torch.tensor(row)
    p = Text(tokens, torch.tensor([len(row) for row in sources]), 300, mask)
    for steps in (None, 2) if name == "Transformer" else (None, 2, 5):
        model = lively(MODELS[name]())
        wanted = [slowly(model, row, mask, 12, steps) for row in sources]
        assert greedy(model, p, end=END, most=12, steps=steps) == wanted
        assert beam(model, p, end=END, most=12, width=1, alpha=0.0, steps=steps)[0][:1] == wanted[0][:1]
        assert len({tuple(row) for row in wanted}) > 1
        assert all(layer.past is None for layer in model.modules() if hasattr(layer, "past"))


@torch.no_grad()
def test_scores_from_memory_are_those_of_reading_everything_again(generator):
    from algoformer.models.decoding import _reader

    model = lively(MODELS["AlgoFormer"]().double())
    p = text([[5, 6, SEP, 0], [7, 8, 9, SEP]], "prefix")
    with _reader(model, p, 5) as reader:
        reader.source()
        reader.next(torch.tensor([11, 12]))
        reader.select(torch.tensor([1, 1, 0]))
        got = reader.next(torch.tensor([13, 14, 15]))
    for row, tokens, begin in zip(
        got, ([7, 8, 9, SEP, 12, 13], [7, 8, 9, SEP, 12, 14], [5, 6, SEP, 11, 15]), (4, 4, 3), strict=True
    ):
        again = model(Text(torch.tensor([tokens]), torch.tensor([begin]), 300, "prefix"), 5)[0, -1]
        torch.testing.assert_close(row, again, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@torch.no_grad()
def test_a_beam_as_wide_as_all_texts_finds_the_best_of_them(alpha):
    v, most = 5, 4
    for seed in range(6):
        model = AlgoFormer(
            AlgoFormerConfig(vocabulary=v, positions=16, width=8, heads=2, loops=2), seeded(seed)
        ).double()
        lively(model)
        p = text([[3, 4, SEP], [4, 4, SEP]], vocabulary=v)
        wanted = []
        for row in p.tokens.tolist():
            best = (-math.inf, None)
            others = [i for i in range(v) if i != END]
            for n in range(most):
                for body in itertools.product(others, repeat=n):
                    tokens = torch.tensor([[*row, *body]])
                    logs = model(Text(tokens, torch.tensor([3]), v)).log_softmax(-1)[0, 2:]
                    score = sum(float(logs[i, t]) for i, t in enumerate([*body, END])) / (n + 1) ** alpha
                    best = max(best, (score, list(body)))
            wanted.append(best[1])
        assert beam(model, p, end=END, most=most, width=v**most, alpha=alpha) == wanted


def searched(model, row, most, width, alpha):
    """A beam by its definition, for one text: everything is read again, and nothing ends it early."""
    v, alive, best = model.config.vocabulary, [(0.0, [])], (-math.inf, [])
    for length in range(1, most + 1):
        p = Text(torch.tensor([row + body for _, body in alive]), torch.tensor([len(row)] * len(alive)), v)
        logs = model(p)[:, -1].log_softmax(-1).tolist()
        pairs = itertools.product(enumerate(alive), range(v))
        ranked = sorted(((s + logs[i][t], [*body, t]) for (i, (s, body)), t in pairs), reverse=True)
        ended = [(s / length**alpha, body[:-1]) for s, body in ranked[: 2 * width] if body[-1] == END]
        best, alive = max([best, *ended]), [(s, body) for s, body in ranked if body[-1] != END][:width]
    return alive[0][1] if best[0] == -math.inf else best[1]


@pytest.mark.parametrize("how", [{}, {"width": 1}, {"width": 2, "alpha": 0.5}, {"width": 3, "alpha": 2.0}])
@torch.no_grad()
def test_a_beam_is_that_of_the_plain_search_for_every_row_and_its_most_tokens(how):
    rows, most = [[3, 4, SEP], [5, SEP], [4, 4, 5, SEP]], [2, 6, 4]
    p = text([row + [PAD] * (4 - len(row)) for row in rows], vocabulary=20)
    unfinished = 0
    for seed in range(16):
        config = AlgoFormerConfig(vocabulary=20, positions=16, width=8, heads=2, loops=1)
        model = lively(AlgoFormer(config, seeded(seed)).double())
        wanted = [
            searched(model, row, n, **{"width": 5, "alpha": 1.0, **how}) for row, n in zip(rows, most, strict=True)
        ]
        assert beam(model, p, end=END, most=torch.tensor(most), **how) == wanted
        alone = (
            beam(model, text([row], vocabulary=20), end=END, most=n, **how) for row, n in zip(rows, most, strict=True)
        )
        assert [*itertools.chain(*alone)] == wanted
        unfinished += sum(len(body) == n for body, n in zip(wanted, most, strict=True))
    assert 0 < unfinished < 48


@pytest.mark.parametrize("write", [greedy, beam])
def test_nothing_is_read_on_when_all_texts_have_ended(write, monkeypatch):
    """Of this model every token is `END` or PAD, after which no other text is better."""
    model, read = MODELS["Transformer"](), []

    def scores(h):
        read.append(torch.is_grad_enabled())
        return torch.full((len(h), 300), -99.0).index_fill(1, torch.tensor([END if len(read) > 2 else PAD]), 0.0)

    monkeypatch.setattr(model, "scores", scores)
    assert write(model, text([[5, SEP], [6, SEP]]), end=END, most=40) == [[PAD, PAD]] * 2
    assert read == [False] * 3


def test_a_model_writes_without_dropout_and_kernels_and_stays_as_it_was(monkeypatch):
    model, p = lively(MODELS["AlgoFormer"](dropout=0.5)), text([[5, 6, SEP], [8, 9, SEP]])
    kernel = lambda *_, **__: pytest.fail("a kernel remembers nothing")  # noqa: E731
    monkeypatch.setattr(model, "fuse", lambda on: model.passed_by(kernel if on else None))  # as on a GPU
    for fused, training in itertools.product((False, True), repeat=2):
        model.fuse(fused)
        model.train(training)
        for write in (greedy, beam):
            assert write(model, p, end=END, most=9) == write(model, p, end=END, most=9)
            assert {part.training for part in model.modules()} == {training}
            assert model.fused is (kernel if fused else None)


def test_what_cannot_be_written_is_refused():
    model, p = MODELS["Transformer"](), text([[5, SEP], [6, SEP]])
    begun = Text(p.tokens, p.begin, 300, first=torch.tensor([0, 0]))
    empty = Text(p.tokens, torch.tensor([2, 0]), 300)
    for call, message in (
        (lambda: greedy(model, p, end=END, most=0), "most must be at least 1; got 0"),
        (lambda: greedy(model, p, end=END, most=torch.tensor([4, 0])), "most must be at least 1; got 0"),
        (lambda: beam(model, p, end=END, most=4, width=0), "width must be at least 1; got 0"),
        (lambda: beam(model, p, end=END, most=4, alpha=-0.1), "alpha must be at least 0; got -0.1"),
        (lambda: greedy(model, begun, end=END, most=4), "a source must begin at place 0"),
        (lambda: greedy(model, empty, end=END, most=4), "a source must begin at place 0 and end with its separator"),
        (lambda: greedy(MODELS["Transformer"](attention="linear"), p, end=END, most=4), "attention must be softmax"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_text_ends_where_there_are_no_more_positions():
    model = lively(MODELS["Transformer"]())
    p = text([[5] * 60 + [SEP]])
    assert len(greedy(model, p, end=-1, most=50)[0]) == 4 and len(beam(model, p, end=0, most=50)[0]) <= 4
    with pytest.raises(ValueError, match="must leave room below 64 positions; got 65"):
        greedy(model, text([[5] * 64 + [SEP]]), end=END, most=5)


@pytest.mark.parametrize("width", [1, 3])
def test_what_is_written_of_a_sentence_does_not_depend_on_the_others(width):
    """Each row has its own most tokens, and one that has ended reads on beside the others without harm."""
    model = lively(MODELS["AlgoFormer"](positions=40).double())
    translator = Translator(model, TASK.tokenizer, "prefix", 40)
    sentences = ["eins", "zwölf", "neunhundertneunundneunzigtausendneunhundertneunundneunzig", "der erste Mai 1999"] * 3
    sentences += [f"{sentence} Uhr" for sentence in sentences[:4]]
    alone = [translator([sentence], width=width)[0] for sentence in sentences]
    for batch in (3, 64):
        assert translator(sentences, width=width, batch=batch) == alone
    begins = torch.tensor([2, 9])
    p = Text(torch.tensor([[5, SEP] + [PAD] * 7, [6] * 8 + [SEP]]), begins, 300)
    most = torch.tensor([3, 39])
    rows = greedy(model, p, end=299, most=most) if width == 1 else beam(model, p, end=299, most=most, width=width)
    assert [len(row) <= size for row, size in zip(rows, (3, 32), strict=True)] == [True, True] and len(rows[0]) == 3


# Translators, and how they are judged


def written(folder):
    numbers = [n for n in range(100) if n % 10]
    lines = [words.number(n, "de") for n in numbers], [words.number(n, "en") for n in numbers]
    few = lines[0][:20], lines[1][:20]
    return write(folder, train=lines, valid=few, test=few)


def test_cross_entropy_and_quality_are_those_of_the_plain_definitions(tmp_path):
    from sacrebleu import corpus_bleu, corpus_chrf

    model = lively(MODELS["Looped"]().double())
    translator = Translator.of(model, replace(TASK, longest=24))
    lines = Lines(
        ["eins", "einhundertzwei", "Unsinn " * 9, "zwölf"], ["one", "one hundred and two", "nonsense", "twelve"]
    )
    found = entropy(translator, lines, steps=[5, 1])
    total, count = torch.zeros(2), 0
    for a, b in ((0, 0), (1, 1), (3, 3)):
        source, target = TASK.tokenizer.encode([lines.source[a], lines.target[b]])
        p = text([[*source, SEP, *target]])
        logs = model.trace(p, 5).log_softmax(-1)[[1, 5], 0, len(source) :]
        total += torch.stack([-row[torch.arange(len(target) + 1), [*target, END]].sum() for row in logs]).detach()
        count += len(target) + 1
    assert (found.steps, found.pairs, found.long, found.tokens, found.words) == ([1, 5], 3, 1, count, 6)
    assert found.per_token == pytest.approx((total / count).tolist(), rel=1e-5)
    assert found.per_word == pytest.approx((total / 6).tolist(), rel=1e-5)
    made = quality(translator, lines, width=2)
    assert made.translations == translator(lines.source, width=2) and made.cut == 1
    assert made.bleu == corpus_bleu(made.translations, [lines.target]).score
    assert made.chrf == corpus_chrf(made.translations, [lines.target]).score
    assert "tok:13a" in made.signatures[0] and "case:mixed" in made.signatures[0] and made.exact == 0


def test_a_small_model_learns_to_translate_and_its_run_goes_on_where_it_stopped(tmp_path):
    task = Translation(data=written(tmp_path / "data"), vocabulary=300, longest=32, mask="prefix")
    config = TrainConfig(
        steps=200,
        batch=400,
        lr=5e-3,
        warmup=10,
        random_loops=(1, 2),
        window=1,
        gradient_loops=2,
        smoothing=0.05,
        log_every=20,
    )

    def model():
        return MODELS["AlgoFormer"](width=32, loops=2, dropout=0.05)

    one = model()
    train(one, task, config, tmp_path / "run")
    translator = Translator.load(tmp_path / "run")
    made = quality(translator, task.lines("test"))
    assert made.exact > 0.5 and made.chrf > 60  # a model that was not trained has 0
    short = replace(config, steps=12, log_every=4)
    ends = []
    for stops in ((12,), (5, 12)):
        for until in stops:  # a fresh model goes on from the folder
            one = model()
            train(one, task, short, tmp_path / f"{len(stops)}", until=until)
        ends.append(one)
    assert all(torch.equal(a, b) for a, b in zip(*(end.parameters() for end in ends), strict=True))
    for place in ("run", "run/model", "run/checkpoints/step-00000200"):
        assert Translator.load(tmp_path / place)(["siebenundzwanzig", " "]) == translator(["siebenundzwanzig", ""])
    with pytest.raises(ValueError, match=r"must hold the tokenizer\.json"):
        MODELS["AlgoFormer"]().save_pretrained(tmp_path / "bare")
        Translator.load(tmp_path / "bare")
    with (tmp_path / "data" / "train.de").open("a") as file, (tmp_path / "data" / "train.en").open("a") as twin:
        print("wesentlich anderer Text", file=file)
        print("quite another text", file=twin)
    moved = replace(task, data=str(tmp_path / "data" / ".." / "data"))
    with pytest.raises(ValueError, match=r"tokenizer\.json must be the task's own; the data have changed"):
        train(model(), moved, config, tmp_path / "run")


def test_the_presets_take_text_of_ones_own(tmp_path):
    data = written(tmp_path)
    recipe = with_data(preset("translation-ours"), data)
    assert recipe.task == Translation(data=data, vocabulary=8000, mask="prefix", longest=128)
    with pytest.raises(ValueError, match="data must be given with a recipe for text"):
        with_data(preset("algoformer"), data)
    recipe.task.check()
    shapes = {}
    for name in ("standard", "looped", "algoformer"):
        r = preset(f"translation-{name}")
        shapes[name] = sum(v.numel() for v in model_of(r.model).parameters())
        assert (r.model.width, r.model.heads, r.train.lr, r.model.dropout, r.train.smoothing) == (256, 8, 5e-5, 0, 0)
    block, rest = 12 * 256**2 + 13 * 256, (8000 + 128) * 256
    assert shapes == {
        "standard": rest + 12 * block + 512, "looped": rest + block + 512, "algoformer": rest + 3 * block + 1024
    }  # fmt: skip


def test_the_command_line_trains_translates_and_evaluates(tmp_path):
    data, run = written(tmp_path / "data"), tmp_path / "run"
    small = "--model.width 16 --model.heads 2 --model.vocabulary 300 --task.vocabulary 300 --train.batch 200"
    short = " --model.loops 2 --train.random-loops 1,2 --train.gradient-loops 2 --train.steps 3"
    runner = CliRunner()
    arguments = [
        "train",
        "--preset",
        "translation-algoformer",
        "--data",
        data,
        "--folder",
        str(run),
        *(small + short).split(),
    ]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "90 training pairs in " in done.stderr and "0 of more than 128 tokens are left out" in done.stderr
    done = runner.invoke(app, ["translate", str(run), "eins", "zwei", "--json"])
    assert done.exit_code == 0 and [row["source"] for row in json.loads(done.stdout)] == ["eins", "zwei"]
    done = runner.invoke(app, ["translate", str(run), "--beam", "1"], input="eins\n\nzwei\n")
    assert done.exit_code == 0 and len(done.stdout.split("\n")) == 4
    done = runner.invoke(app, ["evaluate", str(run), "--split", "test", "--steps", "1,2,4", "--prompts", "5", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["entropy"]["steps"] == [1, 2, 4] and found["entropy"]["pairs"] == 5
    assert found["quality"]["steps"] == 4
    some = ["--split", "test", "--prompts", "5", "--json"]
    for place, more in (
        ("run", ["--steps", "4,1,2"]),  # in any order
        ("run/checkpoints/step-00000003", ["--steps", "1,2,4"]),
        ("run/model", ["--steps", "1,2,4", "--task", "Translation", "--task.data", data]),
    ):
        done = runner.invoke(app, ["evaluate", str(tmp_path / place), *some, *more])
        assert done.exit_code == 0 and json.loads(done.stdout) == found, done.output
    done = runner.invoke(app, ["evaluate", str(run / "model"), *some])
    assert done.exit_code == 2 and "the task must be given (--task)" in done.stderr
    done = runner.invoke(app, ["evaluate", str(run)])
    assert done.exit_code == 0 and "per word" in done.stdout and "tok:13a" in done.stdout
    assert "After step 2: BLEU" in done.stdout
    for option in ("prompts", "beam"):
        done = runner.invoke(app, ["evaluate", str(run), f"--{option}", "0"])
        assert done.exit_code == 2 and f"{option} must be at least 1; got 0" in done.stderr
    done = runner.invoke(app, ["train", "--preset", "algoformer", "--data", data])
    assert done.exit_code == 2
    names = r"the translator must be a folder or one of numbers-de-en, tatoeba-de-en; got "
    for arguments, message in (
        (["numbers-de", "eins"], f"{names}'numbers-de'"),
        (["linear-regression-d20", "eins"], f"{names}'linear-regression-d20'"),
        ([str(run), "eins", "--beam", "0"], "beam must be at least 1; got 0"),
    ):
        done = runner.invoke(app, ["translate", *arguments])
        assert done.exit_code == 2 and message in done.stderr
    done = runner.invoke(app, ["translate", str(run)], input=b"eins\nf\xfcnf\n")
    assert done.exit_code == 2 and "standard input must be UTF-8; line 2 is not" in done.stderr
    (tmp_path / "data" / "test.en").write_text("one line\n")
    wrong = "test.de and test.en must have as many lines"
    for message in (wrong, "must hold either valid.de or valid.de.gz; got neither"):
        done = runner.invoke(app, ["train", "--preset", "translation-ours", "--data", data, "--dry-run"])
        assert done.exit_code == 2 and message in done.stderr
        (tmp_path / "data" / "valid.de").unlink(missing_ok=True)


def test_a_translator_takes_any_strings_and_nothing_else():
    translator = zoo.pretrained("numbers-de-en")
    assert translator(s for s in ["drei", "", "vier"]) == translator(("drei", "", "vier")) == ["three", "", "four"]
    for wrong, kind, message in (
        ("drei", TypeError, "must be a list of strings; got the string 'drei'"),
        (["drei", 3], TypeError, "sentences must be strings; got 3"),
        ([b"drei"], TypeError, "sentences must be strings; got b'drei'"),
        (["dr\udce9i"], ValueError, "sentences must be strings of whole characters; got 'dr"),
    ):
        with pytest.raises(kind, match=message):
            translator(wrong)
    with pytest.raises(ValueError, match="batch must be at least 1; got 0"):
        translator(["drei"], batch=0)


def test_without_the_extra_the_package_still_loads_and_says_what_is_missing():
    code = (
        "import sys; sys.modules['tokenizers'] = sys.modules['sacrebleu'] = None\n"
        "from algoformer.tasks import NumberWords; from algoformer.training import train\n"
        "try: NumberWords(size=10).tokenizer\n"
        "except ImportError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "text needs tokenizers: pip install 'algoformer[translation]'"


# Runs that are validated, and those behind the published figures


def test_a_validated_run_ends_with_its_best_weights_and_goes_on(tmp_path):
    task = Translation(data=written(tmp_path / "data"), vocabulary=300, longest=32)
    config = TrainConfig(steps=60, batch=300, lr=0.05, warmup=5, window=1, gradient_loops=2, clip=None, log_every=50)

    def model():
        return MODELS["AlgoFormer"](loops=2)

    one = model()
    course = validated(one, task, config, tmp_path / "one", checks=6)
    assert course.steps == [10, 20, 30, 40, 50, 60] and course.rate > 0
    assert course.per_token[course.steps.index(course.best)] == min(course.per_token)
    assert course.trained == course.per_token
    found = entropy(Translator.of(one, task), task.lines("valid")).per_token[0]
    assert found == pytest.approx(min(course.per_token), rel=1e-5)
    kept = Translator.load(tmp_path / "one" / "best")
    assert all(torch.equal(a, b) for a, b in zip(kept.model.parameters(), one.parameters(), strict=True))
    looks = iter(range(9))
    with pytest.raises(KeyboardInterrupt, match="stopped at step 31 of 60; run again to go on"):
        validated(model(), task, config, tmp_path / "two", checks=6, stop=lambda: next(looks) == 2)
    two = model()
    again = validated(two, task, config, tmp_path / "two", checks=6)
    assert again.per_token == course.per_token and again.best == course.best
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_of_smoothed_labels_the_best_look_is_that_of_the_smoothed_loss(tmp_path):
    task = Translation(data=written(tmp_path / "data"), vocabulary=300, longest=32)
    config = TrainConfig(steps=40, batch=300, lr=0.05, warmup=5, window=1, gradient_loops=2, smoothing=0.4)
    one = MODELS["AlgoFormer"](loops=2)
    course = validated(one, task, config, checks=4)
    tokenizer, lines = task.tokenizer, task.lines("valid")
    plain, spread, count = 0.0, 0.0, 0
    for source, target in zip(*map(tokenizer.encode, lines[:2]), strict=True):
        whole = torch.tensor([[*source, SEP, *target, END]])
        text = Text(whole[:, :-1], torch.tensor([len(source) + 1]), 300, "causal")
        with torch.no_grad():
            logs = one.predict(text)[0, len(source) :].log_softmax(-1)
        plain -= float(logs.gather(1, whole[0, len(source) + 1 :, None]).sum())
        spread -= float(logs.mean(1).sum())
        count += len(target) + 1
    at = course.steps.index(course.best)
    assert course.trained[at] == min(course.trained) == pytest.approx((0.6 * plain + 0.4 * spread) / count, rel=1e-5)
    assert course.per_token[at] == pytest.approx(plain / count, rel=1e-5)


def test_what_cannot_be_trained_on_text_is_refused():
    task = NumberWords(size=50, vocabulary=300)
    config = AlgoFormerConfig(vocabulary=300, positions=64, width=16, heads=2, loops=2)
    model = AlgoFormer(config, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"ema must be 0 where looks choose the weights; got 0\.9"):
        validated(model, task, TrainConfig(steps=2, batch=200, ema=0.9))
    with pytest.raises(ValueError, match="a ramp of loops must go by the clock"):
        train(model, task, TrainConfig(steps=2, batch=200, window=1, loops=Ramp(start=1, stop=2)))


def small_parts(job, data, plain=bench.Job.parts):
    """The configs of a published run, in small."""
    model, task, config = plain(job, data)
    short = {"layers": 2} if job.model == "standard" else {"loops": 2}
    if job.model != "standard":
        config = replace(config, random_loops=config.random_loops and (1, 2), gradient_loops=2)
    model = replace(model, width=16, heads=2, vocabulary=300, positions=32, **short)
    return model, replace(task, vocabulary=300, longest=32), replace(config, batch=200, steps=20, log_every=5)


def test_a_published_run_is_judged_at_its_best_and_is_not_repeated(tmp_path, monkeypatch):
    written(tmp_path / "data" / "multi30k_de_en")
    monkeypatch.setattr(bench.Job, "parts", small_parts)
    monkeypatch.setattr(bench, "EXTRA", (3,))
    monkeypatch.setattr(bench, "matmul_rate", lambda device, dtype: 1e12)
    monkeypatch.setattr(bench, "MODELS", ("looped", "standard"))
    place = tmp_path / "data", tmp_path / "runs", tmp_path / "out", torch.device("cpu")
    assert not bench.runs(["trial"], *place, minutes=0)
    assert bench.runs(["trial"], *place, minutes=9)
    assert bench.runs(["trial"], *place, minutes=0)  # nothing is left to do
    found = bench.results(tmp_path / "out")
    one = found["trial-looped"]
    assert one["loops"].keys() == {"1", "2", "3"} and one["decoding"].keys() == {"1", "64"}
    assert one["entropy"] == pytest.approx(min(value for _, value in one["curve"]), rel=1e-4)
    assert found["trial-standard"]["loops"].keys() == {"1", "2"}
    assert one["config"]["task"]["data"] == "multi30k_de_en" and str(tmp_path) not in json.dumps(found)
    lines = (tmp_path / "out" / "trial-looped.json").read_text().splitlines()
    assert len(lines) == len(one) + 2  # a line a part
    curve = *zip(*one["curve"], strict=True), math.log(300)
    assert at(*curve, 10) == pytest.approx(dict(one["curve"])[10])
    assert at(*curve, 0) == pytest.approx(math.log(300)) and at(*curve, 99) == one["curve"][-1][1]


def test_the_run_on_short_sentences_becomes_the_shipped_model(tmp_path, monkeypatch):
    data, out, folder, home = (tmp_path / name for name in ("data", "out", "runs", "zoo"))
    written(data / "tatoeba_de_en")
    monkeypatch.setattr(bench.Job, "parts", small_parts)
    monkeypatch.setattr(bench, "EXTRA", (3,))
    monkeypatch.setattr(bench, "matmul_rate", lambda device, dtype: 1e12)
    monkeypatch.setattr(bench, "best_trial", lambda found: "mild")
    monkeypatch.setattr(bench, "HOME", home)
    monkeypatch.setattr(zoo, "HOME", home)
    monkeypatch.setattr(zoo, "NAMES", (bench.SHIPPED,))
    home.mkdir()
    places = [f"--{name}={place}" for name, place in (("data", data), ("folder", folder), ("out", out))]
    monkeypatch.setattr(sys, "argv", ["translation", "tatoeba", "pack", *places, "--device", "cpu"])
    bench.main()
    shipped, run = algoformer.pretrained("tatoeba-de-en"), Translator.load(folder / "tatoeba_de_en-ours-0" / "best")
    for mine, other in zip(shipped.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(mine, other.half().float())
    assert (shipped.mask, shipped.longest) == ("prefix", 32) and shipped.tokenizer.size == run.tokenizer.size
    card = (home / "tatoeba-de-en" / "README.md").read_text()
    assert all(word in card for word in ("**Model.**", "**Training.**", "**Quality.**", "**Again.**"))
    assert "contributors of Tatoeba" in card and "CC BY 2.0" in card and str(tmp_path) not in card
    made = quality(shipped, Translation(data=str(data / "tatoeba_de_en")).lines("test"))
    assert zoo.about("tatoeba-de-en")["test"]["1"]["bleu"] == round(made.bleu, 2)


def test_jobs_on_one_text_share_its_lines_and_tokens(tmp_path, monkeypatch):
    written(tmp_path / "multi30k_de_en")
    read = []
    monkeypatch.setattr(
        Translation, "read", lambda task, split, plain=Translation.read: (read.append(split), plain(task, split))[1]
    )
    jobs = [bench.Job("a", "multi30k_de_en", "looped", 1e-3, seed) for seed in (0, 1)]
    jobs.append(bench.Job("b", "multi30k_de_en", "algoformer", 1e-3, trial="mild"))  # another mask
    tasks = [replace(job.parts(tmp_path)[1], vocabulary=300) for job in jobs]
    assert len({task.mask for task in tasks}) == 2 and len({id(task.corpus) for task in tasks}) == 1
    assert len({id(task.tokenizer) for task in tasks}) == 1 and read == ["train"]


def test_the_shipped_model_of_short_sentences_will_be_small_enough():
    model, task, _ = bench.Job("one", "tatoeba_de_en", "algoformer", 1e-3, trial="mild").parts(Path("data"))
    half = 2 * sum(v.numel() for v in model_of(model).parameters())
    assert task.vocabulary == model.vocabulary == 4000 and half < 4.5e6  # the tokenizer has about 0.1 MB
    assert bench.Job("one", "multi30k_de_en", "algoformer", 1e-3).parts(Path("data"))[0].width == 256


def test_the_plans_make_the_published_runs_and_go_on_from_what_they_found(tmp_path, monkeypatch):
    made = []

    def fake(job, data, folder, device, stop):
        made.append(job)
        rank = {"looped": 3e-4, "standard": 1e-3, "algoformer": 5e-5}[job.model]
        value = abs(math.log(job.lr / rank))
        bleu = 100 * bench.TRIALS[job.trial].dropout + bench.TRIALS[job.trial].last if job.trial else 1.0
        scores = {"test_beam": [1.0, 2.0, 0.0], "valid_greedy": [bleu, 1.0, 0.0]}
        row = {"entropy": value, "best_step": 1, "scores": scores, "seconds": 1.0}
        curve = [[job.steps // 2, value + 1], [job.steps, value]]
        more = {"steps_per_second": 1.0, "fraction_of_floor": 0.1, "flops": 10, "parameters": 1, "per_word": 1.0}
        config = {"model": {"vocabulary": 8000}}
        return {**dataclasses.asdict(job), **row, **more, "tokens_per_second": 1.0, "curve": curve, "config": config}

    monkeypatch.setattr(bench, "carry_out", fake)
    place = tmp_path, tmp_path / "runs", tmp_path / "out", torch.device("cpu")
    with pytest.raises(ValueError, match=r"the pilots of standard must be finished first; got \[\]"):
        bench.runs(["seeds"], *place, minutes=9)
    assert bench.runs(["pilots", "seeds", "recipes", "ours", "europarl", "tatoeba"], *place, minutes=9)
    names = [job.name for job in made]
    assert len(names) == len(set(names)) == 9 + 10 + 6 + 5 + 5 + 1  # the best AlgoFormer has the paper's learning rate
    assert "multi30k_de_en-looped-0.0003-2" in names and "europarl_de_en-standard-0.001-0" in names
    texts = [name for name in names if name.startswith("europarl")]
    assert [name.split("-", 1)[1] for name in texts[:3]] == ["standard-5e-05-0", "looped-5e-05-0", "algoformer-5e-05-0"]
    assert made[-1].trial == "strong" and "ours-strong-standard-2" in names
    configs = {job.name: job.parts(tmp_path) for job in made}
    model, task, config = configs["ours-strong-standard-2"]
    assert (model.dropout, task.mask, config.smoothing, config.schedule, config.seed) == (
        0.3,
        "prefix",
        0.1,
        "cosine",
        2,
    )
    with pytest.raises(ValueError, match=r"the first trials must be finished first; got \[\]"):
        bench.best_trial({})
    made.clear()
    assert bench.runs(["again", "tatoeba"], *place, minutes=9)
    assert [job.name for job in made[:3]] == ["ours-short-0", "ours-last-0", "ours-short-last-0"]
    assert [job.name for job in made[3:]] == [
        f"ours-last{name}" for name in ("-standard-0", "-1", "-standard-1", "-2", "-standard-2")
    ]  # the shipped model remains that of the first trials
    configs |= {job.name: job.parts(tmp_path) for job in made}
    drawn = {name: configs[f"ours-{name}-0"][2] for name in ("strong", "short", "last", "last-standard")}
    assert [config.random_loops for config in drawn.values()] == [(3, 12), (3, 12), None, None]
    assert [config.steps for config in drawn.values()] == [10_000, 4000, 10_000, 10_000]
    assert drawn["last"].window == 1 and drawn["last"].gradient_loops == 12
    model, task, config = configs["europarl_de_en-algoformer-5e-05-0"]
    assert (config.steps, config.batch, config.lr, task.mask, model.dropout) == (20_000, 8192, 5e-5, "causal", 0)


# The model that is shipped


def test_the_shipped_model_is_small_loads_without_a_network_and_reads_what_was_held_out(monkeypatch):
    import socket

    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("it asked the network"))
    home = Path(algoformer.zoo.__file__).parent / "numbers-de-en"
    assert sum(file.stat().st_size for file in home.iterdir()) < 2**20 and (home / "README.md").exists()
    translator = algoformer.pretrained("numbers-de-en")
    assert next(translator.model.parameters()).dtype == torch.float32
    task = NumberWords(size=3000, mask="prefix")
    for split in ("test", "structural"):
        assert quality(translator, task.lines(split), batch=300).exact >= 0.95
    assert translator(["einundzwanzigtausenddreihundertvier"]) == ["twenty-one thousand three hundred and four"]
    with pytest.raises(ValueError, match="did you mean numbers-de-en"):
        algoformer.pretrained("numbers-en-de")


def test_the_shipped_model_of_short_sentences_translates_them():
    translator = algoformer.pretrained("tatoeba-de-en")
    pairs = {
        "Guten Morgen!": "Good morning!",
        "Wo ist der nächste Bahnhof?": "Where is the nearest station?",
        "Er spielt jeden Tag Tennis.": "He plays tennis every day.",
        "Kannst du mir bitte helfen?": "Can you please help me?",
        "Es regnet seit gestern.": "It has been raining since yesterday.",
        "Sie hat das Buch schon gelesen.": "She has already read the book.",
        "Ich weiß nicht, was ich tun soll.": "I don't know what to do.",
        "Tom ist größer als sein Vater.": "Tom is taller than his father.",
    }
    assert translator(list(pairs), width=5) == list(pairs.values())


@pytest.mark.slow
def test_the_shipped_model_of_short_sentences_is_as_good_as_its_card_says():
    home = Path(os.environ.get("ALGOFORMER_DATA", "data"), "tatoeba_de_en")
    if not home.exists():
        pytest.skip("it needs the text tatoeba_de_en in the folder ALGOFORMER_DATA")
    found = quality(algoformer.pretrained("tatoeba-de-en"), Translation(data=str(home)).lines("test"))
    assert found.bleu == pytest.approx(zoo.about("tatoeba-de-en")["test"]["1"]["bleu"], rel=0.05)


@pytest.mark.slow
def test_number_words_are_learned_in_minutes(tmp_path):
    found = bench.numbers(tmp_path / "curve.json", None, 1500)
    assert found["exact"]["test"] >= 0.95 and found["seconds"] < 1200


@pytest.mark.slow
def test_the_check_of_the_fast_path_compares_losses():
    """torch.compile does not go with the shape checks of this process."""
    code = """
import torch
from dataclasses import replace
from algoformer.bench import translation as bench
from algoformer.tasks import NumberWords

plain = bench.preset
def small(name):
    r = plain(name)
    model = replace(r.model, vocabulary=300, width=16, heads=2, loops=2, positions=64)
    return replace(r, model=model, task=NumberWords(size=300, vocabulary=300))
bench.preset = small
found = bench.check(torch.device("cpu"), steps=20)
assert found.keys() == {"causal", "prefix"}
assert all(0 <= row["apart"] < 1e-4 and row["loss"] < 6 for row in found.values()), found
print("equal")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
