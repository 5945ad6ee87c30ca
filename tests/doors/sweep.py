from gputui.engine.sweep import claims, decision, halving, preset_block, shared_study, sweep_request, swept_values
from gputui.engine.sweep.claims import Claims
from gputui.engine.sweep.metric import Figures
from gputui.engine.sweep.shared_study import Alone, SharedStudy
from gputui.engine.sweep.sweep_loop import SweepLoop
from gputui.engine.sweep.sweep_time import SweepTime
from gputui.engine.sweep.trainings import ABSENT, Look, QueuedTrainings
