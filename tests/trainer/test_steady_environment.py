"""Of the tests themselves: variables are changed while threads of TensorFlow read them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest
import tensorflow as tf  # noqa: F401 - it is this process's TensorFlow whose threads read

LIBC = ctypes.CDLL(None)
LIBC.getenv.restype = ctypes.c_char_p
ENVIRON = ctypes.c_void_p.in_dll(LIBC, "environ")


def test_variables_are_set_changed_and_removed_for_c_code_and_for_other_processes() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("GPUTUI_TEST", "1"), ("GPUTUI_TEST_2", "two = 2"), ("GPUTUI_TEST", "")):
            patch.setenv(name, value)
        read = f"import os; print([os.environ.get(name) for name in {['GPUTUI_TEST', 'GPUTUI_TEST_2', 'PATH']}])"
        done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)
        assert done.stdout == f"{['', 'two = 2', os.environ['PATH']]}\n"
        assert [LIBC.getenv(name) for name in (b"GPUTUI_TEST", b"GPUTUI_TEST_2")] == [b"", b"two = 2"]
        patch.delenv("GPUTUI_TEST")
        assert [LIBC.getenv(name) for name in (b"GPUTUI_TEST", b"GPUTUI_TEST_2")] == [None, b"two = 2"]
    assert LIBC.getenv(b"GPUTUI_TEST_2") is None


def test_what_c_code_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    LIBC.setenv(b"GPUTUI_TEST_C", b"1", 1)
    monkeypatch.setenv("GPUTUI_TEST", "2")
    assert [LIBC.getenv(name) for name in (b"GPUTUI_TEST_C", b"GPUTUI_TEST")] == [b"1", b"2"]
    LIBC.unsetenv(b"GPUTUI_TEST_C")


def test_the_variables_stay_in_their_place_however_many_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ENVIRON.value
    for number in range(1000):
        monkeypatch.setenv(f"GPUTUI_TEST_{number}", "x")
    assert ENVIRON.value == before
