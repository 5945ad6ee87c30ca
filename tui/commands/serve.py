"""The command `gputui serve`: the screens in a browser, through textual-serve (an extra). Others on the machine can
reach a port of localhost, and the screens can start programs: a browser needs the token of the printed address, then a
cookie. As cookies belong to all ports of a host, the screens open only for pages of this server; the address is a
number, as `localhost` may lead to another user's server.
Deferred imports: textual-serve is imported only by this command."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import secrets
import shlex
import socket
import sys
from typing import Any

import click

from ..base.errors import Refused

REQUIREMENT = "textual-serve>=1.1"
HOST = "127.0.0.1"
# The page of textual-serve takes a font from the internet, and has no focus: keys would need a click first.
OUTSIDE = re.compile(r"<link[^>]*fonts\.googleapis\.com[^>]*>")
INSTEAD = """\
<style>@font-face { font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }</style>
<script>
addEventListener("load", () => new MutationObserver((_, painting) => {
  if (document.body.classList.contains("-first-byte")) {
    painting.disconnect();
    document.querySelector("textarea").focus();
  }
}).observe(document.body, {attributeFilter: ["class"]}));
</script>"""
SECONDS_TO_END = 10.0
FORBIDDEN = "This page needs the whole address that `gputui serve` has printed, with its token.\n"


@click.command()
@click.option("--port", type=click.IntRange(1024, 65535), default=8000, show_default=True, help="Port of localhost.")
def serve(port: int) -> None:
    """The browser needs the printed address, whose token keeps other users of the machine out. From another machine, it
    reaches the port through an SSH tunnel, whose command is printed.
    """
    if importlib.util.find_spec("textual_serve") is None:
        raise Refused(f"textual-serve is not installed; pip install '{REQUIREMENT}' adds it")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as fault:
            raise Refused(f"port {port} cannot be used: {fault.strerror}; name another with --port") from None
    _server(port, secrets.token_urlsafe(16)).serve()


def announce(port: int, token: str) -> None:
    print(f"gputui is at {_address(port)}/?token={token} until Ctrl-C")
    print(f"from another machine first: ssh -N -L {port}:{HOST}:{port} {socket.gethostname()}", flush=True)


def _address(port: int) -> str:
    return f"http://{HOST}:{port}"


def _server(port: int, token: str) -> Any:
    """Return the server of textual-serve for this port, which answers only a browser with the token."""
    from aiohttp import web
    from textual_serve.server import Server

    cookie, session = f"gputui-{port}", secrets.token_urlsafe(16)

    @web.middleware
    async def only_with_token(request: web.Request, handler: Any) -> Any:
        given = request.query.get("token", "")
        if request.path == "/" and secrets.compare_digest(given.encode(), token.encode()):
            entered = web.HTTPFound("/")
            entered.set_cookie(cookie, session, httponly=True, samesite="Lax")  # strict: no link elsewhere leads here
            raise entered
        foreign = request.headers.get("Origin", _address(port)) != _address(port)
        if foreign or not secrets.compare_digest(request.cookies.get(cookie, "").encode(), session.encode()):
            return web.Response(text=FORBIDDEN, status=403)
        answer = await handler(request)
        if request.path == "/" and isinstance(answer, web.Response) and answer.text:
            answer.text = OUTSIDE.sub(INSTEAD, answer.text)
        return answer

    pages: set[asyncio.Task[Any]] = set()

    class LocalServer(Server):  # type: ignore[misc]
        async def _make_app(self) -> web.Application:
            app: web.Application = await super()._make_app()
            app.middlewares.append(only_with_token)
            return app

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            page = asyncio.current_task()
            assert page is not None
            pages.add(page)
            try:
                response: web.WebSocketResponse = await super().handle_websocket(request)
            finally:
                pages.discard(page)
            return response

        async def on_shutdown(self, _app: web.Application) -> None:
            ending = list(pages)
            for page in ending:
                page.cancel()
            if ending:
                await asyncio.wait(ending, timeout=SECONDS_TO_END)

        async def on_startup(self, _app: web.Application) -> None:
            """The server does not listen yet."""

        def serve(self, debug: bool = False) -> None:
            # Until SIGINT or SIGTERM.
            self.debug = debug
            web.run_app(self._make_app(), host=self.host, port=self.port, print=lambda _text: announce(port, token))

    start = "from gputui.tui import main; main()"
    command = shlex.join([sys.executable, "-P", "-c", start])
    return LocalServer(command, host=HOST, port=port, title="gputui", public_url=_address(port))
