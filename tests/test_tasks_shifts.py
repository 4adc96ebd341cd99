"""Shifts do what they say, and every oracle is the best predictor of its task."""

import numpy as np
import pytest
import scipy.linalg
import torch

from algoformer import Chains, On
from algoformer.solvers import Averaging, GradientDescent, LeastSquares, Ridge
from algoformer.solvers.reductions import Features, Links, Windows
from algoformer.tasks import (
    Autoregression,
    ChainOfThought,
    DecisionTree,
    Given,
    HalfAndHalf,
    HalfSubspace,
    LinearRegression,
    LogisticRegression,
    OrthogonalQuery,
    OtherCovariance,
    OtherNoise,
    Quadrants,
    Quadratic,
    ReluNetwork,
    RepeatedQuery,
    Representation,
    ScaledInputs,
    ScaledLabels,
    SparseLinear,
    Spectrum,
    Subspace,
)
from algoformer.testing import laws

TASK = LinearRegression(d=8, n=5, queries=3)


def draw(task, batch=50, seed=0):
    return task.sample(batch, torch.Generator().manual_seed(seed), torch.float64)


def error(algorithm, sample):
    return (algorithm.predict(sample.prompt) - sample.target).square().mean().item()


# Shifts


def test_scaled_inputs_and_labels_scale_one_draw_and_leave_the_other():
    plain, inputs, labels = draw(TASK), draw(ScaledInputs(TASK, scale=3.0)), draw(ScaledLabels(TASK, scale=3.0))
    for s in (inputs, labels):
        assert torch.equal(s.truth.latent.w, plain.truth.latent.w)
        torch.testing.assert_close(s.prompt.y, 3 * plain.prompt.y)
        torch.testing.assert_close(s.target, 3 * plain.target)
    torch.testing.assert_close(inputs.prompt.x, 3 * plain.prompt.x)
    torch.testing.assert_close(inputs.prompt.queries, 3 * plain.prompt.queries)
    assert torch.equal(labels.prompt.x, plain.prompt.x)


def test_scaled_labels_leave_the_noise():
    s = draw(ScaledLabels(LinearRegression(d=3, noise=0.5, queries=50), scale=10.0), 400)
    assert (s.target - s.truth.clean).std().item() == pytest.approx(0.5, rel=0.03)


def test_quadratic_labels_are_those_of_the_scaled_inputs():
    plain, shifted = draw(Quadratic(d=3)), draw(ScaledInputs(Quadratic(d=3), scale=3.0))
    torch.testing.assert_close(shifted.target, 9 * plain.target)


def test_other_noise_takes_the_place_of_the_noise():
    for noise in (0.0, 2.0):
        s = draw(OtherNoise(LinearRegression(d=3, noise=0.5, queries=50), noise=noise), 400)
        assert (s.target - s.truth.clean).std().item() == pytest.approx(noise, rel=0.03)


def test_another_covariance_changes_the_inputs_and_not_the_functions():
    task = LinearRegression(d=3, n=3000, covariance=Spectrum(eigenvalues=(4.0, 1.0, 1.0)), prior="inverse")
    sigma = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]], dtype=torch.float64)
    plain, shifted = draw(task, 20), draw(OtherCovariance(task, covariance=Given(matrix=sigma)), 20)
    assert torch.equal(plain.truth.latent.w, shifted.truth.latent.w)
    x = shifted.prompt.x.flatten(0, 1).numpy()
    np.testing.assert_allclose(np.cov(x.T), sigma, atol=5 * 2 * np.sqrt(2 / len(x)))
    np.testing.assert_allclose(shifted.truth.latent.covariance.matrix[0], sigma, atol=1e-14)
    few = OtherCovariance(LinearRegression(d=3, n=9, active=2), covariance=Given(matrix=sigma))
    assert few.rank == np.linalg.matrix_rank(draw(few, 1).prompt.x[0].numpy()) == 2


