"""Searches options by words. The best match comes first, and each hit has the places at which its words were found.

A word is searched in the name, then in other names, in the values of the option, in its help, and in its TensorFlow
call. It must match the beginning of a word of the text. If no option matches so, any part of the text may match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ...engine.options import OPTIONS, OptionInfo
from ...engine.options.catalogue import nearest
from ...engine.options.synonyms import SYNONYMS, keys_of, synonyms_of

NAME, OTHER_NAME, VALUE, HELP, CALL = "name", "also", "takes", "help", "calls"
_WHOLE, _BEGINS, _INSIDE, _IN_KEY, _OTHER, _VALUE, _HELP, _CALL = range(8)


@dataclass(frozen=True)
class Match:
    """The best place at which a word of a search was found in an option: its rank (the least is best), its name and its
    text.
    """

    rank: int
    place: str
    text: str


@dataclass(frozen=True)
class Hit:
    """An option that matches all words of a search, with the best match of each word."""

    info: OptionInfo
    words: tuple[str, ...]
    matches: tuple[Match, ...]

    @property
    def rank(self) -> int:
        """The greatest rank of its matches, so that of the worst."""
        return max((match.rank for match in self.matches), default=_WHOLE)

    @cached_property
    def elsewhere(self) -> Match | None:
        """The worst match, whose text is shown next to the option's name. None if all words are in the name or its
        group.
        """
        worst = max(self.matches, key=lambda match: match.rank, default=None)
        return worst if worst is not None and worst.place != NAME else None


def search(words: str) -> list[Hit]:
    """Return the options that match every word, the best first. Among options that match equally, those with the words
    in their names come first.

    A word must match the beginning of a word of the option. If no option does so, any part of the text may match.
    """
    terms = tuple(words.lower().split())
    hits = _hits(terms, _begins) or _hits(terms, _contains)
    meant = keys_of(words)  # of several options with this other name, the most usual comes first
    order = {key: number for number, key in enumerate(meant)}
    return sorted(hits, key=lambda hit: (hit.rank, hit.elsewhere is not None, order.get(hit.info.key, len(order))))


def suggestion(words: str) -> str:
    """Return the most similar name of an option, for a search without results. Return an empty text if no name is
    similar.
    """
    names = [name for info in OPTIONS for name in (info.name, info.key)]
    return nearest(words.strip().lower().replace(" ", "_"), [*names, *SYNONYMS]) or ""


def marked(text: str, words: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each place in the text at which one of the words stands, as positions from 0. Beginnings
    of words are preferred. Upper and lower case are not distinguished in the text.
    """
    lower = text.lower()
    for word in words:
        places = [match.span() for match in re.finditer(_BEGIN + re.escape(word), lower)]
        yield from places or [match.span() for match in re.finditer(re.escape(word), lower)]


def around(text: str, words: tuple[str, ...], width: int, more: str = "…") -> str:
    """Return a part of the text, at most `width` characters, that shows the first of the words. `more` marks a cut
    end.
    """
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


_BEGIN = r"(?<![a-z0-9])"  # of a word
Fits = Callable[[str, str], bool]


def _begins(word: str, text: str) -> bool:
    """Return True if `word` (in lower case) is the beginning of a word in the text. `MirroredStrategy` counts as two
    words.
    """
    return re.search(_BEGIN + re.escape(word), re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()) is not None


def _contains(word: str, text: str) -> bool:
    return word in text.lower()


def _hits(words: tuple[str, ...], fits: Fits) -> list[Hit]:
    return [hit for info in OPTIONS if (hit := _hit(info, words, fits)) is not None]


def _hit(info: OptionInfo, words: tuple[str, ...], fits: Fits) -> Hit | None:
    matches = [next(_matches(info, word, fits), None) for word in words]
    return Hit(info, words, tuple(filter(None, matches))) if None not in matches else None


def _matches(info: OptionInfo, word: str, fits: Fits) -> Iterator[Match]:
    """Yield a match for each place of an option (name, group, other names, values, help, TensorFlow call) at which the
    word is found, the best match first. `fits(word, text)` returns whether a text contains the word.
    """
    others, about = synonyms_of(info.key), info.about
    plain = word.strip("-").replace("-", "_")
    if word in (info.name, info.key):
        yield Match(_WHOLE, NAME, info.key)
    if plain in others:
        yield Match(_WHOLE, NAME if plain in info.key else OTHER_NAME, plain)
    in_name = (
        (_BEGINS, info.name.startswith(plain)),
        (_INSIDE, fits(plain, info.name)),
        (_IN_KEY, fits(word, info.key)),
    )
    yield from (Match(rank, NAME, info.key) for rank, is_there in in_name if is_there)
    yield from (Match(_OTHER, OTHER_NAME, other) for other in others if other.startswith(plain))
    yield from (Match(_VALUE, VALUE, value) for value in info.choices if fits(word, value))
    texts = (about.help, about.helps, about.hurts, about.unit)
    yield from (Match(_HELP, HELP, text) for text in texts if fits(word, text))
    if fits(word, about.call):
        yield Match(_CALL, CALL, about.call)
