from gputui.engine.proof import (
    duration, folder, improved_preset, markdown, process, proof_start, request, trial_diagnosis,
)
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.process import Site
from gputui.engine.proof.proof_loop import Prover
from gputui.engine.proof.request import ProofError, Request
