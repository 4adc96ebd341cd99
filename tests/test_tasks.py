"""Tasks against numpy: moments, covariances, functions point by point, reproducibility, bad input."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from algoformer import Chains, Dense, Prompt, Series
from algoformer.tasks import (
    Autoregression,
    ChainOfThought,
    Conditioned,
    DecisionTree,
    Given,
    HalfAndHalf,
    HalfSubspace,
    Isotropic,
    LeakyNetwork,
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
    TanhNetwork,
    leaky,
    unleaky,
)

SIGMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]], dtype=torch.float64)
SMALL = LinearRegression(d=6, n=4, queries=2)

TASKS = {
    "linear": LinearRegression(d=4, n=7, queries=2, k=3, noise=0.3),
    "dense": LinearRegression(d=4, n=7, dense=True, active=3),
    "given": LinearRegression(d=3, n=5, covariance=Given(matrix=SIGMA), prior="inverse"),
    "conditioned": LinearRegression(d=4, n=5, covariance=Conditioned(kappa=10.0)),
    "half and half": LinearRegression(d=4, n=5, covariance=HalfAndHalf(shared=True)),
    "spectrum": LinearRegression(d=5, n=5, covariance=Spectrum(), prior="inverse"),
    "logistic": LogisticRegression(link="bernoulli", bounded=True),
    "sparse": SparseLinear(d=6, n=5),
    "tree": DecisionTree(d=6, n=5, noise=0.1),
    "relu": ReluNetwork(d=6, n=5),
    "tanh": TanhNetwork(d=6, n=5),
    "quadratic": Quadratic(d=6, n=5, noise=0.1),
    "representation": Representation(d=4, n=6, k=2, noise=0.1),
    "autoregression": Autoregression(d=3, n=8),
    "every": Autoregression(d=3, n=8, every=True),
    "chains": ChainOfThought(d=4, n=6, known=2),
    "one network": ChainOfThought(d=4, n=6, per_prompt=False),
    "every state": ChainOfThought(d=4, n=6, dense=True),
    "scaled inputs": ScaledInputs(SMALL, scale=2.0),
    "scaled labels": ScaledLabels(SMALL, scale=2.0),
    "other noise": OtherNoise(SMALL),
    "other covariance": OtherCovariance(SMALL, covariance=HalfAndHalf()),
    "half subspace": HalfSubspace(SMALL),
    "orthogonal": OrthogonalQuery(SMALL),
    "repeated": RepeatedQuery(SMALL),
    "quadrants": Quadrants(SMALL),
    "three shifts": Quadrants(ScaledInputs(OtherNoise(Quadratic(d=6)), scale=0.5)),
}
each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tensors(sample):
    """Every tensor of a sample, the latent's included, in a fixed order."""

    def walk(value):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple):
            for part in value:
                yield from walk(part)
        elif hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                yield from walk(getattr(value, name, None))

    return [*walk(sample)]


@each_task
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_is_a_function_of_the_generator_in_either_dtype(task, dtype):
    first, again, other = (task.sample(3, generator(seed), dtype) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(again), strict=True))
    assert not torch.equal(first.target, other.target)
    assert first.target.shape == first.prompt.asked == first.truth.clean.shape
    floats = [v for v in tensors(first) if v.is_floating_point()]
    assert {v.dtype for v in floats} == {dtype}
    assert all(bool(v.isfinite().all()) for v in floats)


@each_task
def test_copies_and_pickles_draw_the_same_and_samples_leave_the_global_generator_alone(task):
    before = torch.random.get_rng_state()
    wanted = task.sample(3, generator())
    for twin in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert torch.equal(twin.sample(3, generator()).target, wanted.target)
    if task.oracle is not None:
        twin = pickle.loads(pickle.dumps(task.oracle))
        assert torch.equal(twin.predict(wanted.prompt), task.oracle.predict(wanted.prompt))
    assert torch.equal(torch.random.get_rng_state(), before)


@each_task
def test_prompts_of_a_batch_differ(task):
    target = task.sample(8, generator()).target.flatten(1)
    if target.abs().unique().numel() > 1:  # labels -1 and +1 may agree
        assert len(target.unique(dim=0)) == 8


