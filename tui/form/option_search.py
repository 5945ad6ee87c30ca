"""Searches options by words, the best match first: in the name, then in other names, in the values, in the help, and in
the TensorFlow call, by the rules of `word_search`."""

from __future__ import annotations

from functools import cache

from ...engine.options import OPTIONS, OptionInfo
from ...engine.options.catalogue import nearest
from ...engine.options.synonyms import SYNONYMS, keys_of, synonyms_of
from .. import word_search
from ..word_search import NAME, Hit, Place, best_first, marked, place

OTHER_NAME, VALUE, HELP, CALL = "also", "takes", "help", "calls"


def search(words: str) -> list[Hit[OptionInfo]]:
    """Return the options that match every word, the best first; of equal ones those with the words in their names."""
    order = {key: number for number, key in enumerate(keys_of(words))}
    hits = word_search.search(words, OPTIONS, lambda info: _places(info.key))
    return best_first(sorted(hits, key=lambda hit: order.get(hit.item.key, len(order))))


def suggestion(words: str) -> str:
    """Return the most similar name of an option, for a search without results; empty if no name is similar."""
    names = [name for info in OPTIONS for name in (info.name, info.key)]
    return nearest(words.strip().lower().replace(" ", "_"), [*names, *SYNONYMS]) or ""


def around(text: str, words: tuple[str, ...], width: int, more: str = "…") -> str:
    """Return the part of the text, within `width`, that shows the first of the words. `more` marks a cut end."""
    if len(text) <= width:
        return text
    at, end = next(marked(text, words), (0, 0))
    room = max(0, width - 2 * len(more))
    if end <= room:
        return text[: width - len(more)] + more
    begin = text.rfind(" ", 0, max(0, at - room // 3)) + 1
    begin = begin if end - begin <= room else at
    rest = text[begin:]
    return more + (rest if len(rest) <= room else rest[:room] + more)


_INFO = {info.key: info for info in OPTIONS}


@cache
def _places(key: str) -> tuple[Place, ...]:
    """The texts to search, the most important first. Another name that stands in the key counts as the name."""
    info = _INFO[key]
    others = ((other, NAME if other in key else OTHER_NAME) for other in synonyms_of(key))
    about = info.about
    return (
        place(info.name, 0),
        place(key, 1),
        *(place(other, 2, label=label) for other, label in others),
        *(place(value, 3, False, VALUE) for value in info.choices),
        *(place(text, 4, False, HELP) for text in (about.help, about.helps, about.hurts, about.unit) if text),
        place(about.call, 5, False, CALL),
    )
