"""Experiments, tuning, figures and the reproduction of the paper; not needed to use a model."""

from coldhash.lab.experiment import Experiment as Experiment
from coldhash.lab.experiment import ModelPlan as ModelPlan
from coldhash.lab.printed import PrintedMFDCF as PrintedMFDCF
from coldhash.lab.runner import Results as Results
from coldhash.lab.runner import run_experiment as run_experiment
from coldhash.lab.tuning import Attempt as Attempt
from coldhash.lab.tuning import Range as Range
from coldhash.lab.tuning import Study as Study
from coldhash.lab.tuning import StudyResult as StudyResult
from coldhash.lab.tuning import run_study as run_study
