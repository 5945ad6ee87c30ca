"""How batches come to GPUs, on stand-ins for two of them: ahead of their steps, with the same results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import gpu_input
from tests.support.fakegpu import FakeGpu

pytest_plugins = ("tests.support.fakegpu.fixture",)


@pytest.fixture(scope="module")
def told(fakegpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that trains on GPUs has found; it does so once for all tests here."""
    return gpu_input.told(fakegpu, tmp_path_factory.mktemp("trained"))


def test_batches_that_wait_on_the_gpu_are_the_same_batches_also_of_a_resumed_training(told: dict[str, Any]) -> None:
    for name, (without, ahead) in told["prefetching"].items():
        assert ahead[2:] == pytest.approx(without[2:], rel=1e-6), name
