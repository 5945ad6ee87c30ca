"""What findings say, word for word, and that each change that they propose removes their cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gputui.engine.checks import Finding

from tests.engine import test_checks
from tests.engine.test_checks import TRIGGERS, found_by
from tests.support.cases import all_hold

OPTION = r"[a-z]+\.[a-z_]+"
VALUE = r"[a-z\d_]+(?:[.,:]\d+)*"
VALUES = rf"{VALUE}(?:(?:, | or ){VALUE}(?!\.))*"


def proposed(finding: Finding) -> Iterator[Mapping[str, str | None]]:
    """Each change that the finding proposes: values of options, or None for an option that is to be removed."""
    change = finding.change
    for alternative in re.split(r"[,;]? or |; ", change):
        if settings := re.findall(rf"\b({OPTION})=({VALUE})", alternative):
            yield dict(settings)
        if removed := re.search(rf"remove ({OPTION})", alternative):
            yield {removed[1]: None}
    for option, values in re.findall(
        rf"(?:set ({OPTION}|it) to (?:at most )?|give at most )({VALUES})(?: and name|[:;] |, or|$)", change
    ):
        keys = option if "." in option else finding.options[0]
        yield from ({keys: value} for value in re.split(", | or ", values))
    if change == "set one of them to false":
        yield from ({option: "false"} for option in finding.options)
    if change == "keep one of them":
        yield from (dict.fromkeys(finding.options[:position]) for position in range(1, len(finding.options)))


def test_a_finding_is_gone_after_each_change_that_it_proposes() -> None:
    with all_hold() as cases:
        for rule, on, settings, _level, words in TRIGGERS:
            (finding, *_) = [finding for finding in found_by(rule, on, settings) if words in finding.message]
            for change in proposed(finding):
                with cases.case(f"{rule} {settings}: {finding.change}: {change}"):
                    kept = [setting for setting in settings.split() if not _sets(setting, change)]
                    given = [f"{option}={value}" for option, value in change.items() if value is not None]
                    messages = [left.message for left in found_by(rule, on, " ".join([*kept, *given]))]
                    assert finding.message not in messages
    assert cases.count > 90  # else the words of the proposals are not understood any more


def _sets(setting: str, options: Mapping[str, str | None]) -> bool:
    name = setting.partition("=")[0]
    return any(name in (option, option.partition(".")[2]) for option in options)


def test_all_that_is_said_of_conflicts(snapshot: Any) -> None:
    said = [
        line
        for rule, on, settings, *_ in TRIGGERS
        for line in (
            f"{rule}: {settings}",
            *(
                f"  {one.level}: {', '.join(one.options)}: {one.message}; {one.change}"
                for one in found_by(rule, on, settings)
            ),
        )
    ]
    text = "\n".join(said).replace(test_checks.__file__, "a file")
    assert text.replace(str(Path.cwd()), "HERE") == snapshot
