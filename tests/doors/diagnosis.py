from gputui.engine.diagnosis import (
    RULES, SUPPORTING, VERDICTS, collector, diagnose, remedies as diagnosis_remedies, remedies_input, rules, stragglers,
    verdict,
)
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.gpu_accumulators import Gpus
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.diagnosis.remedies import Remedy
from gputui.engine.diagnosis.rules import findings
from gputui.engine.diagnosis.verdict import ORDER, of_run, remedies as verdict_remedies
