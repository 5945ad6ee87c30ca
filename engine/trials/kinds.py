"""The kinds of measurements, each declared once: its module, what it is called, and what views say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A new kind needs an entry in KINDS, and a module with `measure(measurement)`. If it fills `answer` and `sections`
    of its record, the screen of a proof, the printed result and the report show them.
    """

    module: str = "gputui.engine.proof.proof_loop"  # its `measure` carries it out
    noun: str = "proof"
    about: str = ""  # in the head of its screen
    title: str = ""  # of its report, if another
    question: str = ""  # in its report, as the next
    method: str = ""
    extent: str = "pairs of trials of {:g} s"  # what its repeats are; {} are the measured seconds of each trial
    trials: int = 2  # in a repeat
    purpose: str = ""  # the first sentence of the help of a command that is made for it, with --preset and --repeats
    command: str = ""  # words after `gputui`, if not its name
    screen: str = "proof"
    nothing: str = "nothing was proved to be faster"  # why there is no improved preset
    uses_all_gpus: bool = False  # also those on which a single training would not train
    resumes: bool = False  # by `gputui NAME --resume`
    learns: bool = False  # its trials are whole trainings for their loss, which nothing beside them changes
    full_noun: str = "a proof"
    ended: str = "gputui proof {} shows it"  # what shows or continues one that has ended


KINDS = {
    "ab": Kind(title="Before and after", about="one change", question="whether one change makes the training faster"),
    "loop": Kind(
        title="Faster, one change at a time",
        about="one change after another",
        question="what makes the training faster: the remedies of the diagnosis, one by one",
        command="diagnose --apply",
    ),
    "diagnosis": Kind(
        about="what the input costs",
        question="what limits the speed, and what its input costs",
        command="diagnose",
        trials=0,
    ),
    "tune": Kind(
        "gputui.engine.tune.search",
        noun="search",
        about="the fastest settings",
        question="the fastest settings of this training that this machine allows",
        screen="tune",
        uses_all_gpus=True,
        resumes=True,
        full_noun="a search",
        ended="gputui tune --resume {} --minutes N gives it N more minutes",
    ),
    "scaling": Kind(
        "gputui.engine.scaling.rounds",
        about="how well it scales",
        screen="scaling",
        nothing="no number of runs on one GPU was proved to pay",
        extent="rounds of trials of {:g} s",
        uses_all_gpus=True,
        resumes=True,
        full_noun="a measurement of scaling",
    ),
    "rate": Kind(
        "gputui.engine.tune.rate_test",
        noun="range test",
        about="which learning rate",
        question="with which learning rate the training learns best (`--learning-rate-test`)",
        command="tune --learning-rate-test",
        extent="pairs of trainings",
        learns=True,
        full_noun="a learning-rate test",
        nothing="no other rate was proved to learn better",
    ),
    "sweep": Kind(
        "gputui.engine.sweep.sweep_loop",
        noun="sweep",
        about="which settings learn best",
        screen="sweep",
        extent="",
        resumes=True,
        nothing="the sweep has not ended with a best setting",
        full_noun="a sweep",
        ended="gputui sweep --resume ID --minutes N goes on with it",
    ),
}

_COMMANDS = dict.fromkeys((declared.command or name).split()[0] for name, declared in KINDS.items())
MAKERS = f"gputui {', '.join(_COMMANDS)} and fit-batch make them"  # proofs


def kind(name: str) -> Kind:
    """Return the declaration of a kind; of one that a newer version has written, what is said of any proof."""
    return KINDS.get(name, Kind())
