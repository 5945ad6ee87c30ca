"""Thresholds that no rule names: what counts as busy, crowded, slow, hot, low on memory. Shares are 0 to 1; a source is
named if it is not gputui.
"""

from __future__ import annotations

# ---- how much has to be measured

LEAST_SECONDS = 0.5  # of a run that has ended: a delay of 20 ms is then 4 %, so only deciding thresholds count
ENOUGH_SECONDS = 2.0  # of measured steps: below it small shares may be chance
SURE_SECONDS = 10.0  # from here on more time adds no confidence
WINDOW_MS = 50.0  # the shortest time that a reading of the step time covers (trainer/measure/clock.py)
ENOUGH_WINDOWS = 200  # SageMaker requires more than 10 slow steps, which are 5 % of this many readings
AGREES = 0.10  # ablation and input wait measure the same thing in two ways

# ---- the host

CORES_BUSY = 0.90  # share of all cores: above it no more input can be prepared
OTHERS_NOTABLE, CORES_SHORT = 0.10, 0.75  # shares of all cores: used by other programs, and in total
DISK_WAITED = 0.30  # share of all cores' time; a mean of 30 % includes moments at SageMaker Debugger's 50 %
READS_BYTES = 1e6  # per second: below it the disk does not wait for the training's reads
MUCH_PYTHON = 0.15  # share of the step from which Python decides
LONG_PAUSE_SECONDS = 10.0  # a pause that counts even if it happened only once
COPIES_ALL_THE_TIME = 0.90  # share of the step: with copies ahead of the steps, the longer of both decides

# ---- the GPU

GPU_WORKS, GPU_FULL = 0.70, 0.90  # NVML's utilization: SageMaker's threshold, and one of a GPU that never waits
# Share of the multiprocessors with work, mean over the time. NVIDIA's DCGM guide ("SM Activity"): at least 0.8 if a GPU
# is used well, less than 0.5 if it is likely not used well. Only values far below the latter count here.
SM_FEW, SM_FULL = 0.40, 0.80
TENSOR_FULL = 0.50  # share of the time: from here on computing limits the speed at least as much as memory
COMPUTES = 0.80  # share of the step: the rest is too small to limit the speed
POWER_EXPLAINS = 0.50  # share of the time at the power limit, from which the limit explains a low clock
LOWERED = 0.95  # of the default power limit; a limit below it was set by a person
HOT = 0.10  # share of the readings, from which heat is the cause of a low clock, which has a verdict of its own

# ---- several GPUs or workers

BUSY_APART, CLOCK_APART = 0.20, 0.10  # differences between GPUs, of the busy time and of the clock
CAUSE_APART = 0.10  # a throttle reason that a GPU has in more of its readings than the others is a cause of its own
CLOCK_COUNTS = 0.5  # busy share of a reading from which its clock counts: an idle GPU lowers its clock
LEAST_CLOCKS = 5  # readings for a mean clock
WAITS_APART = 0.10  # share of the step by which one worker waits longer for its input than the others
IDLE_BUSY, IDLE_MEMORY_SHARE = 0.05, 0.05  # a GPU below this use, and with less memory in use, is free
SCREEN_BYTES = 1024**3  # a screen and its programs take less of a GPU's memory

# ---- remedies

FEW_STEPS = 16  # steps in one execution: more hardly shorten a step (gputui's mlp on a CPU: 622 us at 1, 228 us at 50)
ROOM_FOR_BATCH = 0.45  # share of the memory that TensorFlow may take: below it a batch of twice the size fits
ROOM_FOR_CACHE = 0.5  # share of the free host memory that a cache may take
STAGE_WORTH = 0.05  # share of the input's time from which a stage is worth a remedy
BYTE_SHARE = 0.25  # of float32: the size of a sample that is copied as bytes
