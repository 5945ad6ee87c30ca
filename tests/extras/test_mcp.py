"""`gputui mcp`: a session of the real library's client over stdio, on the recorded home."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.contract.conftest import recorded_home as recorded_home
from tests.support.needs import require

START = "import sys; from gputui.tui import main; sys.argv[1:] = ['mcp']; main()"


async def test_a_client_lists_follows_and_saves_only_what_is_proved(recorded_home: Path) -> None:
    require("mcp")
    from mcp import Client, StdioServerParameters, stdio_client

    here = os.environ | {"GPUTUI_HOME": str(recorded_home)}
    server = StdioServerParameters(command=sys.executable, args=["-P", "-c", START], env=here)
    async with Client(stdio_client(server)) as client:
        tools = (await client.list_tools()).tools
        acting = [tool.name for tool in tools if not tool.annotations.read_only_hint]
        assert acting == ["prove_change", "save_proved", "queue_preset", "stop_run", "stop_measurement"]

        async def call(name: str, **arguments: Any) -> Any:
            answer = await client.call_tool(name, arguments)
            return answer.content[0].text if answer.is_error else answer.structured_content

        (run,) = (await call("list_runs", state="timeout"))["runs"]
        assert (await call("run_state", run=run["id"]))["result"]["outcome"] == "timeout"
        first = await call("events_since", run=run["id"])
        assert (first["events"][-2]["type"], first["state"]) == ("finished", "timeout")
        assert (await call("events_since", run=run["id"], since=first["since"]))["events"] == []
        refused = await call("propose_change", preset="quickstart", settings=["batch_size=0"])
        assert "--set batch_size=0: input.batch_size: 0 does not fit: give a whole number from 1" in refused
        assert "has proved no change" in await call("save_proved", measurement="20261129-112155-small", file="a.yaml")
