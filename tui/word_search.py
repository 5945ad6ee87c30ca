"""Searches options, commands, presets and runs by words. A word matches the beginning of a word of an item; if no item
matches all so, any part of the texts. Ten thousand runs are searched at each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
NAME = "name"
_PART = 1000  # the least rank of a match with a part of a text


class Place(NamedTuple):
    """A text that is searched: `order` 0 is the most important of its item, `label` says what it is."""

    text: str
    lower: str
    order: int
    is_name: bool
    label: str


def place(text: str, order: int = 0, is_name: bool = True, label: str = NAME) -> Place:
    return Place(text, _lower(text), order, is_name, label)


class Match(NamedTuple):
    """The best place at which a word was found in an item: its rank (the least is best), its label and its text."""

    rank: int
    place: str
    text: str


class Hit(NamedTuple, Generic[Item]):
    """An item that matches all words, with the best match of each. `rank` is that of the worst."""

    item: Item
    words: tuple[str, ...] = ()
    matches: tuple[Match, ...] = ()
    rank: int = 0

    @property
    def elsewhere(self) -> Match | None:
        """The worst match, if it is in another place than a name; None if all words are in names."""
        worst = max(self.matches, key=lambda match: match.rank, default=None)
        return worst if worst is not None and worst.place != NAME else None


def search(
    text: str, items: Iterable[Item], places: Callable[[Item], Sequence[Place]], with_parts: bool = False
) -> list[Hit[Item]]:
    """Return matching items in their order; weaker matches only without stronger ones, or `with_parts`."""
    words = tuple(_lower(text).split())
    if not words:
        return [Hit(item) for item in items]
    items = list(items)
    for parts in (True,) if with_parts else (False, True):
        if hits := [hit for item in items if (hit := _hit(item, words, places(item), parts)) is not None]:
            return hits
    return []


def best_first(hits: Iterable[Hit[Item]]) -> list[Hit[Item]]:
    return sorted(hits, key=attrgetter("rank"))


def _hit(item: Item, words: tuple[str, ...], places: Sequence[Place], with_parts: bool) -> Hit[Item] | None:
    matches = []
    for word in words:
        if (best := _match(word, places, with_parts)) is None:
            return None
        matches.append(best)
    return Hit(item, words, tuple(matches), max(match.rank for match in matches))


def marked(text: str, words: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each place of the words: of the beginnings of words or, without one, of all."""
    lower = _lower(text)
    for word in words:
        places = list(_places(word, lower))
        begins = [at for at in places if _begins(text, at)]
        yield from ((at, at + len(word)) for at in begins or places)


def _lower(text: str) -> str:
    # The few letters whose small form is longer stay, so that positions are those of `text`.
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _places(word: str, lower: str) -> Iterator[int]:
    at = lower.find(word)
    while at >= 0:
        yield at
        at = lower.find(word, at + 1)


def _begins(text: str, at: int) -> bool:
    # `MirroredStrategy` is two words.
    return at == 0 or not text[at - 1].isalnum() or (text[at].isupper() and text[at - 1].islower())


@lru_cache(maxsize=64)
def _forms(word: str) -> tuple[str, ...]:
    # As it was typed, and as names are written, with _ in place of -.
    return tuple(dict.fromkeys((word, word.strip("-").replace("-", "_") or word)))


def _match(word: str, places: Sequence[Place], with_parts: bool) -> Match | None:
    """A whole name is better than its beginning, and that than a later word of it; names come first."""
    best: Match | None = None
    forms, highest = _forms(word), 2 * _PART  # the rank from which on a place cannot be better than `best`
    for text, lower, order, is_name, label in places:
        if is_name and lower in forms:
            return Match(int(label != NAME), label, text)
        least = 1 + 4 * order + (label != NAME)
        if highest <= least:
            continue
        for form in forms:
            at = lower.find(form)
            if at < 0:
                continue
            if at == 0 or any(_begins(text, at) for at in _places(form, lower)):
                rank = least + 2 * (is_name and at > 0)
            elif with_parts:
                rank = _PART + order
            else:
                continue
            if rank < highest:
                best, highest = Match(rank, label, text), rank
    return best
