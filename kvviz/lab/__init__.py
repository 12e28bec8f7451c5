"""Room: is it true? Experiments on the live model, each one question: settings in, a result out."""

from kvviz.lab.laboratory import experiment_names, experiments, perform

__all__ = ["experiment_names", "experiments", "perform"]
