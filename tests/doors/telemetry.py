from gputui.engine.telemetry import chips, host, resource_limits
from gputui.engine.telemetry.gpu_totals import GpuTotals
from gputui.engine.telemetry.host import Children, Host
from gputui.engine.telemetry.nvml import gpm_nvlink
from gputui.engine.telemetry.nvml.gpm_nvlink import GPM_SHARES
from gputui.engine.telemetry.nvml.queries import NOT_AVAILABLE, PCIE, QUESTIONS
from gputui.engine.telemetry.nvml.reasons import Reason
from gputui.engine.telemetry.nvml.xid_errors import DriverError
from gputui.engine.telemetry.resource_limits import Ceilings
from gputui.engine.telemetry.sampler import ALL_LOST_HINT, GpuReader, Sampler
