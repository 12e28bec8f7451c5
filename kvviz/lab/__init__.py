"""Room: is it true? Experiments on the live model, each one question: settings in, a result out."""

from kvviz.lab.laboratory import experiment_names, experiments, perform
from kvviz.lab.quality import FULL_SLICE

__all__ = ["FULL_SLICE", "experiment_names", "experiments", "perform"]
