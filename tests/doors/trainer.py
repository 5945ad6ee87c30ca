from gputui.engine import Monitor as engine_Monitor
from gputui.engine.trainer import __main__, assembly, exported, fork_server, session
from gputui.engine.trainer.checkpoint import callback_state, training_state
from gputui.engine.trainer.checkpoint.callback_state import Arrays
from gputui.engine.trainer.checkpoint.checkpoints import Checkpoints, NotWritten
from gputui.engine.trainer.checkpoint.object_graph import Collected, draws
from gputui.engine.trainer.checkpoint.training_state import State
from gputui.engine.trainer.cluster import exchange, rendezvous
from gputui.engine.trainer.cluster.connection_watch import LOST
from gputui.engine.trainer.cluster.exchange import Agreement, Exchange, Wishes
from gputui.engine.trainer.cluster.rendezvous import Hello, Meeting
from gputui.engine.trainer.common import model_facts, stopping, versions
from gputui.engine.trainer.common.stopping import ENGINE_GONE, ENGINE_LOST, ProcessExit, StopRequested, StopSwitch
from gputui.engine.trainer.common.training_errors import DataError, TrainerError
from gputui.engine.trainer.data import batching, finishing, pipeline, sources
from gputui.engine.trainer.data.batches import FitArguments, Share
from gputui.engine.trainer.data.pipeline import Pipeline
from gputui.engine.trainer.data.sources import Part, Source
from gputui.engine.trainer.data.stage_times import SOURCE, Stage, StageMeter, Timed
from gputui.engine.trainer.fit import epoch_rules, micro_batches, train_function, training_loop
from gputui.engine.trainer.fit.epoch_rules import save_as
from gputui.engine.trainer.fit.model_fit import FitData
from gputui.engine.trainer.fit.train_function import constant
from gputui.engine.trainer.fit.training_loop import TrainingLoop
from gputui.engine.trainer.measure import health, progress_reports, step_costs
from gputui.engine.trainer.measure.profile import LayerScopes, Profiler
from gputui.engine.trainer.measure.run_report import Moment, Plan, RunReport, Spent, StepClock
from gputui.engine.trainer.measure.step_parts import GraphClock
from gputui.engine.trainer.monitor import callback as monitor_callback
from gputui.engine.trainer.monitor.callback import Monitor as callback_Monitor
from gputui.engine.trainer.monitor.callback import LOOK, Life, WatchedFit
from gputui.engine.trainer.own import (
    building, dataset_facts, iterated, model_checks, py_dataset, returned, streams, unsaved_state,
)
from gputui.engine.trainer.own import previews as own_previews
from gputui.engine.trainer.own.iterated import Anew, Passes, Positions
from gputui.engine.trainer.own.returned import Returned, checked
from gputui.engine.trainer.own.user_code import UserError
from gputui.engine.trainer.own.user_pipeline import opened
from gputui.engine.trainer.prepare import work
from gputui.engine.trainer.prepare.work import Broken, Request, Samples
from gputui.engine.trainer.setup import (
    actual_settings, compiling, devices, environment, models,
)
from gputui.engine.trainer.setup.devices import Devices
from gputui.engine.trainer.setup.environment import Prepared, XlaCache
