"""`gputui serve`: the screens over HTTP, for a client with the token only, through the real textual-serve."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import free_ports
from tests.support.needs import require

START = "import sys; from gputui.tui import main; sys.argv[1:] = {words}; main()"


def started(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-c", START.format(words=list(words))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_a_browser_with_the_token_sees_the_screens_and_no_other_does(home: Path) -> None:
    require("textual_serve")
    import aiohttp

    (port,) = free_ports(1)
    server = started("serve", "--port", str(port))
    try:
        assert server.stdout is not None
        line = await asyncio.to_thread(server.stdout.readline)
        tunnel = await asyncio.to_thread(server.stdout.readline)
        assert f"ssh -N -L {port}:127.0.0.1:{port} " in tunnel
        (address,) = re.findall(r"http\S+", line)
        page, socket = f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{port}/ws?width=100&height=30"
        async with aiohttp.ClientSession() as stranger:
            for url in (page, f"{page}?token=x", f"http://127.0.0.1:{port}/static/"):
                async with stranger.get(url) as answer:
                    assert answer.status == 403, url
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await stranger.ws_connect(socket)
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            async with browser.get(address) as answer:
                assert answer.status == 200
                assert "token" not in str(answer.url)
            with pytest.raises(aiohttp.WSServerHandshakeError):  # a page of another port on this machine
                await browser.ws_connect(socket, origin=f"http://127.0.0.1:{port + 1}")
            async with browser.ws_connect(socket, origin=page.rstrip("/")) as terminal:
                await until(terminal, b"batch_size")
                await terminal.send_str(json.dumps(["stdin", ","]))
                await until(terminal, b"charts.smoothing")
        second = started("serve", "--port", str(port))
        _, complaint = await asyncio.to_thread(second.communicate)
        assert (second.returncode, complaint.count("\n")) == (2, 1)
        assert f"port {port} cannot be used: Address already in use; name another with --port" in complaint
    finally:
        server.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(server.wait, 30) == 0
        for stream in (server.stdout, server.stderr):
            assert stream is not None
            stream.close()


async def until(terminal: object, part: bytes) -> None:
    """Receive what is painted until it contains `part`."""
    received = b""
    while part not in received:
        message = await asyncio.wait_for(terminal.receive(), 120)  # type: ignore[attr-defined]
        if isinstance(message.data, bytes):
            received += message.data
