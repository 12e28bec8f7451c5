"""Room: how does a real language model plug in? The only room that imports transformers."""

from kvviz.models.language_model import LanguageModel
from kvviz.models.load import DEFAULT_MODEL, KnownModel, ModelStore, known_models, load
from kvviz.models.streaming import ByteStreamer

__all__ = [
    "DEFAULT_MODEL",
    "ByteStreamer",
    "KnownModel",
    "LanguageModel",
    "ModelStore",
    "known_models",
    "load",
]
