from gputui.engine.leases import free_gpus, lease, memory_needs, start_devices, tickets
from gputui.engine.leases.free_gpus import GpuUse, GpuUser, Wish, name_of
from gputui.engine.leases.lease import CPU, Holder, NotFree
from gputui.engine.leases.memory_needs import NotMeasuredError
from gputui.engine.leases.start_devices import Devices
from gputui.engine.leases.tickets import Ticket
