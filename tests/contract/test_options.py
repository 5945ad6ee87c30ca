"""Which values options take, when they apply to own code, and what is said of broken presets: golden/answers has it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.conftest import Golden
from tests.doors.engine import OPTIONS, OWN_CODE_LABELS, Handed, obstacle, presets
from tests.doors.engine import presets_PresetError as PresetError
from tests.doors.tui import tui_cli as cli
from tests.support.odd_presets import all_broken


def taken(key: str, value: str) -> tuple[str, str]:
    """The value as it is taken, or empty and what is said of it."""
    try:
        read: Any = presets.defaults([f"{key}={value}"]).options.value(key)
    except PresetError as fault:
        return "", re.sub(r".*?does not fit: ", "", str(fault).partition(f"{key}: ")[2] or str(fault))
    return f"{value} is {read!r}", ""


def test_the_values_of_each_option(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    def answer(question: str) -> list[str]:
        key, _, values = question.partition(": ")
        said = {value: taken(key, value) for value in values.split(" | ")}
        good = [read for read, _ in said.values() if read]
        refused = {why: [value for value, (_, each) in said.items() if each == why] for _, why in said.values() if why}
        lines = [f"takes {', '.join(good)}", *(f"{', '.join(bad)}: {why}" for why, bad in refused.items())]
        return [" // ".join(lines).replace(str(tmp_path), "HERE")]

    golden.answers("answers/options.txt", answer)
    assert [question.partition(": ")[0] for question in golden.questions("answers/options.txt")] == [
        info.key for info in OPTIONS
    ]


def test_what_is_said_of_a_broken_preset(
    golden: Golden, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.write_text("a file: nothing can be launched below it")
    monkeypatch.chdir(tmp_path)
    odd = {broken.name: broken.content for broken in all_broken()}

    def answer(question: str) -> list[str]:
        Path("broken.yaml").write_bytes(odd[question])
        code = cli.run(["--preset", "broken.yaml"])
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        assert all(each.isprintable() or each == "\n" for each in err)
        return [" / ".join(line.removeprefix("broken.yaml:") for line in err.splitlines())]

    golden.answers("answers/broken.txt", answer)


def test_what_does_not_apply_to_own_code(golden: Golden) -> None:
    usual = Handed("arrays", own_optimizer=False, images=True, validation=False)

    def answer(question: str) -> list[str]:
        data, _, more = question.partition(" ")
        handed = replace(usual, data=data, **yaml.safe_load(more or "{}"))  # type: ignore[arg-type]
        why = {own: obstacle(own, handed) for own in OWN_CODE_LABELS if own != "unread"}
        reasons = {reason: [own for own in why if why[own] == reason] for reason in why.values() if reason}
        return [f"{', '.join(owns)}: {reason}" for reason, owns in reasons.items()]

    golden.answers("answers/own_code.txt", answer)
    assert obstacle("unread", usual)
