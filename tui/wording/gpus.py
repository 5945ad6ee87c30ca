"""What the command and the screens say about GPUs and their processes."""

HOW_IDLE = "at no look of gputui since then did the process use the GPU, and in between it used nearly no CPU time"
