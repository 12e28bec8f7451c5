"""Room: how does a real language model plug in? The only room that imports transformers."""

from kvviz.models.language_model import LanguageModel
from kvviz.models.load import DEFAULT_MODEL, KnownModel, ModelStore, known_models, load, offered_models
from kvviz.models.memory import free_device_bytes
from kvviz.models.moving import on_accelerator
from kvviz.models.streaming import ByteStreamer

__all__ = [
    "DEFAULT_MODEL",
    "ByteStreamer",
    "KnownModel",
    "LanguageModel",
    "ModelStore",
    "free_device_bytes",
    "known_models",
    "load",
    "offered_models",
    "on_accelerator",
]
