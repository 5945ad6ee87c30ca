"""Whole reports of profiles, and what is said if there is none, word for word."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gputui.engine.profile import reports, xprof_process, xprof_tables
from gputui.engine.profile.layer_times import LayerTime, layer_times, scopes_of
from gputui.engine.profile.reports import ProfileError, ProfileReport, in_brief
from gputui.engine.profile.xprof_tables import InputStage, InputTime, Operation, Shares
from gputui.engine.runs import Run

from tests.engine.test_profile import operation, reported, stage, step, table, tools, without_profile

ASK = "--set run.profile=50-69 --set compile.steps_per_execution=1"


def rounded(report: ProfileReport) -> ProfileReport:
    operations = tuple(replace(each, share=round(each.share, 6)) for each in report.operations)
    return replace(report, operations=operations)


def test_the_whole_report_of_a_gpu(tmp_path: Path) -> None:
    assert (
        rounded(reported(tools(), Run(tmp_path)))
        == ProfileReport(
            path=tmp_path / "profile",
            device="GPU",
            steps=2,
            step_ms=10.0,
            shares=Shares(
                input=0.15, compute=0.5, host=0.1, communication=0.1, copies=0.05, kernel_launch=0.1, output=0.0
            ),
            compute_16bit=0.305,
            operations_on="GPU",
            operations=(Operation("dense/MatMul", "MatMul", 0.3, 0.75), Operation("dense/Relu", "Relu", 0.1, 0.25)),
            slowest_stage=InputStage("Map", "Map", 24.0, 24 / 50, 6.0),
            input_time=InputTime(44.0, 4.0, 2.0, 0.0),
            peak_memory_bytes=70,
            layers=None,
        )
        or pytest.approx(0.5) == 24 / 48
    )


def test_the_whole_report_of_a_cpu(tmp_path: Path) -> None:
    analyzer = [
        table([step(1, 0, 0, 0, 7, 0, 2, 0, 0, 1), step(2, 0, 0, 0, 0, 0, 0, 0, 0, 0)], hardware_type="CPU_ONLY"),
        table([stage("Iterator::Root", 4, 9), stage("Iterator::Root::Map", 4, 3),
               stage("Iterator::Root::Map::TFRecord", 4, 1, "Advanced file read"), stage("Other", 4, 1, "Odd")]),
    ]  # fmt: skip
    ops = [table([operation("Host", "Dataset", "Iterator", 900), operation("Host", "IDLE", "IDLE", 9),
                  *(operation("Host", "Op", f"o{number:02}", 100 - number) for number in range(12)),
                  operation("Host", "Op", "none", 0)])]  # fmt: skip
    memory = {"cpu": {"peakStats": {"peakBytesInUse": "30"}}, "gpu_host_bfc": {"peakBytesUsageLifetime": "40"}}
    found = reported(tools(input_pipeline_analyzer=analyzer, framework_op_stats=ops, memory=memory), Run(tmp_path))
    assert (found.device, found.steps, found.step_ms, found.operations_on) == ("CPU", 1, 10.0, "CPU")
    assert [each.name for each in found.operations] == [f"o{number:02}" for number in range(10)], "the longest ten"
    assert found.operations[0].share == pytest.approx(100 / sum(range(89, 101)))
    assert found.peak_memory_bytes == 40
    assert found.slowest_stage == InputStage("Map", "Map", 3.0, 3 / 5, 0.75)
    assert found.input_time == InputTime(3.0, 1.0, None, 1.0)
    python = {"1": [10.0, 0.0]}
    assert reported(tools(input_pipeline_analyzer=analyzer, python=python), Run(tmp_path)).shares == Shares(input=0.2)
    nothing = reported(tools(input_pipeline_analyzer=analyzer, memory={"cpu": {}}), Run(tmp_path))
    assert nothing.peak_memory_bytes is None


def test_parts_that_are_seldom_there(tmp_path: Path) -> None:
    run = Run(tmp_path)
    gpu = [table([step(1, 5, 0, 0, 1, 0, 0, 0, 2, 2)], hardware_type="GPU")]
    operations = [table([operation("Device", "MatMul", "a", 300), operation("Device", "Op", "b", 0)])]
    found = reported(tools(input_pipeline_analyzer=gpu, framework_op_stats=operations), run)
    assert found.shares.host == 0.5, "also the time in which it compiles"
    assert [each.name for each in found.operations] == ["a"], "what takes no time is left out"
    empty = replace(found, layers=())
    assert reports.from_plain(json.loads(json.dumps(asdict(empty), default=str))) == empty
    for waiting, shares in ((3.0, Shares(0.3, 0.5, 0.2)), (9.0, Shares(0.9, 0.0, 0.1)), (10.0, Shares(1.0, 0.0, 0.0))):
        cpu = [table([step(1, 0, 0, 0, 10 - waiting, 0, waiting, 0, 0, 0)], hardware_type="CPU_ONLY")]
        python = {"1": [10.0, 8.0]}
        on_cpu = reported(tools(input_pipeline_analyzer=cpu, framework_op_stats=[], python=python), run).shares
        assert asdict(on_cpu) == pytest.approx(asdict(shares)), waiting


def test_a_report_in_brief(tmp_path: Path) -> None:
    report = replace(
        reported(tools(), Run(tmp_path)),
        shares=Shares(input=0.005, compute=0.0049, host=0.9),
        operations=tuple(Operation(f"o{number}", "" if number else "MatMul", 1.0, 0.2) for number in range(4)),
    )
    assert in_brief(report) == [
        "a step of 10 ms on the GPU: waiting for input 0 %, host, while the device waits 90 %",
        "slowest input stage: Map, 48 % of the input's own time",
        "operations on the GPU that take most: MatMul 20 %, o1 20 %, o2 20 %",
    ]
    for where, words in (("GPU kernels", "kernels on the GPU"), ("CPU", "operations on the CPU")):
        lines = in_brief(replace(report, operations_on=where, slowest_stage=None))
        assert lines[1] == f"{words} that take most: MatMul 20 %, o1 20 %, o2 20 %"
    on_cpu = replace(report, device="CPU", operations=(), slowest_stage=None, shares=Shares(input=0.2, host=0.8))
    assert in_brief(on_cpu) == ["a step of 10 ms on the CPU: waiting for input 20 %, Python, outside the graph 80 %"]


def test_what_is_said_if_there_is_no_profile(tmp_path: Path) -> None:
    run = without_profile(tmp_path, "off")
    name = run.name

    def why() -> str:
        with pytest.raises(ProfileError) as fault:
            reports.read(run)
        return str(fault.value)

    assert why() == f"{name} has no profile\ntrain with {ASK} to get one"
    without_profile(tmp_path, "50-69")
    assert why() == f"{name} has no profile of its steps 50-69 yet\nthe run has not reached them yet"
    run.file("result.json").write_text(json.dumps({"outcome": "ok", "steps": 0}))
    assert why() == f"{name} has no profile of its steps 50-69 yet\nthe run ended after step 0"


def test_what_is_said_if_a_profile_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = without_profile(tmp_path, "50-69")
    for session in ("2026_01_01", "2026_01_02"):
        folder = run.file("profile") / "plugins" / "profile" / session
        folder.mkdir(parents=True)
        for host in ("b", "a"):
            (folder / f"{host}.xplane.pb").write_bytes(b"")
    newest = run.file("profile") / "plugins" / "profile" / "2026_01_02"
    given: list[list[str]] = []
    answers: list[Any] = []

    def answer(command: list[str], **more: Any) -> Any:
        given.append(command)
        assert more["timeout"] == 300.0
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def why() -> str:
        with pytest.raises(ProfileError) as fault:
            reports.read(run)
        return str(fault.value)

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert why() == "XProf, which reads profiles, is not installed\npip install 'xprof>=2.24' adds it"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for found, words in (
        (subprocess.TimeoutExpired("x", 300.0),
         f"XProf did not finish reading the profile within 300 s\n{newest}/a.xplane.pb"),
        (subprocess.CompletedProcess("x", 1, "", "ValueError: no\n"),
         f"XProf cannot read {newest}/a.xplane.pb\nValueError: no"),
        (subprocess.CompletedProcess("x", 1, "", "bad\nWARNING: All log messages before absl::InitializeLog() ...\n"),
         f"XProf cannot read {newest}/a.xplane.pb\nbad"),
        (subprocess.CompletedProcess("x", -9, "", ""),
         f"XProf cannot read {newest}/a.xplane.pb\nit was ended by SIGKILL"),
        (subprocess.CompletedProcess("x", 0, "{}", ""),
         f"XProf gave an unexpected answer (KeyError: 'input_pipeline_analyzer') for\n{newest}/a.xplane.pb"),
        (subprocess.CompletedProcess("x", 0, json.dumps(tools(input_pipeline_analyzer=[])), ""),
         f"XProf finds no complete step in the profile\nprofile more steps: {ASK}"),
    ):  # fmt: skip
        answers[:] = [found]
        assert why() == words
    assert given[-1][-2:] == [f"{newest}/a.xplane.pb", f"{newest}/b.xplane.pb"], "one file for each host"
    for together in (2, 4):
        run.file("preset.yaml").write_text(f"run: {{profile: 50-69}}\ncompile: {{steps_per_execution: {together}}}\n")
        assert why() == f"XProf cannot distinguish steps if {together} of them run in one execution\nprofile with {ASK}"
    answers[:] = [subprocess.CompletedProcess("x", 0, json.dumps(tools()), "")]
    assert reports.read(run).steps == 2


def test_an_operation_belongs_to_the_innermost_layer_of_the_outermost_scope_that_is_known() -> None:
    scopes = {"net": "net", "net/a": "a", "net/a/b": "b"}
    found = layer_times(
        [
            ("net/a/b/Mul", 1000),
            ("r/net/a/Mul", 2000),
            ("gradient_tape/net/a/b/x", 4000),
            ("net", 1000),
            ("a/Mul", 2000),
            ("replica_1/gradient_tape/net/a/b/x", 2000),
        ],
        scopes,
    )
    layers = (LayerTime("b", 1.0, 6.0, 7 / 12), LayerTime("a", 2.0, 0.0, 2 / 12), LayerTime("net", 1.0, 0.0, 1 / 12))
    assert found == layers
    assert layer_times([], scopes) == layer_times([("net/Mul", 0.0)], scopes) == ()


@pytest.mark.parametrize(("text", "scopes"), [('{"a": "b"}', {"a": "b"}), ("[1]", None), ("{", None), (None, None)])
def test_scopes_are_read_or_are_not_known(text: str | None, scopes: object, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "layers.json").write_text(text)
    assert scopes_of(tmp_path) == scopes
    assert xprof_tables.TOP == 10


# ---- the process that asks XProf --------------------------------------------------------------------


def event(name: str, start_ns: int, duration_ns: int, **stats: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, start_ns=start_ns, duration_ns=duration_ns, stats=list(stats.items()))


def test_the_answers_of_xprof_become_plain_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], str]] = []
    chart = {"cols": [{"id": "a"}, {"id": "b"}], "rows": [{"c": [{"v": 1}, {"v": "x"}]}, {"c": [{"v": 2}, {"v": "y"}]}]}
    answers: dict[str, Any] = {
        "overview_page": [chart | {"p": {"hardware_type": "GPU"}}, {"cols": [], "p": None}], "kernel_stats": chart,
        "framework_op_stats": None, "input_pipeline_analyzer": [],
    }  # fmt: skip
    memory = {"a.xplane.pb": {"GPU_0": {"profileSummary": {"peak": 1}}, "host": {}}, "b.xplane.pb": None}

    def ask(files: list[str], tool: str, _options: Any) -> tuple[bytes | None, str]:
        links = [Path(file) for file in files]
        assert all(link.resolve().parent == tmp_path and link.parent != tmp_path for link in links), "it writes there"
        asked.append(([link.name for link in links], tool))
        answer = answers[tool] if tool in answers else {"memoryProfilePerAllocator": memory[links[0].name]}
        return (None if answer in (None, {"memoryProfilePerAllocator": None}) else json.dumps(answer).encode()), ""

    lines = [
        SimpleNamespace(name="python", events=[
            event("train", 1_000_000, 2_000_000, step_num=7), event("train", 4_000_000, 500_000, step_num=8),
            *(event(xprof_process.GRAPH, start, 250_000) for start in (999_999, 1_000_000, 2_999_999, 3_000_000)),
            event("other", 1_500_000, 9),
        ]),
        SimpleNamespace(name="threads", events=[event("train", 1, 1, step_num=9)]),
    ]  # fmt: skip
    read: list[str] = []

    def from_file(file: str) -> SimpleNamespace:
        read.append(Path(file).name)
        return SimpleNamespace(planes=[SimpleNamespace(lines=lines[:1]), SimpleNamespace(lines=lines[1:])])

    convert, profile_data = ModuleType("xprof.convert"), ModuleType("xprof.profile_data")
    convert.__dict__["raw_to_tool_data"] = SimpleNamespace(xspace_to_tool_data=ask)
    profile_data.__dict__["ProfileData"] = SimpleNamespace(from_file=from_file)
    for module in (ModuleType("xprof"), convert, profile_data):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    files = [tmp_path / f"{host}.xplane.pb" for host in ("a", "b")]
    for file in files:
        file.touch()
    xprof_process.main([str(file) for file in files])
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert json.loads(capsys.readouterr().out) == {
        "overview_page": [{"properties": {"hardware_type": "GPU"}, "rows": rows}, {"properties": {}, "rows": []}],
        "kernel_stats": [{"properties": {}, "rows": rows}], "framework_op_stats": [], "input_pipeline_analyzer": [],
        "memory": {"GPU_0": {"peak": 1}, "host": {}}, "python": {"7": [2.0, 0.5], "8": [0.5, 0.0]},
    }  # fmt: skip
    names = [file.name for file in files]
    assert asked == [
        *((names, tool) for tool in ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "kernel_stats")),
        (names[:1], "memory_profile"), (names[1:], "memory_profile"),
    ]  # fmt: skip
    assert read == names[:1]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
