"""What a model knows of phi: where it is asked, and what the numbers are held against."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from algoformer.analysis.probe import STRENGTHS
from algoformer.experiments import ours_represented
from algoformer.models import AlgoFormerConfig, LoopedConfig, TransformerConfig
from algoformer.tasks import Autoregression, LinearRegression, Representation
from algoformer.training import represented
from algoformer.training.codec import model_of

SIZES = {"features": 3, "labels": 3, "width": 16, "heads": 2}
SERIES = Autoregression(d=3, n=8, q=2, every=True)
PAIRS = Representation(d=3, n=8, k=3, dense=True)


@pytest.mark.parametrize("task", [SERIES, PAIRS])
def test_what_the_inputs_tell_of_phi_is_what_ridge_of_one_of_the_strengths_finds(task):
    rows = []
    for seed in (1, 2):
        x = task.sample(200, torch.Generator().manual_seed(seed)).prompt.x.numpy()
        if task is SERIES:  # [x_{t-1}, x_t] for every t but the last, whose next value is never asked
            x = np.concatenate([x[:, :-2], x[:, 1:-1]], 2)
        rows.append((x.reshape(-1, x.shape[2]), task.phi(torch.from_numpy(x)).numpy().reshape(-1, 3)))
    (x, phi), (other, truth) = rows
    ridges = [make_pipeline(StandardScaler(), Ridge(alpha=s * len(x))).fit(x, phi) for s in STRENGTHS]
    scores = [r2_score(truth, ridge.predict(other), multioutput="variance_weighted") for ridge in ridges]
    found = represented(model_of(AlgoFormerConfig(**SIZES, loops=2)), task, 200).inputs
    assert min(abs(found - score) for score in scores) < 1e-5 and found > max(scores) - 1e-3


@pytest.mark.parametrize("kind", [LoopedConfig, TransformerConfig])
@pytest.mark.parametrize(
    "task", [replace(SERIES, q=1, layers=1, slope=1.0), replace(PAIRS, layers=1, slope=1.0, dense=False)]
)
def test_a_linear_phi_of_one_input_is_all_there_in_the_embedding_of_its_token(kind, task):
    shape = kind(**SIZES, **({"loops": 2} if kind is LoopedConfig else {"layers": 2}))
    found = represented(model_of(shape, torch.Generator().manual_seed(0)), task, 64)
    assert found.inputs == pytest.approx(1, abs=1e-6)
    assert found.model[0] > 0.999  # at the token before, or behind, it would be 0
    assert len(found.model) == len(found.untrained) == 3


def test_an_untrained_model_is_its_own_control():
    model = model_of(AlgoFormerConfig(**SIZES, loops=2, injection=False), torch.Generator().manual_seed(0))
    found = represented(model, SERIES, 32, steps=1)
    assert found.model == pytest.approx(found.untrained) and len(found.model) == 2


def test_a_task_without_a_representation_is_refused():
    model = model_of(AlgoFormerConfig(**SIZES, loops=2))
    with pytest.raises(TypeError, match="must have a representation phi; got LinearRegression"):
        represented(model, LinearRegression(d=3, n=8))
    with pytest.raises(ValueError, match="prompts must be"):
        represented(model, SERIES, 0)


def test_the_claims_ask_what_pre_knows_and_whether_knowing_is_erring_less():
    lines = {"AlgoFormer": [0.8, 0.9], "looped": [0.2, 0.7], "standard": [0.2, 0.95]}
    result = ours_represented.Result(
        inputs={"a": 0.5, "b": 0.85},
        passed={"AlgoFormer": [1, 2], "looped": [0, 1], "standard": [0, 1]},
        model={"a": lines, "b": lines},
        untrained={"a": lines, "b": lines},
        above={
            "a": {"AlgoFormer": 2e-3, "looped": 3e-3, "standard": 1e-3},
            "b": {"AlgoFormer": 3e-3, "looped": 2e-3, "standard": 1e-3},
        },
    )
    found = [claim.measured for claim in ours_represented.claims(result)]
    assert found == pytest.approx([0.3, 0.8 / 0.9, 1.0, -0.05, 0.8 / 0.9, 2 / 3])
