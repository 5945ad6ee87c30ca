"""`dataclass`, as that of the standard library, for the classes that the first paint of the form needs: they share five
of the six methods that the standard one compiles (50 of 650 ms of CPU until the first paint).
"""

from __future__ import annotations

import dataclasses
from functools import cache
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool) -> Any:
        """Return a decorator that makes a frozen dataclass. Its fields can be set once, which its `__init__` does."""
        assert frozen

        def decorated(cls: type) -> type:
            for name, method in _SHARED.items():
                if name not in vars(cls):
                    setattr(cls, name, method)
            made = dataclasses.dataclass(eq=False, repr=False)(cls)
            assert all(each.compare and each.repr for each in dataclasses.fields(made)), "is not supported here"
            return made

        return decorated


def _set(self: Any, name: str, value: Any) -> None:
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(cls))


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in _names(type(self))])  # type: ignore[arg-type]


def _equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{name}={getattr(self, name)!r}" for name in _names(type(self)))  # type: ignore[arg-type]
    return f"{type(self).__qualname__}({', '.join(values)})"


_SHARED = {"__setattr__": _set, "__delattr__": _delete, "__eq__": _equal, "__hash__": _hash, "__repr__": _repr}
