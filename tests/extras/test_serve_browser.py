"""`gputui serve` in a real Chromium: what is painted, keys, mouse, a size that changes, and a tab that is closed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from tests.doors.engine import runs
from tests.extras.test_serve import started
from tests.support.cluster import free_ports
from tests.support.needs import require
from tests.support.standing_in import engines_of, stand_in

FOREIGN = """new Promise(answer => {
  const socket = new WebSocket("%s");
  socket.onopen = () => answer("opened");
  socket.onerror = () => answer("refused");
})"""
__all__ = ["stand_in"]  # the fixture


@pytest.mark.slow
async def test_the_screens_in_a_browser(home: Path, tmp_path: Path, stand_in: None) -> None:
    for need in ("textual_serve", "chromium"):
        require(need)
    from tests.extras.chromium import page

    (port,) = free_ports(1)
    server = started("serve", "--port", str(port))
    assert server.stdout is not None
    assert server.stderr is not None
    try:
        line = await asyncio.to_thread(server.stdout.readline)
        (address,) = re.findall(r"http\S+", line)
        root = f"http://127.0.0.1:{port}"
        async with page(tmp_path / "profile") as browser:
            await browser.open(f"{root}/?token=wrong")
            assert "needs the whole address" in await browser.evaluate("document.body.textContent")
            await browser.open("about:blank")
            await browser.evaluate(f"location.href = '{address}'")  # as a link on a page of another site
            await browser.until("batch_size")
            await browser.until("Help")  # the footer, although the page has no focus so far
            loaded = await browser.evaluate("performance.getEntriesByType('resource').map(e => e.name).join(' ')")
            assert all(url.startswith(root) for url in loaded.split()), "nothing from the internet"
            assert "RobotoMono" in loaded
            assert await browser.evaluate("location.href") == f"{root}/"
            await browser.until_true("document.activeElement.tagName == 'TEXTAREA'")
            await browser.press(",")  # without a click before
            await browser.until("charts.smoothing")
            await browser.press("q")
            await browser.until("batch_size")
            await browser.resize(800, 500)
            await browser.until("Faster")
            await browser.press("r")
            await browser.until("Stop")
            (run,) = runs.all_runs()
            bottom = await browser.evaluate("document.querySelector('.xterm-screen').getBoundingClientRect().bottom")
            await browser.click(250, bottom - 5)  # the third hint of the footer: w Diagnosis
            await browser.until("diagnosis")
            await browser.open("about:blank")  # another page, and the screens are closed
            assert await browser.evaluate(FOREIGN % f"ws://127.0.0.1:{port}/ws?width=80&height=24") == "refused"
            await browser.open(root)
            await browser.until("Live")
            await browser.until_true("document.activeElement.tagName == 'TEXTAREA'")
            await browser.press("F3")
            await browser.until(run.id)
            assert run.state == "running"
            server.send_signal(signal.SIGINT)  # Ctrl-C
            await browser.until_true("document.body.classList.contains('-closed')")
            assert await asyncio.to_thread(server.wait, 30) == 0
            assert (run.state, server.stderr.read()) == ("running", "")
    finally:
        for run in runs.all_runs():
            for engine in engines_of(run):
                os.kill(engine, signal.SIGKILL)
        server.kill()
        server.communicate()
