"""`gputui serve` in this process: who is let in, what a page gets, and how it ends. Only textual-serve is replaced."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import socket
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from tests.doors.tui import serve
from tests.doors.tui import tui_cli as cli
from tests.support.cluster import free_ports

pytestmark = pytest.mark.needs("aiohttp")
TOKEN = "the-token-of-the-address"
PAGE = '<head><link rel="stylesheet" href="https://fonts.googleapis.com/css?family=Roboto"><link href="a.css"></head>'


class Server:
    """In the place of textual_serve's: a page, a file, and a web socket that stays open until it is ended."""

    def __init__(self, command: str, **settings: Any) -> None:
        self.command, self.settings = command, settings
        self.host, self.port = settings["host"], settings["port"]
        self.begun, self.ended = asyncio.Event(), list[str]()

    async def _make_app(self) -> Any:
        from aiohttp import web

        async def page(_request: Any) -> Any:
            return web.Response(text=PAGE, content_type="text/html")

        made = web.Application()
        made.router.add_get("/", page)
        made.router.add_get("/static/a.css", page)
        made.router.add_get("/ws", self.handle_websocket)
        made.on_shutdown.append(self.on_shutdown)
        made.on_startup.append(self.on_startup)
        return made

    async def handle_websocket(self, request: Any) -> Any:
        from aiohttp import web

        opened = web.WebSocketResponse()
        await opened.prepare(request)
        self.begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.ended.append("its screens end")
            raise
        return opened

    async def on_shutdown(self, _app: Any) -> None:
        self.ended.append("textual-serve's own")

    async def on_startup(self, _app: Any) -> None:
        raise AssertionError("it prints before the server listens")


@pytest.fixture(autouse=True)
def textual_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("textual_serve"), ModuleType("textual_serve.server")
    module.__dict__["Server"] = Server
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "textual_serve", package)
    monkeypatch.setitem(sys.modules, "textual_serve.server", module)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
async def server(port: int) -> AsyncIterator[Any]:
    """The server of gputui, which listens on the port."""
    from aiohttp.test_utils import TestServer

    made = serve._server(port, TOKEN)
    listening = TestServer(await made._make_app(), host="127.0.0.1", port=port)
    await listening.start_server()
    made.listening = listening
    yield made
    await listening.close()


@pytest.fixture
async def browser(server: Any) -> AsyncIterator[Any]:
    import aiohttp

    jar = aiohttp.CookieJar(unsafe=True)  # a browser keeps cookies of a number as well
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", cookie_jar=jar) as made:
        yield made


async def get(browser: Any, path: str, **more: Any) -> tuple[int, str]:
    async with browser.get(path, **more) as answer:
        return answer.status, await answer.text()


async def test_only_the_token_of_the_address_lets_a_browser_in(browser: Any, port: int) -> None:
    forbidden = (403, "This page needs the whole address that `gputui serve` has printed, with its token.\n")
    for path in ("/", "/?token=", "/?token=other", f"/?token={TOKEN}x", f"/static/a.css?token={TOKEN}", "/ws", "/?a=1"):
        assert await get(browser, path) == forbidden, path
    for cookie in ("", "other"):
        assert await get(browser, "/", cookies={f"gputui-{port}": cookie}) == forbidden
    async with browser.get(f"/?token={TOKEN}", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/"), "the token does not stay in the address"
        cookie = answer.headers["Set-Cookie"]
    assert re.fullmatch(rf"gputui-{port}=[\w-]{{20,}}; HttpOnly; Path=/; SameSite=Lax", cookie)
    assert TOKEN not in cookie
    status, page = await get(browser, "/")
    assert (status, page) == (200, PAGE.replace(re.findall("<link[^>]*>", PAGE)[0], serve.INSTEAD))
    assert await get(browser, "/static/a.css") == (200, PAGE), "only the page itself is changed"
    here = f"http://127.0.0.1:{port}"
    for origin, expected in ((here, 200), (f"{here}1", 403), ("null", 403), (f"http://localhost:{port}", 403)):
        assert (await get(browser, "/", headers={"Origin": origin}))[0] == expected, origin


async def test_screens_end_with_the_server(server: Any, browser: Any) -> None:
    await get(browser, f"/?token={TOKEN}")
    opened = await browser.ws_connect("/ws")
    await server.begun.wait()
    await server.listening.close()
    assert server.ended == ["its screens end"]
    await opened.close()


def test_the_address_is_said_when_the_server_listens(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from aiohttp import web

    served: list[dict[str, Any]] = []

    def run_app(app: Any, **settings: Any) -> None:
        app.close()
        served.append(settings)
        settings.pop("print")("what aiohttp says")

    monkeypatch.setattr(web, "run_app", run_app)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "textual_serve" else None)
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    addresses = []
    for _ in range(2):
        assert cli.run(["serve", "--port", str(port)]) == 0
        out, err = capsys.readouterr()
        first, second = out.splitlines()
        assert (second, err) == (f"from another machine first: ssh -N -L {port}:127.0.0.1:{port} box", "")
        found = re.fullmatch(rf"gputui is at http://127\.0\.0\.1:{port}/\?token=([\w-]{{22}}) until Ctrl-C", first)
        assert found
        addresses.append(found[1])
    assert served == [{"host": "127.0.0.1", "port": port}] * 2
    assert addresses[0] != addresses[1], "each time another token"
