"""The colours of curves, and the colour of each run, which is the same in lists, titles, charts and comparisons."""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = 8  # of curves and runs: the styles curve1 to curve8


def colour_of(number: int | None) -> int:
    return 0 if number is None else (number - 1) % COLOURS


def style_of(number: int | None) -> str:
    return "title" if number is None else f"curve{colour_of(number) + 1}"


def in_one_chart(numbers: Sequence[int | None]) -> list[int]:
    """Return each run's own colour or, if an earlier run has it, the next free one, as long as there is one."""
    colours: dict[int, int] = {}
    for at, number in enumerate(numbers):
        if number is not None and colour_of(number) not in colours.values():
            colours[at] = colour_of(number)
    for at in (at for at in range(len(numbers)) if at not in colours):
        usual = colour_of(numbers[at])
        nearest = ((usual + by) % COLOURS for by in range(COLOURS))
        colours[at] = next((colour for colour in nearest if colour not in colours.values()), usual)
    return [colours[at] for at in range(len(numbers))]
