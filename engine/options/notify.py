"""Where a notice is sent when a run or a measurement ends: the group `notify`."""

from typing import Annotated, ClassVar, Literal

from ..frozen import dataclass
from .catalogue import Group, Limits, check, option

NOT_EXPORTED = "a script sends no notice"
SCHEMES = ("https://", "http://")
BEGINNINGS = (*SCHEMES, "$")  # of an address: or a variable that holds it


@dataclass(frozen=True)
class Notify(Group):
    """Where a notice is sent when a run or a measurement ends. What the preset does not give is taken from the
    settings file, which also decides for the queue; the notice is described in docs/operations.md.
    """

    private: ClassVar[bool] = True

    command: Annotated[str, Limits(min_length=1)] | None = option(
        None,
        "a command of the shell that gets the notice, in variables of its environment and as JSON on standard input",
        helps="sends mail, or calls any program of yours",
        hurts="after 10 s it is ended, with its children",
        not_exported=NOT_EXPORTED,
        other_names="mail email sendmail hook callback on_end",
    )
    url: Annotated[str, Limits("an address that begins with https://, http:// or $NAME")] | None = option(
        None,
        "an address to which the notice is sent by HTTP POST; $NAME in it is a variable of the environment",
        helps="ntfy, Slack and other services show the notice on your phone or in a channel",
        hurts="an address with a token is a secret: keep it in the settings file or in a variable, not in a preset "
        "that you share",
        not_exported=NOT_EXPORTED,
        other_names="webhook slack ntfy mattermost teams alert",
    )
    format: Literal["text", "slack", "json"] | None = option(
        None,
        "the content that is sent to the address: plain text, JSON for Slack ({text: ...}), or all fields as JSON; "
        "not given: text",
        helps="text is right for ntfy, slack for Slack and Mattermost",
        not_exported=NOT_EXPORTED,
    )
    when: Literal["end", "failure", "never"] | None = option(
        None,
        "when a notice is sent: at each end, only after a failure, or never; not given: end",
        helps="failure: a sweep of many runs sends only what needs you",
        not_exported=NOT_EXPORTED,
    )

    @staticmethod
    @check("url")
    def _address(value: str | None) -> str | None:
        if value is None or value.startswith(BEGINNINGS):
            return value
        raise ValueError("not an address of HTTP")
