from gputui.engine.runs import (
    Run, RunError, Tail as runs_Tail, all_runs, checkpoint_files, code_copy, code_files, control, create_at,
    event_reading, events, folders, history, launched_with, liveness, parsing, part_of_sweep, results, run_cluster,
    runs_folder, title as runs_title, titles,
)
from gputui.engine.runs.checkpoint_files import Damage, MANIFEST, path_of, seal, steps_in, verify, whole_step
from gputui.engine.runs.event_reading import Follower, Tail as event_reading_Tail, read_events
from gputui.engine.runs.events import (
    Allocator, Best, Diagnosis, EVENTS_FILE, EVENT_FILES, EpochEnd, Event, Fault, Finished, GradientExchange,
    HostReading, MemoryAnswer, Outcome, Phase, PhaseName, Progress, Started, Summary, TELEMETRY_FILE, Warn,
    WorkerReadings, XlaAnswer, fields_of,
)
from gputui.engine.runs.launched_with import options_of, python_of
from gputui.engine.runs.liveness import Liveness
from gputui.engine.runs.parsing import EventWriter, dated, recalled
from gputui.engine.runs.results import Report
from gputui.engine.runs.run import RunState, WAITING
from gputui.engine.runs.run_cluster import Cluster, port_of
from gputui.engine.runs.titles import Notes, Title, record, title as titles_title, with_name
from gputui.engine.runs.trash import Trash, delete_all, sweep
