"""The processes of `gputui prepare` that read, decode and write samples; they are started by engine/prepare/."""
