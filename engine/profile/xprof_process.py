"""Runs XProf in a process of its own: `python -P -m gputui.engine.profile.xprof_process FILE...` prints its tools'
JSON. It loads a library of 80 MB that logs to stderr, writes files next to the profile, and may crash on a broken one.
Deferred imports: XProf is an optional package, and takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

TOOLS = ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "kernel_stats")
# The names of events in the Python thread: gputui's marker of a step, and TensorFlow's for a graph that runs.
STEP, GRAPH = "train", "KernelAndDeviceFunc::Run"


def main(files: list[str]) -> None:
    """Print one JSON object: tables for each tool in TOOLS, `memory` of allocators, and `python`, times of steps."""
    with tempfile.TemporaryDirectory() as folder:
        links = [os.path.join(folder, os.path.basename(file)) for file in files]
        for file, link in zip(files, links, strict=True):  # XProf writes files next to the path that it is given
            os.symlink(os.path.realpath(file), link)
        answer = {tool: _tables(_ask(links, tool)) for tool in TOOLS}
        memory = {"memory": _memory(links), "python": _python(files[0])}
    print(json.dumps(answer | memory))


def _ask(files: list[str], tool: str) -> Any:
    from xprof.convert import raw_to_tool_data

    data, _ = raw_to_tool_data.xspace_to_tool_data(files, tool, {})
    return json.loads(data) if data else []


def _tables(answer: Any) -> list[dict[str, Any]]:
    """`answer` has Google's charting format."""
    tables = []
    for table in answer if isinstance(answer, list) else [answer]:
        names = [column["id"] for column in table.get("cols", [])]
        rows = [[cell["v"] for cell in row["c"]] for row in table.get("rows", [])]
        tables.append(
            {"properties": table.get("p") or {}, "rows": [dict(zip(names, row, strict=True)) for row in rows]}
        )
    return tables


def _memory(files: list[str]) -> dict[str, Any]:
    # XProf gives them for one host (one file) at a time
    answers = [_ask([file], "memory_profile") for file in files]
    allocators = [(answer or {}).get("memoryProfilePerAllocator", {}) for answer in answers]
    return {name: report.get("profileSummary", {}) for host in allocators for name, report in host.items()}


def _python(file: str) -> dict[str, tuple[float, float]]:
    """The milliseconds of each step, and of graphs in it: XProf's tables count Python's own time as computing."""
    from xprof.profile_data import ProfileData

    lines = [line for plane in ProfileData.from_file(file).planes for line in plane.lines if line.name == "python"]
    events = [event for line in lines for event in line.events]
    graphs = [(event.start_ns, event.duration_ns) for event in events if event.name == GRAPH]
    times = {}
    for step in (event for event in events if event.name == STEP):
        within = sum(ns for begin, ns in graphs if step.start_ns <= begin < step.start_ns + step.duration_ns)
        times[dict(step.stats)["step_num"]] = (step.duration_ns / 1e6, within / 1e6)
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
