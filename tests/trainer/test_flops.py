"""The arithmetic of a step, and its share of the peak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine.job.machine_gpus import Gpu
from gputui.engine.runs import Run
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.telemetry import chips

from tests.support.training import Build, options


def chip(index: int, name: str = "NVIDIA H100 80GB HBM3") -> Gpu:
    return Gpu(index, f"GPU-{index}", name, (9, 0), 80 * 1024**3)


def test_products_are_counted_three_times_for_each_sample(build: Build) -> None:
    import keras
    from gputui.engine.trainer.measure import flops

    build("workload.model=mlp")
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(50, use_bias=False)])
    assert flops.per_step(model, 8) == 3 * 8 * 2 * 100 * 50
    image = keras.Sequential([keras.Input((8, 8, 4)), keras.layers.Conv2D(16, 3, padding="same", use_bias=False)])
    assert flops.per_step(image, 1) == 3 * 2 * (8 * 8 * 16) * (3 * 3 * 4)


def test_attention_is_counted_with_its_einsums(build: Build) -> None:
    import keras
    from gputui.engine.trainer.measure import flops

    build("workload.model=mlp")
    length, width, heads, size = 128, 64, 4, 16
    inputs = keras.Input((length, width))
    outputs = keras.layers.MultiHeadAttention(heads, size, dropout=0, use_bias=False)(inputs, inputs)
    # Query, key, value and the result are projected; each query meets each key, and each weight each value.
    projections = 4 * 2 * length * width * (heads * size)
    attention = 2 * 2 * heads * length * length * size
    softmax = 5 * heads * length * length  # as the profiler counts it
    scale = heads * length * length
    count = flops.per_step(keras.Model(inputs, outputs), 2)
    assert count == 3 * 2 * (projections + attention + softmax + scale)


@pytest.mark.parametrize(
    ("equation", "shapes", "count"),
    [
        ("ij,jk->ik", ((3, 4), (4, 5)), 2 * 3 * 4 * 5),
        ("...ij,...jk->...ik", ((7, 1, 3, 4), (2, 4, 5)), 2 * 7 * 2 * 3 * 4 * 5),
        ("...ij,...jk->...ik", ((7, 2, 3, 4), (1, 4, 5)), 2 * 7 * 2 * 3 * 4 * 5),
        ("ij,jk->ik", ((None, 4), (4, 5)), None),
        ("ij->ji", ((3, 4),), 0),
    ],
)
def test_an_einsum_multiplies_all_its_sizes(
    equation: str, shapes: tuple[tuple[int | None, ...], ...], count: int | None
) -> None:
    import tensorflow as tf
    from gputui.engine.trainer.measure import flops

    with tf.Graph().as_default() as graph:
        tf.einsum(equation, *(tf.compat.v1.placeholder(tf.float32, shape) for shape in shapes))
    (einsum,) = (op for op in graph.get_operations() if op.type == "Einsum")
    assert flops._einsum(einsum) == count


def test_a_product_of_unknown_size_leaves_no_figure(build: Build) -> None:
    import keras
    from gputui.engine.trainer.measure import flops

    build("workload.model=mlp")
    inputs = keras.Input((None, 16))
    outputs = keras.layers.MultiHeadAttention(2, 8, dropout=0)(inputs, inputs)
    assert flops.per_step(keras.Model(inputs, outputs), 8) is None


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_shipped_models_can_be_counted(build: Build, policy: str) -> None:
    from gputui.engine.trainer.measure import flops

    for name in ("mlp", "cnn", "transformer"):
        loop = build(f"workload.model={name}", f"precision.policy={policy}").loop
        count = flops.per_step(loop.built.model, 1)
        assert count is not None
        # A weight is used at least once for each sample, in a multiplication and an addition, in three passes.
        assert count > 3 * loop.built.model.count_params()


def test_what_runs_an_unknown_number_of_times_is_not_counted(build: Build) -> None:
    import keras
    from gputui.engine.trainer.measure import flops

    build("workload.model=mlp")
    model = keras.Sequential([keras.Input((12, 4)), keras.layers.LSTM(8, unroll=False), keras.layers.Dense(3)])
    assert flops.per_step(model, 8) is None


@pytest.mark.usefixtures("cpus")
def test_a_step_of_ones_own_or_a_model_that_cannot_be_called_leaves_no_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import keras
    from gputui.engine.trainer.measure import flops

    class Steps(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: object) -> dict[str, float]:
            return {}

    class Below(Steps):
        pass

    layers = [keras.Input((100,)), keras.layers.Dense(50)]
    assert flops.per_step(keras.Sequential(layers), 8)
    assert flops.per_step(Steps(layers), 8) is flops.per_step(Below(layers), 8) is None
    assert flops.per_step(keras.Sequential([keras.Input((4, 5)), keras.layers.Flatten()]), 8) is None, "no product"
    assert capsys.readouterr().err == ""

    def fail(*_: object, **_more: object) -> None:
        raise ValueError("not now")

    fails = keras.Sequential(layers)
    fails.call = fail
    assert flops.per_step(fails, 8) is None
    assert "not now" in capsys.readouterr().err


def test_the_peak_is_that_of_the_gpus_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputui.engine.trainer.measure import flops

    bfloat16 = options("precision.policy=mixed_bfloat16")
    assert flops.peak(bfloat16, [chip(0), chip(1)], 1) == 989.5e12
    assert flops.peak(bfloat16, [chip(0), chip(1)], 2) == 2 * 989.5e12
    assert flops.peak(options(), [chip(0)], 1) == 494.5e12
    assert flops.peak(options("precision.tf32=false"), [chip(0)], 1) == 67e12
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # cuBLAS and cuDNN then leave it off, whatever the option says
    assert flops.peak(options(), [chip(0)], 1) == 67e12
    assert flops.peak(bfloat16, [chip(0)], 1) == 989.5e12
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    assert flops.peak(options("logical_devices=2", "memory_growth=false"), [chip(0)], 2) == 494.5e12
    assert flops.peak(bfloat16, [chip(0), chip(1, "NVIDIA A100-SXM4-40GB")], 1) is None
    assert flops.peak(bfloat16, [chip(0, "unheard of")], 1) is None
    assert flops.peak(bfloat16, [], 1) is None
    assert flops.peak(bfloat16, [replace(chip(0), mig=True)], 1) is None
    assert flops.peak(bfloat16, [chip(0, "NVIDIA A40-48Q")], 1) is None


@pytest.mark.parametrize(
    ("name", "bfloat16", "tf32"),
    [
        ("NVIDIA GeForce RTX 3060", 25.4, 12.7),
        ("NVIDIA GeForce RTX 3080 Ti", 68.2, 34.1),
        ("NVIDIA GeForce RTX 4070 SUPER", 71.0, 35.5),
        ("NVIDIA GeForce RTX 4090", 165.2, 82.6),
        ("NVIDIA GeForce RTX 5090", 209.6, 104.8),
        ("NVIDIA RTX A6000", 154.8, 77.4),
        ("NVIDIA RTX 6000 Ada Generation", 364.2, 182.1),
        ("NVIDIA A10G", 70, 35),
        ("NVIDIA A10", 125, 62.5),
        ("NVIDIA A800-SXM4-80GB", 312, 156),
        ("NVIDIA H20", 148, 74),
        ("NVIDIA H200", 989.5, 494.5),
        ("NVIDIA B200", 2250, 1100),
        ("NVIDIA GB200", 2500, 1250),
        ("NVIDIA B300 SXM6 AC", 2250, 1125),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8, 251.9),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA GeForce RTX 4090 D", None, None),
    ],
)
def test_cards_are_known_by_their_whole_name(name: str, bfloat16: float | None, tf32: float | None) -> None:
    for number_format, teraflops in (("bfloat16", bfloat16), ("tf32", tf32)):
        found = chips.peak_flops(name, number_format)
        assert found == (None if teraflops is None else pytest.approx(teraflops * 1e12))


def test_the_share_of_the_peak_is_null_without_a_peak(tmp_path: Path) -> None:
    from gputui.engine.trainer.measure.run_report import RunReport

    run = Run(tmp_path)
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    assert report.speed.mfu(10.0) is None
    report.speed.samples_per_second_at_peak = 25.0
    assert report.speed.mfu(10.0) == 0.4
    assert report.speed.mfu(None) is None
    report.writer.close()
