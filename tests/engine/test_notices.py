"""Notices of ended runs, and addresses without their passwords."""

from __future__ import annotations

import json

import pytest

from tests.doors.engine import Notice, Targets, environment_variables, sending, without_login

RUN = Notice(
    "run", "oom", True, "2026-one", "r7", "one: xla", 3725.0, {"loss": 0.25, "accuracy": None, "auc": 0.5}, "val_loss",
    0.125, 3, error="out of memory\x07", folder="/runs/one", host="box",
)  # fmt: skip


@pytest.mark.parametrize(
    ("when", "command", "url", "wants"),
    [
        ("end", "x", "", (True, True)), ("end", "", "x", (True, True)), ("end", "", "", (False, False)),
        ("failure", "x", "", (False, True)), ("never", "x", "x", (False, False)),
    ],
)  # fmt: skip
def test_a_notice_goes_out_at_the_end_or_only_after_a_failure(
    when: str, command: str, url: str, wants: tuple[bool, bool]
) -> None:
    to = Targets(command, url, "text", when)
    assert tuple(to.wants(failed) for failed in (False, True)) == wants


def test_what_is_posted_has_its_form_and_the_address_its_variables() -> None:
    forms = {form: sending.content(Targets("", "x", form, "end"), RUN) for form in ("text", "json", "slack")}
    assert forms == {
        "text": (RUN.words, "text/plain; charset=utf-8"),
        "json": (RUN.as_json(), "application/json"),
        "slack": (json.dumps({"text": RUN.words}), "application/json"),
    }
    assert sending.address("$HOST/${TOKEN}/x", {"HOST": "https://a", "TOKEN": "t"}) == "https://a/t/x"
    assert sending.address("https://a/$", {}) == "https://a/$"
    for url, missing in (("$A/${B}", "B"), ("$A/${B}/$C", "B"), ("${C}/$A/$B", "C"), ("$A_B", "A_B")):
        with pytest.raises(Exception, match=rf"^the variable {missing} is not set where the run was started$"):
            sending.address(url, {"A": "https://a"})
    with pytest.raises(Exception, match=r"^the address does not begin with https:// or http://$"):
        sending.address("${A}", {"A": "ftp://a"})


# ---- What other programs get from gputui ---------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "shown", "recorded"),
    [
        ("http://me:word@host:80/a", "http://host:80/a", "http://...@host:80/a"),
        ("http://me:w@rd@host/a?to=b@c", "http://host/a?to=b@c", "http://...@host/a?to=b@c"),
        ("see http://token@host, or http://host/x@y", "see http://host, or http://host/x@y",
         "see http://...@host, or http://host/x@y"),
        ("http://host?to=b@c", "http://host?to=b@c", "http://host?to=b@c"),
        ("http://host#b@c me@host", "http://host#b@c me@host", "http://host#b@c me@host"),
    ],
)  # fmt: skip
def test_no_part_of_a_password_in_an_address_is_shown_or_recorded(address: str, shown: str, recorded: str) -> None:
    assert without_login(address) == shown
    given = {"NCCL_A": address, "TF_TOKEN_x": "a", "NVIDIA_PASSWORD": "a", "HOME": "/", "CUDA_B": "x" * 201}
    assert environment_variables.recorded(given) == {"CUDA_B": "x" * 200 + "...", "NCCL_A": recorded}