@pytest.mark.parametrize(
    ("plain", "dense"),
    [
        (LinearRegression(d=3, n=5, noise=0.1), LinearRegression(d=3, n=5, noise=0.1, dense=True)),
        (Autoregression(d=3, n=5), Autoregression(d=3, n=5, every=True)),
        (ChainOfThought(d=3, n=5, known=6), ChainOfThought(d=3, n=5, dense=True)),
    ],
)
def test_a_dense_prompt_is_the_same_draw_asked_everywhere(plain, dense):
    a, b = plain.sample(2, generator()), dense.sample(2, generator())
    assert torch.equal(a.target, b.target[:, -1:])
    assert torch.equal(a.truth.clean, b.truth.clean[:, -1:])
    match a.prompt, b.prompt:
        case Prompt() as p, Dense() as q:
            assert torch.equal(torch.cat([p.x, p.queries], 1), q.x)
            assert torch.equal(torch.cat([p.y, a.target], 1), q.y)
        case Series() as p, Series() as q:
            assert torch.equal(torch.cat([p.x, a.target], 1), q.x)
        case Chains() as p, Chains() as q:
            last = torch.cat([p.partial, a.target], 1)
            assert torch.equal(torch.cat([p.chains, last[:, None]], 1), q.chains)


def test_dense_targets_are_all_labels_and_noise_is_in_the_target_alone():
    task = LinearRegression(d=3, n=200, queries=50, noise=0.5, dense=True)
    s = task.sample(400, generator(), torch.float64)
    assert torch.equal(s.target, s.prompt.y)
    np.testing.assert_allclose(s.truth.clean, s.prompt.x.numpy() @ s.truth.latent.w.numpy(), rtol=1e-12, atol=1e-12)
    noise = (s.target - s.truth.clean).numpy()
    assert abs(noise.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 4 * 0.5 / np.sqrt(noise.size)


# Covariances


@pytest.mark.parametrize(
    "covariance",
    [
        Isotropic(),
        Given(matrix=SIGMA),
        Conditioned(kappa=20.0),
        HalfAndHalf(condition=9.0),
        Subspace(dimension=2),
        Spectrum(eigenvalues=(3.0, 1.0, 0.1)),
    ],
    ids=lambda c: type(c).__name__,
)
def test_inputs_have_the_covariance_that_the_latent_names(covariance):
    count = 20_000
    s = LinearRegression(d=3, n=count, covariance=covariance).sample(4, generator(), torch.float64)
    for x, sigma in zip(s.prompt.x.numpy(), s.truth.latent.covariance.matrix.numpy(), strict=True):
        error = np.sqrt((np.outer(np.diag(sigma), np.diag(sigma)) + sigma**2) / count)
        assert (np.abs(x.T @ x / count - sigma) <= 5 * error + 1e-12).all()
        assert (np.abs(x.mean(0)) <= 5 * np.sqrt(np.diag(sigma) / count) + 1e-12).all()


def drawn(covariance, d, batch=2000):
    return np.linalg.eigvalsh(covariance.draw(batch, d, generator(), torch.float64).matrix.numpy())


@pytest.mark.parametrize(
    "covariance",
    [
        Isotropic(),
        Given(matrix=torch.diag(torch.tensor([2.0, 0.0, 1.0, 1e-9]))),
        Conditioned(),
        HalfAndHalf(),
        Subspace(),
        Subspace(dimension=3),
        Spectrum(eigenvalues=(3.0, 0.0, 0.1, 0.0)),
    ],
    ids=str,
)
def test_the_rank_of_a_covariance_is_numpys_of_what_is_drawn(covariance):
    sigma = covariance.draw(3, 4, generator(), torch.float64).matrix.numpy()
    assert np.linalg.matrix_rank(sigma, hermitian=True).tolist() == [covariance.rank(4)] * 3


def test_a_given_covariance_is_itself_on_every_prompt():
    matrices = Given(matrix=SIGMA).draw(3, 3, generator(), torch.float64).matrix
    np.testing.assert_allclose(matrices, SIGMA.expand(3, 3, 3), atol=1e-15)


def test_conditioned_covariances_have_giannous_spectrum():
    kappa, d = 20.0, 6
    values = drawn(Conditioned(kappa=kappa), d)
    np.testing.assert_allclose(values[:, -1] / values[:, 0], kappa, rtol=1e-10)
    top = values[:, -1]
    assert top.min() >= 1
    assert top.max() <= 100
    assert abs(top.mean() - 50.5) < 4 * 99 / np.sqrt(12 * len(top))  # U[1, 100]
    share = (values[:, 1:-1] / top[:, None] - 1 / kappa) / (1 - 1 / kappa)  # the rest: U[0, 1] of the way
    assert abs(share.mean() - 0.5) < 4 / np.sqrt(12 * share.size)
    assert abs(share.std() - 12**-0.5) < 0.01


def test_half_and_half_is_100_to_1_with_trace_d_and_a_half_subspace_has_half_the_rank():
    np.testing.assert_allclose(drawn(HalfAndHalf(), 4, 5), np.tile([2 / 101, 2 / 101, 200 / 101, 200 / 101], (5, 1)))
    np.testing.assert_allclose(drawn(Subspace(), 4, 5), np.tile([0.0, 0.0, 2.0, 2.0], (5, 1)), atol=1e-14)


def test_the_default_spectrum_is_ahns_of_condition_16():
    values = drawn(Spectrum(), 5, 3)
    np.testing.assert_allclose(values, np.tile([0.0625, 0.25, 1, 1, 1], (3, 1)), rtol=1e-12)


@pytest.mark.parametrize("kind", [Conditioned, HalfAndHalf, Spectrum, Subspace])
def test_a_random_covariance_is_drawn_for_each_prompt_or_shared_by_the_batch(kind):
    for shared in (False, True):
        matrices = kind(shared=shared).draw(4, 5, generator(), torch.float64).matrix
        assert (len(matrices.unique(dim=0)) == 1) == shared
        assert torch.equal(matrices[0], matrices[3]) == shared


def test_random_bases_are_uniform_over_the_orthogonal_group():
    """Under Haar measure E q_ij = 0, E q_ij^2 = 1/d, E q_ij^4 = 3/(d (d+2)), and det is +1 as often as -1."""
    d, count = 4, 20_000
    q = HalfAndHalf().draw(count, d, generator(), torch.float64).basis.numpy()
    np.testing.assert_allclose(q @ q.transpose(0, 2, 1), np.tile(np.eye(d), (count, 1, 1)), atol=1e-13)
    for power, wanted in ((1, 0.0), (2, 1 / d), (3, 0.0), (4, 3 / (d * (d + 2)))):
        assert np.abs((q**power).mean(0) - wanted).max() < 4.5 * (q**power).std() / np.sqrt(count)
    assert abs((np.linalg.det(q) > 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(count)


@pytest.mark.parametrize("d", [1, 5])
def test_a_basis_is_orthogonal_where_the_generator_draws_an_exact_zero(monkeypatch, d):
    """A GPU draws one in 2^25 normal numbers as 0; of the last dimension's vector it is the only entry."""
    draw = torch.randn

    def with_zero(*size, **how):
        out = draw(*size, **how)
        out[:, -1, -1] = 0
        return out

    monkeypatch.setattr(torch, "randn", with_zero)
    q = HalfAndHalf().draw(3, d, generator(), torch.float64).basis
    np.testing.assert_allclose(q @ q.mT, np.tile(np.eye(d), (3, 1, 1)), atol=1e-14)


def test_one_draw_can_be_kept_for_good():
    kept = Spectrum().fixed(5, generator(3))
    assert isinstance(kept, Given)
    task = LinearRegression(d=5, n=4, covariance=kept, prior="inverse")
    a, b = (task.sample(2, generator(seed)).truth.latent.covariance.matrix for seed in (0, 1))
    assert torch.equal(a, b)
    np.testing.assert_allclose(np.linalg.eigvalsh(kept.matrix.numpy()), [0.0625, 0.25, 1, 1, 1], rtol=1e-12)


# Functions


@pytest.mark.parametrize("prior", ["identity", "inverse"])
def test_linear_weights_have_their_prior(prior):
    task = LinearRegression(d=3, n=1, k=2, covariance=Given(matrix=SIGMA), prior=prior)
    w = task.sample(40_000, generator(), torch.float64).truth.latent.w.numpy()
    wanted = np.eye(3) if prior == "identity" else np.linalg.inv(SIGMA.numpy())
    error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / len(w))
    for column in (0, 1):
        assert (np.abs(w[:, :, column].T @ w[:, :, column] / len(w) - wanted) < 5 * error).all()
    assert (np.abs(w[:, :, 0].T @ w[:, :, 1] / len(w)) < 5 * error).all()


def test_inactive_coordinates_are_zero_and_the_function_is_the_same():
    s = LinearRegression(d=5, n=6, active=2).sample(3, generator(), torch.float64)
    assert bool((s.prompt.x[..., 2:] == 0).all())
    assert bool((s.prompt.queries[..., 2:] == 0).all())
    assert bool((s.prompt.x[..., :2] != 0).all())
    assert bool((s.truth.latent.w != 0).all())


def test_sparse_weights_have_three_nonzeros_on_uniformly_random_active_coordinates():
    s = SparseLinear(d=8, n=2, active=6).sample(6000, generator(), torch.float64)
    w = s.truth.latent.w.numpy()[:, :, 0]
    assert ((w != 0).sum(1) == 3).all()
    assert (w[:, 6:] == 0).all()
    assert np.abs((w[:, :6] != 0).mean(0) - 0.5).max() < 4 * 0.5 / np.sqrt(6000)
    assert abs(w[w != 0].std() - 1) < 4 / np.sqrt(2 * 18_000)
    np.testing.assert_allclose(s.target[:, 0, 0], (s.prompt.queries.numpy()[:, 0] * w).sum(1), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_decision_trees_are_walked_as_a_plain_loop_walks_them(depth):
    s = DecisionTree(d=5, n=9, depth=depth, dense=True, active=3).sample(6, generator(), torch.float64)  # others are 0
    for b in range(6):
        coordinates, leaves = s.truth.latent.coordinates[b].tolist(), s.truth.latent.leaves[b].tolist()
        for x, y in zip(s.prompt.x[b].tolist(), s.prompt.y[b, :, 0].tolist(), strict=True):
            node = 0
            for _ in range(depth):
                node = 2 * node + (2 if x[coordinates[node]] > 0 else 1)
            assert y == leaves[node - len(coordinates)]


def test_decision_trees_ask_for_all_coordinates_and_have_normal_leaves():
    s = DecisionTree(d=5, n=1).sample(4000, generator(), torch.float64)
    counts = np.bincount(s.truth.latent.coordinates.flatten().numpy(), minlength=5)
    assert np.abs(counts / counts.sum() - 0.2).max() < 4 * 0.4 / np.sqrt(counts.sum())
    leaves = s.truth.latent.leaves.numpy()
    assert leaves.shape == (4000, 16)
    assert abs(leaves.std() - 1) < 4 / np.sqrt(2 * leaves.size)


@pytest.mark.parametrize(("kind", "unit"), [(ReluNetwork, lambda z: np.maximum(z, 0)), (TanhNetwork, np.tanh)])
def test_two_layer_networks_are_their_formulas(kind, unit):
    s = kind(d=4, n=3, hidden=7).sample(5, generator(), torch.float64)
    hidden, out = (v.numpy() for v in (s.truth.latent.hidden, s.truth.latent.out))
    for b in range(5):
        units = unit(s.prompt.x[b].numpy() @ hidden[b])
        np.testing.assert_allclose(s.prompt.y[b], np.sqrt(2 / 7) * units @ out[b], rtol=1e-12, atol=1e-13)


def test_quadratics_are_their_formula():
    s = Quadratic(d=4, n=3).sample(5, generator(), torch.float64)
    for b in range(5):
        wanted = s.prompt.x[b].numpy() ** 2 @ s.truth.latent.w[b].numpy() / np.sqrt(3)
        np.testing.assert_allclose(s.prompt.y[b], wanted, rtol=1e-12, atol=1e-13)


def test_variances_of_the_labels_are_those_of_garg():
    """Var y = d for linear, 3 for sparse, 1 for trees, d for ReLU networks and for quadratics."""
    for task, wanted in ((LinearRegression(), 20), (SparseLinear(), 3), (DecisionTree(), 1)):
        assert task.sample(20_000, generator()).target.square().mean().item() == pytest.approx(wanted, rel=0.08)
    for task in (ReluNetwork(), Quadratic()):
        assert task.sample(20_000, generator()).target.square().mean().item() == pytest.approx(20, rel=0.08)
    # tanh: 2 E tanh(|w| z)^2, |w|^2 of chi square with 20 degrees of freedom
    z = np.random.default_rng(0).normal(size=(200_000, 21))
    wanted = 2 * np.mean(np.tanh(np.linalg.norm(z[:, 1:], axis=1) * z[:, 0]) ** 2)
    assert TanhNetwork().sample(20_000, generator()).target.square().mean().item() == pytest.approx(wanted, rel=0.08)


def test_logistic_labels_are_signs():
    s = LogisticRegression(n=30).sample(50, generator(), torch.float64)
    assert torch.equal(s.prompt.y, (s.prompt.x @ s.truth.latent.w).sign())
    assert torch.equal(s.target, s.truth.clean)
    nothing = s.truth.latent._replace(w=torch.zeros_like(s.truth.latent.w))
    assert LogisticRegression().labels(nothing, s.prompt.x).eq(1).all()
    assert LogisticRegression().oracle is None


def test_bernoulli_labels_have_the_logistic_probability():
    s = LogisticRegression(link="bernoulli", n=400, dense=True).sample(400, generator(), torch.float64)
    chance = 1 / (1 + np.exp(-(s.prompt.x @ s.truth.latent.w).numpy()))
    positive = s.prompt.y.numpy() > 0
    assert set(np.unique(s.prompt.y)) == {-1.0, 1.0}
    assert torch.equal(s.truth.clean, (s.prompt.x @ s.truth.latent.w).sign())
    for low in np.arange(0, 1, 0.1):
        here = (chance >= low) & (chance < low + 0.1)
        assert abs(positive[here].mean() - chance[here].mean()) < 4.5 * 0.5 / np.sqrt(here.sum())


def test_bounded_rows_have_length_at_most_1_and_keep_their_direction_and_label():
    free, bounded = (LogisticRegression(bounded=b).sample(50, generator(), torch.float64) for b in (False, True))
    x, y = free.prompt.x.numpy(), bounded.prompt.x.numpy()
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    np.testing.assert_allclose(y, x / np.maximum(length, 1), rtol=1e-12)
    assert np.linalg.norm(y, axis=-1).max() <= 1 + 1e-15
    assert (length < 1).any()
    assert torch.equal(free.prompt.y, bounded.prompt.y)


# Networks


def reference(network, x):
    """The states of a network by loops over layers, units and inputs."""
    states = [list(x)]
    for w in network.weights:
        h = []
        for row in w.tolist():
            z = sum(a * b for a, b in zip(row, states[-1], strict=True))
            h.append(z if z >= 0 else network.slope * z)
        states.append(h)
    return states


def test_a_leaky_network_is_its_loop():
    network = LeakyNetwork.drawn((3, 5, 2), seed=1, slope=0.2)
    x = torch.randn(4, 6, 3, generator=generator(), dtype=torch.float64)
    out = network(x)
    assert out.shape == (4, 6, 2)
    for i in range(4):
        for j in range(6):
            wanted = reference(network, x[i, j].tolist())
            np.testing.assert_allclose(out[i, j], wanted[-1], rtol=1e-12, atol=1e-14)
            for state, w in zip(network.states(x), wanted, strict=True):
                np.testing.assert_allclose(state[i, j], w, rtol=1e-12, atol=1e-14)


def test_a_leaky_network_follows_dtype_seed_and_pickle():
    network = LeakyNetwork.drawn((3, 4, 3), seed=1)
    x = torch.randn(5, 3, generator=generator())
    assert network(x).dtype == torch.float32
    torch.testing.assert_close(network(x), network(x.double()).float())
    for twin in (LeakyNetwork.drawn((3, 4, 3), seed=1), copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(twin(x), network(x))
    assert not torch.equal(LeakyNetwork.drawn((3, 4, 3), seed=2)(x), network(x))


@given(st.floats(-1e6, 1e6).filter(lambda z: z == 0 or abs(z) > 1e-300), st.floats(1e-3, 2.0))
@settings(max_examples=50)
def test_unleaky_undoes_leaky(z, slope):
    v = torch.tensor([z], dtype=torch.float64)
    assert leaky(v, slope).item() == (z if z >= 0 else slope * z)
    torch.testing.assert_close(unleaky(leaky(v, slope), slope), v, rtol=1e-14, atol=0)


@pytest.mark.parametrize("seed", range(4))
def test_representations_have_mean_square_1_and_labels_variance_1(seed):
    task = Representation(seed=seed, n=0, queries=4)
    x = torch.randn(100_000, 20, generator=generator(9), dtype=torch.float64)
    for state in task.phi.states(x):
        assert state.square().mean().item() == pytest.approx(1, abs=0.02)
    y = task.sample(40_000, generator()).target
    assert y.var().item() == pytest.approx(1, abs=0.05)
    assert replace(task, scale=2.0, noise=1.0).sample(40_000, generator()).target.var().item() == pytest.approx(
        5, rel=0.05
    )


def test_representations_are_one_network_for_all_prompts_and_a_matrix_for_each():
    task = Representation(d=3, n=2, k=2, layers=2, width=4, slope=0.3, seed=5)
    s = task.sample(3, generator(), torch.float64)
    assert [tuple(w.shape) for w in task.phi.weights] == [(4, 3), (3, 4)]
    for b in range(3):
        for x, y in zip(s.prompt.x[b].tolist(), s.prompt.y[b], strict=True):
            phi = np.array(reference(task.phi, x)[-1])
            np.testing.assert_allclose(y, s.truth.latent.A[b].numpy() @ phi, rtol=1e-12, atol=1e-14)
    assert not torch.equal(s.truth.latent.A[0], s.truth.latent.A[1])


def test_a_series_follows_its_recursion():
    task = Autoregression(d=2, n=7, q=3, noise=0.0, every=True)
    s = task.sample(3, generator(), torch.float64)
    assert s.prompt.x.shape == (3, 8, 2)
    for b in range(3):
        x = s.prompt.x[b].tolist()
        for t in range(3, 8):
            phi = np.array(reference(task.phi, x[t - 3] + x[t - 2] + x[t - 1])[-1])
            np.testing.assert_allclose(x[t], s.truth.latent.A[b].numpy() @ phi, rtol=1e-12, atol=1e-14)
    assert torch.equal(s.truth.clean[:, 3:], s.target[:, 3:])
    assert not bool(s.truth.clean[:, :3].any())
    noise = Autoregression(every=True).sample(400, generator(), torch.float64)
    assert (noise.target - noise.truth.clean).std().item() == pytest.approx(1, abs=0.01)
    less = Autoregression(noise=0.3, every=True).sample(400, generator(), torch.float64)
    apart = (less.target - less.truth.clean).std((0, 2)).numpy()
    np.testing.assert_allclose(apart, [1.0] * 3 + [0.3] * 38, rtol=0.04)  # what a series begins with is no noise


@pytest.mark.parametrize(("n", "seed"), [(40, 0), (40, 1), (40, 2), (200, 0)])
def test_at_the_default_scale_the_quantile_of_a_series_is_that_of_the_page_of_tasks(n, seed):
    x = Autoregression(n=n, seed=seed).sample(1000, generator(seed)).prompt.x
    assert np.quantile(x.norm(dim=-1), 0.999) == pytest.approx(7.5, abs=0.3)


def test_the_scale_of_the_paper_explodes():
    x = Autoregression(scale=20**0.5).sample(20, generator(), torch.float64).prompt.x
    assert x[:, -1].norm(dim=-1).min() > 1e10


def test_chains_are_the_states_of_their_network():
    for task in (ChainOfThought(d=3, n=2, layers=4, dense=True), ChainOfThought(d=3, n=2, layers=4, per_prompt=False)):
        s = task.sample(3, generator(), torch.float64)
        for b in range(3):
            network = LeakyNetwork(weights=tuple(s.truth.latent.weights[b]), slope=task.slope)
            for chain in s.prompt.chains[b]:
                np.testing.assert_allclose(chain, reference(network, chain[0].tolist()), rtol=1e-12, atol=1e-14)
    assert (s.truth.latent.weights == s.truth.latent.weights[:1]).all()
    per_prompt = ChainOfThought(d=3, n=2).sample(3, generator()).truth.latent.weights
    assert not torch.equal(per_prompt[0], per_prompt[1])


def test_asked_states_are_the_next_of_the_partial_chain():
    whole = ChainOfThought(d=3, n=2, dense=True).sample(2, generator()).prompt.chains
    for known in (1, 3, 6):
        s = ChainOfThought(d=3, n=2, known=known).sample(2, generator())
        assert torch.equal(s.prompt.partial, whole[:, -1, :known])
        assert torch.equal(s.target[:, 0], whole[:, -1, known])


@pytest.mark.parametrize("per_prompt", [True, False])
def test_states_of_a_chain_stay_of_order_1(per_prompt):
    chains = ChainOfThought(per_prompt=per_prompt, dense=True).sample(500, generator()).prompt.chains
    squares = chains.square().mean((0, 1, 3))
    assert bool(((squares > 0.7) & (squares < 1.4)).all()), squares
    assert chains.abs().max() < 60


@pytest.mark.parametrize("slope", [0.01, 0.5, 1.0])
def test_the_gain_of_a_chain_keeps_the_mean_square_of_its_states(slope):
    z, weights = np.polynomial.hermite_e.hermegauss(60)  # an even rule: half of it where z < 0
    square = weights @ np.where(z < 0, slope * z, z) ** 2 / weights.sum()
    assert ChainOfThought(d=7, slope=slope).gain ** 2 * 7 * square == pytest.approx(1, rel=1e-12)


# Speed


def test_a_batch_of_64_takes_about_the_operations_of_one_prompt():
    class Counted(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    def operations(task, batch):
        with Counted() as counted:
            task.sample(batch, generator())
        return counted.count

    for task in (LinearRegression(d=5), DecisionTree(d=5), Autoregression(d=5), OrthogonalQuery(SMALL)):
        assert 0 < operations(task, 64) < 1.1 * operations(task, 1)


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearRegression(d=0), "d must be at least 1; got 0"),
        (lambda: LinearRegression(n=-1), "n must be at least 0; got -1"),
        (lambda: LinearRegression(k=0), "k must be at least 1; got 0"),
        (lambda: LinearRegression(queries=-1), "queries must be at least 0; got -1"),
        (lambda: LinearRegression(noise=-0.1), "noise must be at least 0; got -0.1"),
        (lambda: LinearRegression(noise=float("nan")), "noise must be finite and at least 0; got nan"),
        (lambda: LinearRegression(d=4, active=5), "active must be at most d = 4; got 5"),
        (lambda: LinearRegression(n=0, queries=0, dense=True), "a dense prompt must hold at least 1 pair"),
        (lambda: Conditioned(kappa=0.5), "kappa must be at least 1; got 0.5"),
        (lambda: HalfAndHalf(condition=0.5), "condition must be at least 1; got 0.5"),
        (lambda: Spectrum(eigenvalues=(1.0, -1.0)), "every eigenvalue must be at least 0; got -1.0"),
        (lambda: Spectrum(eigenvalues=(0.0,)), "eigenvalues must not all be 0"),
        (lambda: LinearRegression(covariance=Spectrum()), "eigenvalues must be d = 20 numbers; got 5"),
        (lambda: LinearRegression(covariance=Given(matrix=SIGMA)), r"must be \(d, d\) = \(20, 20\); got \(3, 3\)"),
        (
            lambda: LinearRegression(d=4, covariance=Subspace(), prior="inverse"),
            "needs a Sigma of rank d = 4; got rank 2",
        ),
        (lambda: LinearRegression(d=1, covariance=Subspace()), "a subspace must have 1 to d = 1 dimensions; got 0"),
        (
            lambda: Given(matrix=torch.tensor([[1.0, 0.5], [0.0, 1.0]])),
            "matrix must be symmetric; got entries 5.0e-01 apart",
        ),
        (
            lambda: Given(matrix=torch.tensor([[1.0, 2.0], [2.0, 1.0]])),
            "positive semidefinite, not 0; got an eigenvalue -1",
        ),
        (lambda: Given(matrix=torch.diag(torch.tensor([1.0, -1e-4]))), "not 0; got an eigenvalue -0.0001"),
        (lambda: Given(matrix=torch.full((1, 1), torch.nan)), "matrix must be finite"),
        (lambda: SparseLinear(d=2), "nonzeros must be at most the 2 active coordinates; got 3"),
        (lambda: DecisionTree(depth=-1), "depth must be at least 0; got -1"),
        (lambda: ReluNetwork(hidden=0), "hidden must be at least 1; got 0"),
        (lambda: Representation(layers=0), "layers must be at least 1; got 0"),
        (lambda: Representation(slope=0.0), "slope must be above 0; got 0.0"),
        (lambda: Representation(seed=-1), "seed must be at least 0; got -1"),
        (lambda: Autoregression(n=2), "n must be at least q = 3; got 2"),
        (lambda: Autoregression(scale=0.0), "scale must be above 0; got 0.0"),
        (lambda: ChainOfThought(known=7), "known must be at most layers = 6; got 7"),
        (lambda: LeakyNetwork(weights=()), "a network must have at least 1 layer"),
        (lambda: LeakyNetwork(weights=(torch.ones(2, 3), torch.ones(2, 3))), "weights must be matrices .* got .*2, 3"),
        (lambda: LeakyNetwork.drawn((3, 3), seed=0)(torch.ones(2, 4)), r"x must be \(..., 3\); got \(2, 4\)"),
        (lambda: SMALL.sample(0, generator()), "batch must be at least 1; got 0"),
        (
            lambda: SMALL.sample(1, generator(), torch.float16),
            "dtype must be torch.float32 or torch.float64; got torch.float16",
        ),
        (
            lambda: SMALL.sample(1, generator(), torch.int64),
            "dtype must be torch.float32 or torch.float64; got torch.int64",
        ),
        (lambda: ChainOfThought().network, "no network of its own"),
    ],
)
def test_bad_input_is_refused_by_what_must_be_and_what_came(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_wrong_types_are_refused_where_nothing_checks_annotations():
    """In the tests annotations are executed and refuse first; a user's program has only our own words."""
    program = """
import torch
from algoformer.tasks import *
for make in (
    lambda: LinearRegression(d=2.0),
    lambda: LinearRegression(noise="loud"),
    lambda: LinearRegression(covariance=torch.eye(20)),
    lambda: LinearRegression(prior="flat"),
    lambda: LogisticRegression(link="probit"),
    lambda: Given(matrix=[[1.0]]),
    lambda: LinearRegression().sample(2, 0),
    lambda: ScaledInputs(3, scale=2.0),
    lambda: Quadrants(ChainOfThought()),
):
    try:
        make()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "TypeError d must be an integer; got 2.0",
        "TypeError noise must be a number; got 'loud'",
        "TypeError covariance must be a Covariance; got Tensor",
        "ValueError prior must be one of 'identity', 'inverse'; got 'flat'",
        "ValueError link must be one of 'sign', 'bernoulli'; got 'probit'",
        "TypeError matrix must be a tensor of floating-point numbers; got list",
        "TypeError generator must be a torch.Generator; got int",
        "TypeError ScaledInputs shifts a task of pairs (x, y); got int",
        "TypeError Quadrants shifts a task of pairs (x, y); got ChainOfThought",
    ]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@each_task
def test_samples_live_on_the_generators_device(task):
    device = torch.device("cuda", torch.cuda.current_device())
    s = task.sample(3, torch.Generator(device).manual_seed(0))
    assert {v.device for v in tensors(s)} == {device}
    if task.oracle is not None:
        assert task.oracle.predict(s.prompt).device == device
