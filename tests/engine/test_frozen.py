"""A frozen dataclass whose methods are shared behaves as one of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
from gputui.engine import frozen


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
