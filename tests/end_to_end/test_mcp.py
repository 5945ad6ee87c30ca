"""`gputui mcp` in this process: what its tools answer and refuse. Only the package mcp is replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from types import ModuleType
from typing import Any

import pytest

from tests.doors.tui import tui_cli as cli

Tool = Callable[..., dict[str, Any]]
TOOLS: dict[str, Tool] = {}


class Server:
    """In the place of MCPServer: keeps the tools."""

    def __init__(self, name: str, **_how: object) -> None: ...

    def tool(self, annotations: object) -> Callable[[Tool], object]:
        return lambda tool: TOOLS.update({tool.__name__: tool})

    def run(self) -> None: ...


class ToolError(Exception): ...


def test_tools_answer_and_refuse_as_commands_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mcp", "mcp.server", "mcp.types", "mcp.server.mcpserver", "mcp.server.mcpserver.exceptions"):
        module = ModuleType(name)
        vars(module).update(MCPServer=Server, ToolAnnotations=dict, ToolError=ToolError)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "stdin", StringIO())
    assert cli.run(["mcp"]) == 0
    assert TOOLS["list_runs"]() == {"runs": [], "remarks": []}
    assert "batch_size: 16" in TOOLS["propose_change"]("quickstart", ["batch_size=16"])["preset"]
    for tool, arguments, refusal in (
        ("run_state", ["nope"], "there are no runs in"),
        ("propose_change", ["quickstart", ["epochs=x"]], "--set epochs=x: train.epochs: 'x' does not fit"),
        ("prove_change", ["quickstart", ["epochs=2"]], "train.epochs cannot be compared: every trial sets it"),
        ("list_runs", [0], "Invalid value for '--last': 0 is not in the range"),
        ("save_proved", ["latest", "a.yaml"], "there are no proofs in"),
    ):
        with pytest.raises(ToolError, match=refusal):
            TOOLS[tool](*arguments)


def test_without_the_package_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert cli.run(["mcp"]) == 2
    assert capsys.readouterr().err == "gputui mcp needs the package mcp; pip install 'mcp>=2,<3' adds it\n"
