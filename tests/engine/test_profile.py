"""What is read from a recorded profile."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import ProfileError, ProfileReport, Run, reports, typed

# ---- XProf's tables of a GPU, in the form of its 2.24; the figures are made up -----------------

STEPS = ("deviceComputeTimeMs", "deviceToDeviceTimeMs", "deviceCollectivesTimeMs", "hostComputeTimeMs",
         "kernelLaunchTimeMs", "infeedTimeMs", "outfeedTimeMs", "compileTimeMs", "otherTimeMs")  # fmt: skip


def step(number: int, *times: float) -> dict[str, Any]:
    told = {"stepnum": f"train {number}", "stepTimeMs": str(sum(times))}
    return told | {name: str(ms) for name, ms in zip(STEPS, times, strict=True)}


def stage(name: str, count: int, ms: float, category: str = "Preprocessing") -> dict[str, Any]:
    return {"opName": name, "count": float(count), "selfTimeInMs": ms, "category": category}


def operation(where: str, kind: str, name: str, us: float) -> dict[str, Any]:
    return {"host_or_device": where, "type": kind, "operation": name, "total_self_time": us}


def table(rows: list[dict[str, Any]], **properties: str) -> dict[str, Any]:
    return {"properties": properties, "rows": rows}


def tools(**others: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "overview_page": [table([], device_compute_16bit_percent="30.5%")],
        "input_pipeline_analyzer": [
            table([]),
            table([step(1, 5, 0, 1, 1, 1, 2, 0, 0, 0), step(2, 5, 1, 1, 0, 1, 1, 0, 0, 1)], hardware_type="GPU"),
            table(
                [
                    stage("Iterator::Root", 4, 9),
                    stage("Iterator::Root::Prefetch", 4, 90),
                    stage("Iterator::Root::Prefetch::FlatMap[0]::BatchV2::Map", 30, 11),
                    stage("Iterator::Root::Prefetch::FlatMap[1]::BatchV2::Map", 30, 13),
                    stage("Iterator::Root::Prefetch::FlatMap[1]::BatchV2::Map::TFRecord", 30, 4, "Demanded file read"),
                    stage("Iterator::Root::Prefetch::Map", 4, 20),
                    stage("Enqueue", 4, 2, "Enqueue"),
                ]
            ),
        ],
        "framework_op_stats": [
            table([operation("Host", "IDLE", "IDLE", 1000)]),
            table(
                [
                    operation("Host", "Dataset", "Iterator::Root", 900),
                    operation("Host", "Cast", "cast", 700),
                    operation("Device", "MatMul", "dense/MatMul", 300),
                    operation("Device", "Relu", "dense/Relu", 100),
                ]
            ),
        ],
        "kernel_stats": [table([{"kernel_name": "sgemm", "op_name": "dense/MatMul", "total_duration_us": 300.0}])],
        "memory": {
            "GPU_0_bfc": {"peakBytesUsageLifetime": "50", "peakStats": {"peakBytesInUse": "70"}},
            "gpu_host_bfc": {"peakBytesUsageLifetime": "900"},
        },
        "python": {"1": [10.0, 8.0], "2": [10.0, 6.0]},
    }
    return told | others


def reported(told: dict[str, Any], run: Run, **options: Any) -> ProfileReport:
    return reports._report(run, options, told)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_shares_of_a_gpus_step_are_xprofs(run: Run) -> None:
    report = reported(tools(), run)
    assert (report.device, report.steps, report.step_ms) == ("GPU", 2, 10.0)
    told = reports.Shares(
        input=0.15, compute=0.5, host=0.1, communication=0.1, copies=0.05, kernel_launch=0.1, output=0.0
    )
    assert report.shares == told
    assert report.compute_16bit == pytest.approx(0.305)
    assert report.peak_memory_bytes == 70


def test_a_profile_without_the_gpu_that_trained_says_which_right_is_missing(run: Run) -> None:
    analyzer = [table([step(1, 0, 0, 0, 7, 0, 2, 0, 0, 1)], hardware_type="CPU_ONLY")]
    told = tools(input_pipeline_analyzer=analyzer, framework_op_stats=[])
    started = {"t": 1.0, "type": "started", "run": run.id, "devices": ["/device:GPU:0"]}
    run.file("events.jsonl").write_text(json.dumps(started) + "\n")
    rights = r".*\nas root: .*NVreg_RestrictProfilingToAdminUsers=0.*--cap-add SYS_ADMIN"
    with pytest.raises(ProfileError, match="usually because the driver allows only administrators" + rights):
        reported(told, run)
    log = "I0000 00:00:17 1 x.cc:1] Profiler session started.\nE0000 00:00:17 1 cupti_tracer.cc:1] failed with error "
    run.file("engine.log").write_text(f"{log}CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\n")
    with pytest.raises(ProfileError, match="no data of the GPU: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" + rights):
        reported(told, run)
    assert reported(tools(), run).device == "GPU"


def test_layers_have_the_time_of_their_operations_by_the_names_that_the_run_recorded(run: Run) -> None:
    assert reported(tools(), run).layers is None  # as of a run before there was such a record
    run.file("profile").mkdir()
    names = {"net_1": "net", "net_1/dense_1": "dense", "net_1/dense_1_2": "dense_1", "net_1/block/dense": "block/dense"}
    run.file("profile").joinpath("layers.json").write_text(json.dumps(names))
    of_layers = [
        operation("Device", "MatMul", "replica_1/net_1/dense_1/MatMul", 300),
        operation("Device", "MatMul", "gradient_tape/net_1/dense_1/MatMul/MatMul_1", 100),
        operation("Device", "Relu", "net_1/dense_1_2/Relu", 200),
        operation("Device", "Mul", "net_1/block/dense/mul", 100),
        operation("Device", "Mul", "net_1/mul", 100),
        operation("Device", "Sqrt", "adam/Sqrt", 200),
    ]
    report = reported(tools(framework_op_stats=[table([]), table(of_layers)]), run)
    assert report.layers is not None
    assert [(layer.name, layer.forward_ms, layer.backward_ms, round(layer.share, 6)) for layer in report.layers] == [
        ("dense", 0.3, 0.1, 0.4), ("dense_1", 0.2, 0.0, 0.2), ("block/dense", 0.1, 0.0, 0.1), ("net", 0.1, 0.0, 0.1),
    ]  # fmt: skip
    text = "\n".join(reports.lines(report))
    assert re.search(r"40 % +0\.3 +0\.1  dense$", text, re.MULTILINE)
    assert re.search(r"20 % +outside of layers", text)
    assert typed.convert(json.loads(json.dumps(asdict(report))), ProfileReport) == report
    kernels = [{"kernel_name": "sgemm", "op_name": "net_1/dense_1/MatMul", "total_duration_us": 300.0}]
    told = tools(framework_op_stats=[table([])], kernel_stats=[table(kernels)])
    of_kernels = reported(told, run).layers
    assert of_kernels is not None
    assert [(layer.name, layer.share) for layer in of_kernels] == [("dense", 1.0)]
    compiled = reported(tools(), run)
    assert compiled.layers == ()
    assert "no operation has the name of a layer: with compile.xla=false they have" in reports.lines(compiled)
    run.file("profile").joinpath("layers.json").write_text("[1, 2")
    assert reported(tools(), run).layers is None


def test_the_slowest_stage_is_not_the_one_that_waits(run: Run) -> None:
    found = reported(tools(), run).slowest_stage
    assert found is not None  # without names from the run it is called as TensorFlow calls it
    assert (found.name, found.op, found.ms, found.ms_per_batch) == ("Map", "Map", 24.0, 6.0)
    told = reported(tools(), run).input_time
    assert told is not None
    assert (told.preprocessing_ms, told.reading_ms, told.transfer_ms, told.other_ms) == (44.0, 4.0, 2.0, 0)


def test_on_a_cpu_what_does_not_apply_is_unknown_and_not_0(run: Run) -> None:
    analyzer = [table([step(1, 0, 0, 0, 7, 0, 2, 0, 0, 1)], hardware_type="CPU_ONLY")]
    told = tools(input_pipeline_analyzer=analyzer, framework_op_stats=[])
    report = reported(told, run)
    assert report.shares == reports.Shares(input=0.2, compute=0.8 - 0.2, host=1 - 0.8)
    assert (report.compute_16bit, report.slowest_stage, report.input_time, report.operations) == (None, None, None, ())
    for python in ({}, {"1": [10.0, 0.0]}):
        assert reported(told | {"python": python}, run).shares == reports.Shares(input=0.2)
