from gputui.engine.process import ending, engine_failure, known_failures, launch, recovery, resuming, spawn, supervisor
from gputui.engine.process.ending import Ending, Evidence, classify, summary_of, with_hint
from gputui.engine.process.fork_client import ForkServer
from gputui.engine.process.known_failures import RESUMED
from gputui.engine.process.recovery import Answer, MOST_ANSWERS, oom_answer, record
from gputui.engine.process.spawn import LOCK, MOST_LEASES, Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.process.time_limits import Activity
