"""What makes the first paint sooner: frozen dataclasses with shared methods, and patterns that are compiled late."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re

import pytest
from gputui.engine import frozen, late_patterns


@frozen.dataclass(frozen=True)
class Quick:
    a: int
    b: tuple[int, ...] = (1, 2)
    c: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Slow:
    a: int
    b: tuple[int, ...] = (1, 2)
    c: list[str] = dataclasses.field(default_factory=list)


@frozen.dataclass(frozen=True)
class Other:
    a: int
    b: tuple[int, ...] = (1, 2)


def test_it_behaves_as_one_of_the_standard_library() -> None:
    one = Quick(1)
    assert repr(one) == repr(Slow(1)).replace("Slow", "Quick")
    assert one == Quick(1, (1, 2), [])
    assert one != Quick(2)
    assert one.__eq__(Slow(1)) is NotImplemented
    assert Other(1).__eq__(Quick(1)) is NotImplemented
    assert hash(Other(1)) == hash(Other(1)) != hash(Other(2))
    with pytest.raises(TypeError):
        hash(one)  # of its list
    for change in (lambda: setattr(one, "a", 2), lambda: setattr(one, "new", 2), lambda: delattr(one, "a")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()  # type: ignore[no-untyped-call]
    assert dataclasses.replace(one, a=3) == Quick(3)
    assert dataclasses.asdict(one) == dataclasses.asdict(Slow(1))
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
    with pytest.raises(TypeError):
        Quick()  # type: ignore[call-arg]


def test_a_late_pattern_is_compiled_at_its_first_use_and_is_one_then() -> None:
    pattern = late_patterns.late(r"A(\d)", re.IGNORECASE)
    assert "match" not in vars(pattern)
    found = pattern.fullmatch("a1")
    assert found is not None
    assert found[1] == "1"
    assert pattern.sub("b", "A1 a2 c3") == "b b c3"
    assert pattern.pattern == r"A(\d)"
    assert late_patterns.late("(").__class__ is pattern.__class__
    with pytest.raises(re.error):
        late_patterns.late("(").search("x")
