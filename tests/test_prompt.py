import copy
import pickle

import pytest
import torch

from algoformer import Chains, Dense, Prompt, Series


def numbers(*shape, dtype=torch.float64):
    return torch.arange(float(torch.Size(shape).numel()), dtype=dtype).reshape(shape)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prompt(numbers(2, 5), numbers(2, 5, 1), numbers(2, 1, 3)), r"x must be \(b, n, d\); got \(2, 5\)"),
        (
            lambda: Prompt(numbers(2, 5, 3), numbers(2, 4, 1), numbers(2, 1, 3)),
            r"y must be \(b, n, k\) = \(2, 5, k\); got \(2, 4, 1\)",
        ),
        (
            lambda: Prompt(numbers(2, 5, 3), numbers(2, 5, 1), numbers(2, 1, 4)),
            r"queries must be \(b, m, d\) = \(2, m, 3\); got \(2, 1, 4\)",
        ),
        (
            lambda: Prompt(numbers(2, 5, 3), numbers(2, 5, 1), numbers(2, 1, 3), torch.ones(2, 4, dtype=torch.bool)),
            r"seen must be \(b, n\) = \(2, 5\); got \(2, 4\)",
        ),
        (
            lambda: Prompt(numbers(2, 5, 3), numbers(2, 5, 1), numbers(2, 1, 3), torch.ones(2, 5)),
            "seen must be a bool tensor; got a tensor of torch.float32",
        ),
        (
            lambda: Prompt([[1.0]], numbers(1, 1, 1), numbers(1, 1, 1)),
            "x must be a tensor of floating-point numbers; got",
        ),
        (
            lambda: Prompt(numbers(1, 1, 1).long(), numbers(1, 1, 1), numbers(1, 1, 1)),
            "x must be a tensor of floating-point numbers; got a tensor of torch.int64",
        ),
        (
            lambda: Prompt(numbers(2, 5, 3), numbers(2, 5, 1, dtype=torch.float32), numbers(2, 1, 3)),
            "y must be torch.float64 on cpu as x is; got torch.float32 on cpu",
        ),
        (
            lambda: Prompt(numbers(2, 5, 3), numbers(2, 5, 1), torch.full((2, 1, 3), torch.inf, dtype=torch.float64)),
            r"queries must be finite; got inf at \(0, 0, 0\)",
        ),
        (
            lambda: Dense(numbers(2, 5, 3), numbers(2, 5, 1).to("meta")),
            "y must be torch.float64 on cpu as x is; got torch.float64 on meta",
        ),
        (lambda: Dense(numbers(2, 5, 3), numbers(2, 5, 1) * torch.nan), r"y must be finite; got nan at \(0, 0, 0\)"),
        (lambda: Series(numbers(2, 5)), r"x must be \(b, n, d\); got \(2, 5\)"),
        (lambda: Chains(numbers(2, 3, 1, 4)), "a chain must have at least 2 states; got 1"),
        (lambda: Chains(numbers(2, 3, 4, 5), numbers(2, 4, 5)), "partial must hold 1 to c - 1 = 3 states; got 4"),
        (lambda: Chains(numbers(2, 3, 4, 5), numbers(2, 0, 5)), "partial must hold 1 to c - 1 = 3 states; got 0"),
        (lambda: Dense(numbers(2, 5, 3), numbers(2, 5, 1)).prefix(5), "must end before one of the 5 pairs; got 5"),
        (lambda: Series(numbers(2, 5, 3))[0], "rows of a batch must be a slice or a tensor; got int"),
        (lambda: Series(numbers(2, 5, 3), every=True).extended(numbers(2, 1, 3)), "this one asks every value"),
        (lambda: Chains(numbers(2, 3, 4, 5)).extended(numbers(2, 1, 5)), "this prompt asks every state"),
    ],
)
def test_bad_prompts_say_what_must_be_and_what_came(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_prompts_say_the_shape_of_their_answer():
    assert Prompt(numbers(2, 5, 3), numbers(2, 5, 4), numbers(2, 6, 3)).asked == (2, 6, 4)
    assert Dense(numbers(2, 5, 3), numbers(2, 5, 4)).asked == (2, 5, 4)
    assert Series(numbers(2, 5, 3)).asked == (2, 1, 3)
    assert Series(numbers(2, 5, 3), every=True).asked == (2, 5, 3)
    assert Chains(numbers(2, 3, 4, 5), numbers(2, 2, 5)).asked == (2, 1, 5)
    assert Chains(numbers(2, 3, 4, 5)).asked == (2, 9, 5)


def test_unseen_pairs_are_zero_and_are_not_counted():
    seen = torch.tensor([[True, False], [True, True]])
    p = Prompt(numbers(2, 2, 3) + 1, numbers(2, 2, 1) + 1, numbers(2, 1, 3), seen)
    x, y = p.pairs
    assert not x[0, 1].any()
    assert not y[0, 1].any()
    assert torch.equal(x[1], p.x[1])
    assert p.counts.tolist() == [1, 2] and p.counts.dtype == torch.float64


def test_the_seen_pairs_come_first_and_in_their_order():
    seen = torch.tensor([[False, True, False, True], [True, False, False, False]])
    p = Prompt(numbers(2, 4, 1) + 1, numbers(2, 4, 1) + 11, numbers(2, 1, 1), seen)
    x, y, first = p.seen_first
    assert x[..., 0].tolist() == [[2, 4, 0, 0], [5, 0, 0, 0]] and y[..., 0].tolist() == [[12, 14, 0, 0], [15, 0, 0, 0]]
    assert first.tolist() == [[True, True, False, False], [True, False, False, False]]


def test_a_dense_prompt_expands_into_its_prefixes():
    dense = Dense(numbers(2, 4, 3), numbers(2, 4, 1))
    whole = dense.expand()
    for row in range(2):
        for i in range(4):
            part = whole[torch.tensor([row * 4 + i])]
            prefix = dense.prefix(i)[row : row + 1]
            assert torch.equal(part.queries, prefix.queries)
            assert torch.equal(part.x[:, part.seen[0]], prefix.x)
            assert torch.equal(part.y[:, part.seen[0]], prefix.y)


def test_prompts_move_slice_copy_and_pickle():
    p = Prompt(numbers(3, 5, 2), numbers(3, 5, 1), numbers(3, 1, 2), numbers(3, 5) > 4)
    q = p.to(dtype=torch.float32)
    assert q.x.dtype == q.y.dtype == torch.float32
    assert q.seen.dtype == torch.bool
    assert torch.equal(p[1:].seen, p.seen[1:])
    assert p[torch.tensor([2, 0])].x[0, 0, 0] == p.x[2, 0, 0]
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert torch.equal(twin.x, p.x)
    assert Series(numbers(2, 5, 3), every=True)[:1].every
    assert Chains(numbers(2, 3, 4, 5))[:1].partial is None


def test_growing_prompts_keep_their_past():
    s = Series(numbers(2, 5, 3)).extended(numbers(2, 1, 3))
    assert torch.equal(s.x[:, :5], numbers(2, 5, 3))
    c = Chains(numbers(2, 3, 4, 5), numbers(2, 1, 5)).extended(numbers(2, 1, 5))
    assert c.partial.shape == (2, 2, 5)
