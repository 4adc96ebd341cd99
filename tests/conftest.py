"""Shapes on public signatures are executed in the tests; every test gets its own seeded generator."""

import jaxtyping

jaxtyping.install_import_hook("algoformer", "executed_shapes.checked")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("steady", derandomize=True, deadline=None)  # the same in every run, however slow
settings.load_profile("steady")

torch.set_num_threads(1)  # the tests run one process a core


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
