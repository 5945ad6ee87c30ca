from gputui.engine.tune import decision, losses, memory_model, tune_request
from gputui.engine.tune.candidates import judgement
from gputui.engine.tune.candidates.judgement import Best
from gputui.engine.tune.candidates.screening import Screening
from gputui.engine.tune.candidates.search_space import Space
from gputui.engine.tune.candidates.search_trials import OutOfTime, Place, SideBySide, TrialRequest, Trials, undisturbed
from gputui.engine.tune.dry_run import Prediction
from gputui.engine.tune.losses import Data, Length, affordable
from gputui.engine.tune.memory_model import MemoryModel, ROOM
from gputui.engine.tune.rate import rate_request, rate_test
from gputui.engine.tune.rate.suggestion import rate_at, suggest
from gputui.engine.tune.report import search_results
from gputui.engine.tune.report.memory_sentences import largest_error
from gputui.engine.tune.report.search_results import brought
from gputui.engine.tune.search import Searcher
from gputui.engine.tune.stages import recheck
from gputui.engine.tune.stages.batch_size import BatchSize, STEP
from gputui.engine.tune.time_plan import DECISION_SHARE, TimePlan
from gputui.engine.tune.wide import members, storage
from gputui.engine.tune.wide.search_axes import Axis, Combinations, axes_of
from gputui.engine.tune.wide.storage import StudyError
from gputui.engine.tune.wide.study import Proposal, SettingsResult, Study
