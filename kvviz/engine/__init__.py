"""Room: do it and tell. Runs, comparisons and scores become events; tensors become numpy here, once."""

from kvviz.engine.calibrate import calibrate
from kvviz.engine.compare import compare
from kvviz.engine.comparing import comparing
from kvviz.engine.corpus import NAMED_TEXTS, Corpus, load_text
from kvviz.engine.replay import exact_tile, logit_map
from kvviz.engine.run import check_request, run
from kvviz.engine.score import ScoreResult, score, scoring
from kvviz.engine.summary import summarize
from kvviz.models import (
    KnownModel,
    LanguageModel,
    ModelStore,
    free_device_bytes,
    known_models,
    offered_models,
    on_accelerator,
)
from kvviz.models import load as load_model

__all__ = [
    "NAMED_TEXTS",
    "Corpus",
    "KnownModel",
    "LanguageModel",
    "ModelStore",
    "ScoreResult",
    "calibrate",
    "check_request",
    "compare",
    "comparing",
    "exact_tile",
    "free_device_bytes",
    "known_models",
    "load_model",
    "load_text",
    "logit_map",
    "offered_models",
    "on_accelerator",
    "run",
    "score",
    "scoring",
    "summarize",
]
