from gputui.engine.job import (
    allocation, cluster, environment_variables, several_tasks, slurm, slurm_programs, start_worker, this_machine,
    visible_devices,
)
from gputui.engine.job.cluster import ClusterError
from gputui.engine.job.machine_gpus import Answers, Fault, Gpu, Instance, Machine
from gputui.engine.job.several_tasks import read
from gputui.engine.job.slurm_programs import SlurmJob
from gputui.engine.job.training_gpus import candidates
from gputui.engine.job.visible_devices import Device, Shown, VARIABLE