def test_a_half_subspace_has_half_the_rank_and_trace_d():
    s = draw(HalfSubspace(LinearRegression(d=8, n=3000, queries=3)), 20)
    points = torch.cat([s.prompt.x, s.prompt.queries], 1).numpy()
    assert (np.linalg.matrix_rank(points) == 4).all()
    assert np.square(points).sum(-1).mean() == pytest.approx(8, rel=0.05)
    one, two = points[:2]
    assert np.linalg.matrix_rank(np.vstack([one, two])) == 8  # another subspace for each prompt


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_orthogonal_queries_are_orthogonal_and_keep_their_length(dtype):
    plain, s = (t.sample(200, torch.Generator().manual_seed(0), dtype) for t in (TASK, OrthogonalQuery(TASK)))
    assert torch.equal(s.prompt.x, plain.prompt.x)
    cosine = torch.nn.functional.cosine_similarity(s.prompt.queries[:, :, None], s.prompt.x[:, None], dim=-1)
    assert cosine.abs().max() < 20 * torch.finfo(dtype).eps
    torch.testing.assert_close(s.prompt.queries.norm(dim=-1), plain.prompt.queries.norm(dim=-1))
    torch.testing.assert_close(s.truth.clean, s.prompt.queries @ s.truth.latent.w)
    assert LeastSquares().predict(s.prompt).abs().max() < 1e4 * torch.finfo(dtype).eps


def test_queries_of_a_prompt_without_examples_are_orthogonal_to_nothing():
    task = LinearRegression(d=3, n=0)
    torch.testing.assert_close(draw(OrthogonalQuery(task)).prompt.queries, draw(task).prompt.queries)


def test_repeated_queries_are_examples_chosen_evenly():
    s = draw(RepeatedQuery(TASK), 2000)
    same = (s.prompt.queries[:, :, None] == s.prompt.x[:, None]).all(-1)
    assert bool((same.sum(-1) == 1).all())
    share = same.double().mean((0, 1)).numpy()
    assert np.abs(share - 0.2).max() < 4 * 0.4 / np.sqrt(6000)
    which = same.double().argmax(-1)
    torch.testing.assert_close(s.target, s.prompt.y.gather(1, which[:, :, None]))


def test_repeated_queries_draw_their_noise_anew():
    s = draw(RepeatedQuery(LinearRegression(d=3, n=1, noise=1.0)), 4000)
    apart = (s.target - s.prompt.y).std().item()
    assert apart == pytest.approx(2**0.5, rel=0.05)


def test_quadrants_keep_examples_in_one_random_orthant_and_queries_anywhere():
    plain, s = draw(TASK, 500), draw(Quadrants(TASK), 500)
    signs = s.prompt.x.sign()
    assert torch.equal(signs, signs[:, :1].expand_as(signs))
    assert torch.equal(s.prompt.x.abs(), plain.prompt.x.abs())
    assert torch.equal(s.prompt.queries, plain.prompt.queries)
    assert signs[:, 0].mean(0).abs().max() < 4 / 500**0.5
    torch.testing.assert_close(s.prompt.y, s.prompt.x @ s.truth.latent.w)


def test_shifts_of_shifts_apply_both():
    task = OrthogonalQuery(ScaledInputs(HalfSubspace(LinearRegression(d=8, n=3)), scale=2.0))
    s = draw(ScaledLabels(task, scale=3.0), 100)
    points = torch.cat([s.prompt.x, s.prompt.queries], 1)
    assert (np.linalg.matrix_rank(points.numpy()) == 4).all()
    assert (s.prompt.queries @ s.prompt.x.mT).abs().max() < 1e-12
    assert points.square().sum(-1).mean().item() == pytest.approx(4 * 8, rel=0.15)
    torch.testing.assert_close(s.target, 3 * s.prompt.queries @ s.truth.latent.w)


