from gputui.engine.follow import batches, following, process, start, tfevents, to_tensorboard
from gputui.engine.follow.following import Following
from gputui.engine.follow.place import Place, State, file_of, read_place
from gputui.engine.follow.points import Point, PointMaker
from gputui.engine.follow.target import AboutRun, Target, about_run, without_login
from gputui.engine.follow.to_mlflow import EXPERIMENT, Mlflow
from gputui.engine.follow.to_prometheus import Prometheus, VARIABLE
from gputui.engine.follow.to_tensorboard import TensorBoard
from gputui.engine.follow.to_wandb import Wandb
