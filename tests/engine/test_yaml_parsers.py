"""The parser of YAML in C, and the one in Python for what it refuses: they read the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from gputui.engine import presets
from gputui.engine.files import yaml_nodes
from gputui.engine.files.yaml_text import YamlFault


def _read_or_refused(text: str, kind: Any) -> Any:
    """What the parser reads; for YAML that is no preset the words, the line and the key with which it is refused."""
    try:
        return yaml_nodes._parse(text, kind)
    except YamlFault as fault:
        return fault.message, fault.line, fault.key


@pytest.mark.parametrize(
    ("text", "why"),
    [("x" * 100, "must be a mapping"), ("[" * 100, "nested deeper"), ("a:\n  b: 1\n  b: 2\n", "given twice")],
    ids=["a text", "lists", "twice"],
)
def test_yaml_that_is_no_preset_is_read_once(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser in Python took more than a second for a long file which the one in C had already refused."""
    monkeypatch.setattr(yaml_nodes, "_SLOW", None)
    with pytest.raises(YamlFault, match=why):
        yaml_nodes.parse(text)


def test_both_parsers_read_the_same() -> None:
    """Presets that are damaged at random places, where the parser in C would be used."""
    texts = [path.read_text() for path in sorted(presets.SHIPPED.glob("*.yaml"))]
    drawn = random.Random(1)
    accepted = 0
    for _ in range(150):
        letters = list(drawn.choice(texts))
        letters[drawn.randrange(len(letters))] = drawn.choice("\n :-[]{},'\"#|>%@0e.")
        text = "".join(letters)
        try:
            fast = _read_or_refused(text, yaml_nodes._FAST)
        except yaml.YAMLError:
            continue  # read again by the other
        assert fast == _read_or_refused(text, yaml_nodes._SLOW), text
        accepted += 1
    assert accepted > 40
