"""Runs that have ended as a comparison without a scored text: the same numbers, from their records.

Knows records and what a comparison keeps of them; runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.comparison import Comparison, Entry
from kvviz.comparison_request import ComparisonRequest
from kvviz.config import RunConfig
from kvviz.engine.comparing import generation, machine_of, versions
from kvviz.errors import KvvizError
from kvviz.record import RunRecord


def summarize(records: Sequence[RunRecord], created: str) -> Comparison:
    """What runs of one request came to. ``created`` is when they began (UTC, ISO 8601).

    Raises:
        KvvizError: nothing has run yet, or something still runs.
    """
    if any(record.model is None or record.is_live for record in records):
        raise KvvizError("file_not_ended")
    configs = [RunConfig.from_dict(record.config) for record in records]
    first, model = configs[0], records[0].model
    assert model is not None
    request = ComparisonRequest(
        prompt=first.prompt,
        configurations=tuple((config.label, config.cache) for config in configs),
        use_chat_template=first.use_chat_template,
        max_new_tokens=first.max_new_tokens,
        sampling=first.sampling,
        chunk_size=first.chunk_size,
    )
    return Comparison(
        request=request.to_dict(),
        model=model,
        machine=machine_of(model.device),
        versions=versions(),
        created=created,
        prompt_tokens=len(records[0].prompt_ids),
        text=None,
        entries=tuple(
            Entry(config.label, config.cache.to_dict(), generation(record, records[0]), None)
            for config, record in zip(configs, records, strict=True)
        ),
        elapsed_ms=round(sum(sum(record.step_ms) for record in records), 3),
    )
