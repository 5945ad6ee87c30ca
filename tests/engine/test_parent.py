"""What is started ends with the process that has started it, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gputui.engine.interpreter import interpreter
from gputui.engine.system import stop_signals
from gputui.engine.system.identity import Process

from tests.support.front_door import until

STARTS = """
import threading, time
from gputui.engine.system import child_process
if THREADS:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
child_process.start(["/bin/sh", "-c", "echo $$; exec sleep 600"])
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for it")
def test_a_process_that_is_killed_takes_along_what_it_has_started_also_one_of_several_threads() -> None:
    for threads in ("False", "True"):
        code = STARTS.replace("THREADS", threads)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
            assert starter.stdout is not None
            started = Process.of(int(starter.stdout.readline()))
            assert started.alive()
            starter.kill()
            starter.wait(60)
            until(lambda found=started: not found.alive())  # type: ignore[misc]


def test_a_file_that_is_no_program_is_told_in_the_same_words_from_any_thread(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).touch(0o755)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(interpreter.examine, str(tmp_path / "one")).exception()
    assert str(told) == f"{tmp_path / 'one'} cannot be run: Exec format error"
    with pytest.raises(interpreter.Unusable, match="other cannot be run: Exec format error"):
        interpreter.examine(str(tmp_path / "other"))


ASKED = """
import signal
from gputui.engine.system import stop_signals
got = []
for number in (*stop_signals.NUMBERS, stop_signals.BY_PERSON):
    signal.signal(number, lambda number, _: got.append(number))
stop_signals.let_through()
assert set(got) == {signal.SIGTERM, stop_signals.BY_PERSON}, got
"""


def test_a_stop_by_a_person_that_comes_before_the_handlers_reaches_them_as_one_by_a_person() -> None:
    early = f"import os, sys; os.kill(os.getpid(), {signal.SIGTERM}); os.kill(os.getpid(), {stop_signals.BY_PERSON})"
    code = f"{early}; os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    with stop_signals.held():
        done = subprocess.run([sys.executable, "-c", code, ASKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
