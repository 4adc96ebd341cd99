"""Shapes on public signatures are executed in the tests; every test gets its own seeded generator."""

import os

import jaxtyping

jaxtyping.install_import_hook("algoformer", "executed_shapes.checked")

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
