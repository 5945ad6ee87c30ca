"""Deletes runs or proofs that a table lists: asks with the size, moves them into the trash, and brings them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import work

from ....engine.files.disk import used_bytes
from ....engine.runs.trash import delete_all
from ....engine.units import counted, size
from ...base.errors import clean
from ..base import FollowingScreen
from ..dialogs import Ask

if TYPE_CHECKING:
    from ....engine.runs.trash import Deletable, Trash

Reading = TypeVar("Reading")
FOR_GOOD = "Nothing can be kept to be brought back ({refusal}).\nDelete for good?"
NAMED = 8  # names in the question, at most


class DeletingScreen(FollowingScreen[Reading]):
    """A screen that deletes items of its table. `u` brings back the items deleted last; deleted items are removed when
    gputui quits.
    """

    DELETES: ClassVar[str]  # the name of its items, in the plural

    @property
    def trash(self) -> Trash:
        raise NotImplementedError

    async def ask_to_delete(self, chosen: Sequence[Deletable], question: Callable[[int], str]) -> None:
        """Ask the user, then delete the items; `question` makes the question's text from the items' total size in
        bytes.
        """
        sizes = await asyncio.to_thread(lambda: {item.id: used_bytes(item.path) for item in chosen})
        if await self.app.push_screen_wait(Ask(question(sum(sizes.values())), ("Delete", "Keep"))) != "Delete":
            return
        refusal = await asyncio.to_thread(self.trash.refusal, chosen[0].path.parent)
        for_good = Ask(FOR_GOOD.format(refusal=refusal), ("Delete for good", "Keep"))
        if not refusal or await self.app.push_screen_wait(for_good) == "Delete for good":
            self._delete(chosen, sizes, for_good=bool(refusal))

    @work(thread=True, group="deleting")
    def _delete(self, chosen: Sequence[Deletable], sizes: Mapping[str, int], for_good: bool) -> None:
        gone, refused = delete_all(chosen, self.trash.reserve) if for_good else self.trash.put(chosen)
        freed = size(sum(sizes[item.id] for item in gone))
        back = f"{self.app.key('undo')} brings {'them' if len(gone) > 1 else 'it'} back; quitting frees {freed}"
        what = f"deleted {counted(len(gone), self.DELETES)}"
        message = f"{what} for good: {freed} are free" if for_good else f"{what}; {back}"
        self._changed(message if gone else "", refused)

    def brought_back(self, back: Sequence[Deletable]) -> None:
        """Called in a thread with the items that were brought back."""

    @work(thread=True, group="deleting")
    def action_bring_back(self) -> None:
        back, refused = self.trash.bring_back()
        self.brought_back(back)
        message = f"{counted(len(back), self.DELETES)} {'were' if len(back) > 1 else 'was'} restored" if back else ""
        nothing = f"there is no deleted {self.DELETES.removesuffix('s')} to bring back"
        self._changed(message if back or refused else nothing, refused)

    def _changed(self, message: str, refused: Sequence[str]) -> None:
        """In the thread that deletes: show the message and the refusals, and begin the table's readings again."""
        if message:
            self.app.call_from_thread(self.notify, message, markup=False)
        for reason in refused:
            self.app.call_from_thread(self.notify, clean(reason), severity="error", markup=False)
        self.app.call_from_thread(self.read_again)


def listed(names: Sequence[str], about: Mapping[str, str]) -> str:
    """Return at most NAMED of the names, one per line with its remark in `about`, and the number of the others."""
    lines = "\n".join(f"  {name}{about.get(name, '')}" for name in names[:NAMED])
    return lines + (f"\n  and {len(names) - NAMED} more" if len(names) > NAMED else "")


def until_quitting(count: int, used: int, undo: str) -> str:
    """Return sentences that say how to bring the items back, and how many bytes become free when gputui quits."""
    them = "them" if count > 1 else "it"
    return f"Until you quit gputui, {undo} brings {them} back.\nQuitting frees {size(used)}."
