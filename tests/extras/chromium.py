"""A page in a real Chromium without a window, driven through its DevTools protocol: keys, mouse, size."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0  # that a busy machine may need for anything here
NAMED = {
    "Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    "F3": {"key": "F3", "code": "F3", "windowsVirtualKeyCode": 114},
}


class Page:
    """The only tab. `received` has what came through WebSockets since it was last emptied."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.received = b""
        self.answers: dict[int, asyncio.Future[Any]] = {}
        self.loaded = asyncio.Event()
        self.numbers = itertools.count(1)

    async def listen(self) -> None:
        async for message in self.socket:
            event = message.json()
            if answer := self.answers.pop(event.get("id", 0), None):
                answer.set_result(event)
            elif event.get("method") == "Page.loadEventFired":
                self.loaded.set()
            elif event.get("method") == "Network.webSocketFrameReceived":
                frame = event["params"]["response"]
                self.received += base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else b""

    async def ask(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        number = next(self.numbers)
        self.answers[number] = answered = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(answered, SECONDS)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    async def open(self, address: str) -> None:
        """Open the address, and wait until the page is loaded."""
        self.received = b""
        self.loaded.clear()
        await self.ask("Page.navigate", url=address)
        await asyncio.wait_for(self.loaded.wait(), SECONDS)

    async def until(self, part: str) -> None:
        """Wait until what was received contains the text; what came so far is then forgotten."""
        end = time.monotonic() + SECONDS
        while part.encode() not in self.received:
            assert time.monotonic() < end, f"{part!r} is not in {self.received[-2000:]!r}"
            await asyncio.sleep(0.1)
        self.received = b""

    async def evaluate(self, expression: str) -> Any:
        result = await self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    async def until_true(self, expression: str) -> None:
        """Wait until the expression of JavaScript is true."""
        end = time.monotonic() + SECONDS
        while not await self.evaluate(expression):
            assert time.monotonic() < end, expression
            await asyncio.sleep(0.1)

    async def press(self, *keys: str) -> None:
        """Press keys: characters, or names of NAMED."""
        for key in keys:
            event = NAMED.get(key) or {"key": key, "text": key, "windowsVirtualKeyCode": ord(key.upper())}
            for kind in ("keyDown", "keyUp"):
                await self.ask("Input.dispatchKeyEvent", type=kind, **event)

    async def click(self, x: float, y: float) -> None:
        """Click with the left button, at pixels of the page."""
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def resize(self, width: int, height: int) -> None:
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                       mobile=False)  # fmt: skip


@asynccontextmanager
async def page(folder: Path) -> AsyncIterator[Page]:
    """Start Chromium with its profile in `folder`, and end it afterwards."""
    command = next(path for name in COMMANDS if (path := shutil.which(name)))
    browser = await asyncio.create_subprocess_exec(
        command, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--remote-debugging-port=0", "--window-size=1200,800", f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port_file = folder / "DevToolsActivePort"
        async with asyncio.timeout(SECONDS):
            while not (port_file.exists() and "\n" in port_file.read_text()):
                await asyncio.sleep(0.1)
        root = f"http://127.0.0.1:{port_file.read_text().split()[0]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{root}/json/list") as answer:
                (tab,) = [target for target in await answer.json() if target["type"] == "page"]
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                opened = Page(socket)
                listening = asyncio.create_task(opened.listen())
                for domain in ("Page", "Network", "Runtime"):
                    await opened.ask(f"{domain}.enable")
                yield opened
                listening.cancel()
    finally:
        browser.terminate()
        await browser.wait()
