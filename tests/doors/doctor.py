from gputui.engine.doctor import Finding, gpu_findings, host_findings, libraries, tensorflow_check
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.doctor.python_process import Output
