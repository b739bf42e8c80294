"""Experiments, tuning, figures and the reproduction of the paper; not needed to use a model."""

from coldhash.lab.experiment import Experiment, ModelPlan
from coldhash.lab.figures import Line, Panel, draw, save
from coldhash.lab.printed import PrintedMFDCF
from coldhash.lab.results_log import Results
from coldhash.lab.runner import run_experiment
from coldhash.lab.study import Attempt, Choices, Range, Study, StudyResult
from coldhash.lab.tuning import run_study

__all__ = [
    "Attempt",
    "Choices",
    "Experiment",
    "Line",
    "ModelPlan",
    "Panel",
    "PrintedMFDCF",
    "Range",
    "Results",
    "Study",
    "StudyResult",
    "draw",
    "run_experiment",
    "run_study",
    "save",
]