def test_more_points_of_a_shifted_task_can_be_drawn_for_the_same_functions():
    for task in (OrthogonalQuery(TASK), RepeatedQuery(TASK), Quadrants(TASK), ScaledInputs(TASK, scale=2.0)):
        s, g = draw(task), torch.Generator().manual_seed(1)
        assert task.inputs(s.truth.latent, 30, g).shape == (50, 30, 8)
        assert task.inputs(s.truth.latent, 2, g).shape == (50, 2, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScaledInputs(Autoregression(), scale=2.0), "Autoregression"),
        (lambda: OtherNoise(LogisticRegression()), "OtherNoise needs real labels; those of LogisticRegression are not"),
        (lambda: ScaledLabels(Quadrants(LogisticRegression()), scale=2.0), "those of LogisticRegression are not"),
        (
            lambda: Quadrants(LinearRegression(dense=True)),
            "Quadrants treats queries apart .* LinearRegression has dense = True",
        ),
        (lambda: RepeatedQuery(LinearRegression(queries=0)), "RepeatedQuery .* queries = 0"),
        (lambda: OrthogonalQuery(RepeatedQuery(TASK)), "OrthogonalQuery .* no example has; RepeatedQuery leaves none"),
        (lambda: OrthogonalQuery(ScaledInputs(RepeatedQuery(TASK), scale=2.0)), "RepeatedQuery leaves none"),
    ],
)
def test_a_task_that_has_no_such_form_refuses_by_name(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScaledInputs(TASK, scale=0.0), "scale must be above 0; got 0.0"),
        (lambda: OtherNoise(TASK, noise=-1.0), "noise must be at least 0; got -1.0"),
        (lambda: OtherCovariance(TASK, covariance=Spectrum()), "eigenvalues must be d = 8 numbers; got 5"),
        (lambda: OrthogonalQuery(LinearRegression(d=8, n=8)), "n = 8 examples needs inputs of rank n . 1; got 8"),
        (lambda: OrthogonalQuery(HalfSubspace(TASK)), "n = 5 examples needs inputs of rank n . 1; got 4"),
        (lambda: HalfSubspace(OrthogonalQuery(TASK)), "n = 5 examples needs inputs of rank n . 1; got 4"),
        (lambda: OrthogonalQuery(LinearRegression(d=8, n=5, active=5)), "rank n . 1; got 5"),
        (lambda: RepeatedQuery(LinearRegression(n=0)), "RepeatedQuery needs n of at least 1 example; got 0"),
    ],
)
def test_bad_shifts_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Oracles


@pytest.mark.parametrize(
    "task",
    [
        LinearRegression(d=4, n=6, k=2),
        LinearRegression(d=4, n=6, covariance=HalfAndHalf()),
        LinearRegression(d=5, n=7, covariance=Spectrum().fixed(5, torch.Generator().manual_seed(0)), prior="inverse"),
        Quadratic(d=4, n=6),
        Representation(d=4, n=12, k=2),
        Autoregression(d=3, n=30, noise=0.0, scale=3.0),
        ChainOfThought(d=4, n=12, known=3),
        ChainOfThought(d=4, n=12, dense=True, per_prompt=False),
        ChainOfThought(d=4, n=0, known=2, per_prompt=False),
        ScaledLabels(Quadratic(d=4, n=6), scale=3.0),
        OtherNoise(LinearRegression(d=4, n=6, noise=1.0), noise=0.0),
        RepeatedQuery(LinearRegression(d=8, n=3)),
    ],
    ids=lambda task: type(task).__name__,
)
def test_without_noise_the_oracle_is_the_truth(task):
    s = draw(task, 20)
    torch.testing.assert_close(task.oracle.predict(s.prompt), s.truth.clean, rtol=1e-7, atol=1e-7)


def bayes(x, y, queries, features, prior, noise):
    """E[f(query) | pairs] of the Gaussian process f(x) = w'features(x), w ~ N(0, prior), by its kernel."""
    phi, star = features(x), features(queries)
    kernel = phi @ prior @ phi.T + noise**2 * np.eye(len(x))
    return star @ prior @ phi.T @ np.linalg.solve(kernel, y)


SIGMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]], dtype=torch.float64)
CASES = {
    "linear": (LinearRegression(d=3, n=2, k=2, noise=0.5), np.eye(3), 0.5),
    "inverse and isotropic": (LinearRegression(d=3, n=2, noise=0.5, prior="inverse"), np.eye(3), 0.5),
    "inverse": (
        LinearRegression(d=3, n=2, noise=0.5, covariance=Given(matrix=SIGMA), prior="inverse"),
        np.linalg.inv(SIGMA.numpy()),
        0.5,
    ),
    "inverse without noise": (
        LinearRegression(d=3, n=2, covariance=Given(matrix=SIGMA), prior="inverse"),
        np.linalg.inv(SIGMA.numpy()),
        0.0,
    ),
    "quadratic": (Quadratic(d=3, n=5, noise=0.5), np.eye(3) / 3, 0.5),
    "representation": (Representation(d=3, n=5, k=2, noise=0.5, scale=2.0), np.eye(3) * 4 / 3, 0.5),
    "scaled labels": (ScaledLabels(LinearRegression(d=3, noise=0.5), scale=3.0), 9 * np.eye(3), 0.5),
    "other noise": (OtherNoise(ScaledLabels(Quadratic(d=3), scale=3.0), noise=2.0), 3 * np.eye(3), 2.0),
    "quadrants": (Quadrants(ScaledInputs(LinearRegression(d=3, noise=0.5), scale=2.0)), np.eye(3), 0.5),
}


