"""The event that says what has been built and where it trains."""

from __future__ import annotations

from gputui.engine.telemetry.machine import Gpu

from tests.support.training import Build


def test_a_training_tells_its_gpus_in_tensorflows_order(build: Build) -> None:
    from gputui.engine.trainer import session
    from gputui.engine.trainer.assembly import Training

    training = build("workload.model=mlp")
    gpus = [Gpu(index, uuid, "A GPU", (9, 0), 80 * 1024**3) for index, uuid in ((3, "GPU-b"), (1, "GPU-a"), (2, None))]
    training.loop.built.report.gpus = {"GPU-a", "GPU-b"}
    loop = training.loop
    session._announce(Training(loop, gpus, {}, 0), loop.built.report, None)
    (started,) = training.events("started")
    assert started["gpus"] == ["GPU-b", "GPU-a", "2"]
