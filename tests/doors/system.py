from gputui.engine.system import descendants, git_state, identity, import_cost, locks, process_memory, stop_signals
from gputui.engine.system.background_call import BackgroundCalls
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.identity import Place, Process
from gputui.engine.system.locks import ENGINE_LOCK, LEASED, Lock, PROOF_LOCK
from gputui.engine.system.process_memory import Peaks
from gputui.engine.system.run_clock import RunClock, VARIABLE, steady
