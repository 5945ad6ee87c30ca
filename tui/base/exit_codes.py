"""The exit codes of the command.

0 done; 1 the training failed; 2 a wrong command line or preset; 3 out of memory; 74 the output could not be written;
75 the job's scheduler has ended a run that can be resumed; 130 interrupted.
"""

DONE, FAILED, WRONG, OUT_OF_MEMORY, INTERRUPTED = 0, 1, 2, 3, 130
NOT_WRITTEN = 74  # EX_IOERR of sysexits.h: an error of input or output
TO_BE_RESUMED = 75  # EX_TEMPFAIL of sysexits.h: to be tried again
_BY_OUTCOME = {"ok": DONE, "oom": OUT_OF_MEMORY, "stopped": INTERRUPTED}


def exit_code(outcome: str | None) -> int:
    """The exit code for the outcome of a run."""
    return _BY_OUTCOME.get(outcome or "", FAILED)
