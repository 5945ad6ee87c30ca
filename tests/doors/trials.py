from gputui.engine.trials import (
    STAGES, comparing, proof_sentences, scaling_sentences, search_record, significance, sweep_groups, sweep_sentences,
    trial_preset, trial_runner,
)
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.rate_record import RateSettings, RateTest
from gputui.engine.trials.record import Comparison, Learning, Record, UNREAD, of_plain
from gputui.engine.trials.search_record import Candidate, Limits, LossCheck, Memory, Search
from gputui.engine.trials.sweep_record import (
    Axis, DONE, PROOF, RUNNING, Rival, SEARCH, STOPPED, Sweep, SweepSettings, SweepTrial, WAITING,
)
from gputui.engine.trials.trial import Trial
from gputui.engine.trials.trial_runner import Judge, LEAST_REPORTS, SpeedWatch, Stop, TrialRunner, below, outcome
