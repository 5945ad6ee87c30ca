from gputui.engine import __version__, checks, diagnosis, doctor, plan, presets, runs, units
from gputui.engine.compare import comparison
from gputui.engine.compare.comparison import LineUp, line_up, compare
from gputui.engine.diagnosis import RULES, VERDICTS, SteadyVerdict, collector, diagnose, rules
from gputui.engine.diagnosis.collector import Collector, Gpus
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.diagnosis.verdict import of_run as verdict_of_run
from gputui.engine.doctor import gpu_findings, host_findings, libraries, no_gpu, tensorflow_check
from gputui.engine.doctor.nvml_query import ExaminedGpu, NvmlAnswers
from gputui.engine.entry import EntryFault, examine
from gputui.engine.export import export_folder, own_code, script
from gputui.engine.export.data import DIGITS
from gputui.engine.export.export_folder import Exported, export
from gputui.engine.export.own_code import Form, RefusedError, stateful_draws
from gputui.engine.export.script import TITLE, to_script
from gputui.engine.export.engine_source import definitions
from gputui.engine.export.specialised import Partly
from gputui.engine.figures import Figure, LOSS, of_run as figures_of_run
from gputui.engine.files import appending, located_yaml, places, reading, run_numbers, typed, values, writing
from gputui.engine.files.appending import Gap, LineFile
from gputui.engine.files.places import TRIALS, home, runs_folder as places_runs_folder, proofs_folder
from gputui.engine.files.reading import GrowingFile, open_regular
from gputui.engine.files.writing import write_atomically
from gputui.engine.follow import following, following as follow_start, target, to_tensorboard
from gputui.engine.follow.following import Following, State, file_of, Place as place_Place, read_place
from gputui.engine.follow.target import AboutRun, Point, PointMaker, Target, about_run, without_login
from gputui.engine.follow.to_mlflow import EXPERIMENT, Mlflow
from gputui.engine.follow.to_prometheus import Prometheus, VARIABLE as to_prometheus_VARIABLE
from gputui.engine.follow.to_tensorboard import TensorBoard
from gputui.engine.follow.to_wandb import Wandb
from gputui.engine.follow_targets import FOLDER
from gputui.engine.finding import Finding
from gputui.engine.interpreter import compatibility, installed, interpreter, supported_versions
from gputui.engine.interpreter.interpreter import Interpreter
from gputui.engine.job import (
    cluster, environment_variables, machine_gpus, slurm, start_worker, this_machine,
)
from gputui.engine.job.cluster import ClusterError
from gputui.engine.gpu import VISIBLE, EccErrors, Gpu, GpuProcess, MigInstance, TrainingGpu, sole_holder
from gputui.engine.job.machine_gpus import Machine, allocation_from, candidates
from gputui.engine.job.slurm import SlurmJob
from gputui.engine.learning import has_learnt_badly
from gputui.engine.learning import judged as judged_learning
from gputui.engine.leases import gpu_use, records
from gputui.engine.leases.gpu_use import GpuUse
from gputui.engine.leases.records import Holder, NotFree, Ticket, CPU as lease_CPU
from gputui.engine.leases.gpu_use import NotMeasuredError, Wish
from gputui.engine.leases.gpu_use import Devices
from gputui.engine.notify import sending, targets
from gputui.engine.notify.sending import Notice
from gputui.engine.notify.targets import Targets
from gputui.engine.options import (
    BY_KEY, GROUPS, OPTIONS, OptionInfo, Options, SCHEMA_VERSION, gpu_choice, input, options_json, resolve_key,
    watch_rules,
)
from gputui.engine.options.catalogue import About, Group, catalogue
from gputui.engine.options.own_code import OWN_CODE_LABELS, Handed, obstacle
from gputui.engine.options.synonyms import keys_of, option_meant
from gputui.engine.options.validation import validated
from gputui.engine.prepare import manifest, request as prepare_request, preparing
from gputui.engine.prepare.manifest import Manifest, Written
from gputui.engine.prepare.preparing import Estimate, Progress as preparing_Progress
from gputui.engine.prepare.request import PrepareError, of, Request as prepare_request_Request
from gputui.engine.presets import (
    Preset, defaults, paths, PresetError as presets_PresetError, resolve, resolving, saving,
)
from gputui.engine.presets.preset import Problem, PresetError as preset_PresetError
from gputui.engine.presets.saving import SaveError
from gputui.engine.process import ending, known_failures, launch, resuming, spawn, supervisor
from gputui.engine.process.ending import Ending, Evidence, classify, summary_of, with_hint
from gputui.engine.process.launch import ForkServer
from gputui.engine.process.known_failures import RESUMED
from gputui.engine.process.recovery import Answer, MOST_ANSWERS, oom_answer, record as recovery_record
from gputui.engine.process.spawn import LOCK, MOST_LEASES, Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.process.time_limits import Activity
from gputui.engine.process.watching import Watch
from gputui.engine.profile import reports, xprof_process
from gputui.engine.profile.reports import ProfileError, ProfileReport, read as reports_read
from gputui.engine.proof import (
    duration, folder, improved_preset, proof_loop, process as proof_process, request as proof_request,
    proof_start,
)
from gputui.engine.proof.folder import Proof
from gputui.engine.trials.report import as_markdown, chapters
from gputui.engine.proof.measurement import Measurement, OutOfTime
from gputui.engine.proof.proof_loop import Prover
from gputui.engine.proof.request import ProofError, Request as proof_request_Request
from gputui.engine.queue import (
    adding, entries, entry_changes, forecast, queue_devices, jobs, queue_settings, start as queue_start, runner,
    slurm_job, slurm_queue,
)
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.forecast import Begun, Durations, Expected, FairShare, start_times
from gputui.engine.queue.entries import Device as queue_devices_Device
from gputui.engine.queue.queue_devices import DeviceReader, CPU as queue_devices_CPU
from gputui.engine.queue.jobs import SLURM_LOG
from gputui.engine.queue.queue_settings import Settings
from gputui.engine.queue.runner import BEGUN, NOT_FREE, REFUSED, Runner
from gputui.engine.runs import (
    Run, RunError, all_runs, checkpoint_files, code_copy, code_files, create_at, events, folders, history,
    launched_with, parsing, part_of_sweep, results, run, run_cluster, Tail as runs_Tail,
    runs_folder as runs_runs_folder, title as runs_title, titles,
)
from gputui.engine.runs.checkpoint_files import Damage, MANIFEST, path_of, seal, steps_in, verify, whole_step
from gputui.engine.runs.event_reading import Tail as event_reading_Tail, read_events
from gputui.engine.runs.events import (
    Allocator, Diagnosis, EVENTS_FILE, EVENT_FILES, EpochEnd, Event, Finished, HostReading, MemoryAnswer, Outcome,
    Phase, PhaseName, Started, Summary, TELEMETRY_FILE, Warn, XlaAnswer, Best as events_Best, Fault as events_Fault,
    Progress as events_Progress, fields_of,
)
from gputui.engine.runs.launched_with import options_of, python_of
from gputui.engine.runs.run import Liveness
from gputui.engine.runs import previews
from gputui.engine.runs.parsing import EventWriter, dated, recalled
from gputui.engine.runs.results import Report
from gputui.engine.runs.run import StateName, WAITING as run_WAITING
from gputui.engine.runs.run_state import Epoch, RunState
from gputui.engine.runs.run_cluster import Cluster, port_of
from gputui.engine.runs.titles import Notes, Title, record as titles_record, title as titles_title
from gputui.engine.runs.trash import Trash, delete_all, sweep
from gputui.engine.scaling import rounds, rounds as copies
from gputui.engine.sweep import shared_study, decision as sweep_decision, sweep_loop, sweep_request, swept_values
from gputui.engine.sweep.shared_study import Claims, SharedStudy
from gputui.engine.sweep.sweep_loop import SweepLoop, SweepTime
from gputui.engine.sweep.trainings import ABSENT, Figures, Look, QueuedTrainings
from gputui.engine.system import (
    descendants, identity, import_cost, locks, proc, process_memory, stop_signals,
)
from gputui.engine.system.child_process import BackgroundCalls
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.identity import Process, Place as identity_Place
from gputui.engine.system.locks import ENGINE_LOCK, LEASED, Lock, PROOF_LOCK
from gputui.engine.system.process_memory import Peaks
from gputui.engine.system.run_clock import RunClock, VARIABLE as run_clock_VARIABLE, steady
from gputui.engine.telemetry import chips, resource_limits, sampler
from gputui.engine.telemetry.gpu_totals import GpuTotals
from gputui.engine.telemetry.host import Children, Host
from gputui.engine.telemetry.nvml import connection, gpm_nvlink, queries, reasons
from gputui.engine.telemetry.nvml.gpm_nvlink import GPM_SHARES
from gputui.engine.telemetry.nvml.queries import NOT_AVAILABLE, PCIE, QUESTIONS
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable, Reason
from gputui.engine.telemetry.nvml.xid_errors import DriverError
from gputui.engine.telemetry.resource_limits import Ceilings
from gputui.engine.telemetry.sampler import GpuReader, Sampler
from gputui.engine.trials import (
    STAGES, comparing, proof_sentences, record, significance, sweep_record,
    trial_preset, trial_runner,
)
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.kinds import KINDS, Kind
from gputui.engine.trials.record import (
    Candidate, Learning, Limits, LossCheck, Memory, Record, Search, Trial, UNREAD, Comparison as record_Comparison,
)
from gputui.engine.trials.sweep_record import (
    DONE, PROOF, RUNNING, Rival, SEARCH, STOPPED, Sweep, SweepSettings, SweepTrial, Axis as sweep_record_Axis,
    WAITING as sweep_record_WAITING,
)
from gputui.engine.trials.trial_runner import Judge, LEAST_REPORTS, SpeedWatch, Stop, TrialRunner, below, outcome
from gputui.engine.tune import losses, memory_model, screening, search as tune_search, stages, tune_request
from gputui.engine.tune.losses import Data, Length, affordable
from gputui.engine.tune.memory_model import MemoryModel, ROOM
from gputui.engine.tune.rate_test import rate_at, suggest
from gputui.engine.trials import search_results
from gputui.engine.trials.search_results import largest_error
from gputui.engine.trials.search_results import brought
from gputui.engine.tune.screening import Screening, Best as judgement_Best
from gputui.engine.tune.search import Searcher
from gputui.engine.tune.search_space import Space
from gputui.engine.tune.stages import STEP
from gputui.engine.tune.tune_request import TimePlan
from gputui.engine.tune.wide import storage, study
from gputui.engine.tune.wide.storage import StudyError
from gputui.engine.tune.wide.study import Proposal, SettingsResult, Study, Axis as search_axes_Axis
from gputui.engine.tune.wide.wide_search import (
    Combinations, Place as wide_search_Place, axes_of, measure_at_once, undisturbed,
)
from gputui.engine.units import clock