@pytest.mark.parametrize(("task", "prior", "noise"), CASES.values(), ids=CASES)
def test_the_oracle_is_the_posterior_mean(task, prior, noise):
    s = draw(task, 4)
    features = {"quadratic": np.square, "other noise": np.square}.get(
        next(name for name, case in CASES.items() if case[0] is task), lambda x: x
    )
    if isinstance(task, Representation):
        features = lambda x: task.phi(torch.from_numpy(x)).numpy()  # noqa: E731
    answer = task.oracle.predict(s.prompt)
    for b in range(4):
        x, y, queries = (v[b].numpy() for v in (s.prompt.x, s.prompt.y, s.prompt.queries))
        np.testing.assert_allclose(answer[b], bayes(x, y, queries, features, prior, noise), rtol=1e-8, atol=1e-10)


def test_the_oracle_of_a_series_is_the_posterior_mean_over_its_windows():
    task = Autoregression(d=3, n=9, q=2, noise=0.5, scale=0.8)
    s = draw(task, 4)
    answer = task.oracle.predict(s.prompt)
    features = lambda x: task.phi(torch.from_numpy(x)).numpy()  # noqa: E731
    for x, got in zip(s.prompt.x.numpy(), answer.numpy(), strict=True):
        windows = np.array([[*x[t - 2], *x[t - 1]] for t in range(2, 10)])
        wanted = bayes(windows[:-1], x[2:], windows[-1:], features, np.eye(3) * 0.8**2 / 3, 0.5)
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("n", "known"), [(0, 1), (2, 1), (3, 2)])
def test_the_oracle_of_a_chain_is_the_mean_over_the_networks_that_its_links_allow(n, known):
    task = ChainOfThought(d=5, n=n, layers=2, known=known, slope=0.2)
    s = draw(task, 3)
    answer, rng = task.oracle.predict(s.prompt), np.random.default_rng(0)
    for b in range(3):
        seen, query = s.prompt.chains[b, :, known - 1 : known + 1].numpy(), s.prompt.partial[b, -1].numpy()
        before, after = seen[:, 0], np.where(seen[:, 1] < 0, seen[:, 1] / 0.2, seen[:, 1])
        free = scipy.linalg.null_space(before) if n else np.eye(5)
        weights = np.linalg.pinv(before) @ after + free @ rng.normal(0, task.gain, (50_000, free.shape[1], 5))
        z = query @ weights
        states = np.where(z < 0, 0.2 * z, z)
        off = (answer[b, 0].numpy() - states.mean(0)) / (states.std(0) / 50_000**0.5)
        assert np.abs(off).max() < 4.5


def test_the_oracle_of_a_chain_answers_states_of_0_with_0():
    none = Chains(torch.zeros(2, 3, 4, 2), torch.zeros(2, 1, 2))
    assert ChainOfThought(d=2, layers=3).oracle.predict(none).eq(0).all()


def test_the_oracle_of_a_chain_knows_what_no_chain_was_needed_for():
    task = ChainOfThought(d=4, n=0, slope=0.2)
    s = draw(task)
    mean = 0.8 * task.gain * s.prompt.partial[:, -1:].norm(dim=-1, keepdim=True) / (2 * np.pi) ** 0.5
    torch.testing.assert_close(task.oracle.predict(s.prompt), mean.expand(-1, 1, 4), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_oracle_of_every_state_is_that_of_each_partial_chain(dtype):
    s = ChainOfThought(d=4, n=6, layers=3, dense=True).sample(5, torch.Generator().manual_seed(0), dtype)
    oracle = ChainOfThought(d=4, n=6, layers=3).oracle
    every, chains = oracle.predict(s.prompt).reshape(5, 7, 3, 4), s.prompt.chains
    for i in range(7):
        for layer in range(3):
            part = oracle.predict(type(s.prompt)(chains[:, :i], chains[:, i, : layer + 1]))
            close = {torch.float32: 5e-4, torch.float64: 1e-12}[dtype]  # some links are almost dependent
            torch.testing.assert_close(every[:, i, layer], part[:, 0], rtol=0, atol=close)


def test_a_fixed_covariance_and_its_inverse_prior_make_ridge_in_that_metric():
    task = LinearRegression(d=3, noise=0.5, covariance=Given(matrix=SIGMA), prior="inverse")
    s = draw(task)
    x, y = s.prompt.x, s.prompt.y
    w = torch.linalg.solve(x.mT @ x + 0.25 * SIGMA, x.mT @ y)  # argmin |Xw - y|^2 + noise^2 w'Sigma w
    torch.testing.assert_close(task.oracle.predict(s.prompt), s.prompt.queries @ w)


@pytest.mark.parametrize(
    ("task", "others"),
    [
        (
            LinearRegression(d=5, n=8, noise=1.0),
            [LeastSquares(), Ridge(strength=4.0), Ridge(strength=0.25), Averaging()],
        ),
        (LinearRegression(d=5, n=8, noise=1.0), [GradientDescent(steps=3)]),
        (
            LinearRegression(d=5, n=8, noise=1.0, covariance=Spectrum().fixed(5, torch.Generator()), prior="inverse"),
            [LeastSquares(), Ridge(strength=1.0)],
        ),
        (Representation(d=5, n=8, noise=1.0), [LeastSquares(), Ridge(strength=5.0)]),
        (Quadratic(d=5, n=8, noise=1.0), [LeastSquares(), On(Ridge(strength=1.0), Features(torch.square))]),
        (
            Autoregression(d=4, n=20, scale=0.5),
            [On(LeastSquares(), Windows(q=3)), On(Ridge(), Windows(q=3))],
        ),
        (ChainOfThought(d=5, n=2), [On(LeastSquares(), Links(slope=0.01))]),
        (ScaledLabels(LinearRegression(d=5, n=8, noise=1.0), scale=0.3), [LeastSquares(), Ridge(strength=1.0)]),
        (OtherNoise(LinearRegression(d=5, n=8), noise=2.0), [LeastSquares(), Ridge(strength=1.0)]),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, list) else "",
)
def test_the_oracle_beats_the_others(task, others):
    s = draw(task, 4_000 if isinstance(task, Autoregression) else 20_000)
    best = error(task.oracle, s)
    for other in others:
        assert best < error(other, s)


def test_where_no_predictor_is_known_to_be_best_there_is_no_oracle():
    tasks = [SparseLinear(), DecisionTree(), ReluNetwork(), LogisticRegression(), Quadrants(DecisionTree())]
    tasks.append(LinearRegression(d=5, covariance=Spectrum(), prior="inverse"))
    tasks.append(ScaledLabels(SparseLinear(), scale=2.0))
    assert [task.oracle for task in tasks] == [None] * len(tasks)


CHAINS = ChainOfThought(d=3, n=4, layers=3, known=2, per_prompt=False)


@pytest.mark.parametrize(
    "law",
    laws(
        CHAINS.oracle,
        prompt=lambda g, t: CHAINS.sample(3, g, t).prompt,
        without=["autograd_flows_or_is_refused_by_name"],
    ),
    ids=str,
)
def test_the_network_of_all_chains_keeps_the_contract(law):
    law()


def test_the_network_of_all_chains_refuses_chains_of_another_length():
    with pytest.raises(ValueError, match="a chain must have 4 states; got 7"):
        CHAINS.oracle.predict(draw(ChainOfThought(d=3)).prompt)


def test_subspaces_are_refused_as_given_inverse():
    sigma = Subspace().fixed(4, torch.Generator().manual_seed(0))
    assert LinearRegression(d=4, covariance=sigma).rank == 2
    with pytest.raises(ValueError, match="needs a Sigma of rank d = 4; got rank 2"):
        LinearRegression(d=4, covariance=sigma, prior="inverse")
