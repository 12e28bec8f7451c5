"""One comparison over a tiny model: its scores are those of ``score``, its texts those of ``run``."""

from __future__ import annotations

import threading

import pytest

from kvviz.comparison import Comparison, ScoreProgress
from kvviz.comparison_request import ComparisonRequest, TextSlice
from kvviz.config import CacheConfig, Middle, Prefill
from kvviz.engine import comparing, run, score
from kvviz.engine.comparing import machine_of, versions
from kvviz.engine.corpus import NAMED_TEXTS, named_text, text_of
from kvviz.errors import ConfigError
from kvviz.events import AttentionRows, RunFinished, RunStarted, TokenGenerated
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord, first_divergence

PROMPT = "the quick brown fox jumps over the lazy dog and runs away"
CONFIGURATIONS = (
    ("full", CacheConfig(sink_size=0)),
    ("window", CacheConfig(sink_size=0, window_size=6, middle=Middle.EVICT)),
    ("four bits", CacheConfig(
        sink_size=2, window_size=4, middle=Middle.QUANTIZE, block_size=4,
        key=QuantConfig.parse("int4:token:g16:minmax"), value=QuantConfig.parse("int2:token:g16:minmax"),
    )),
    ("exact prompt", CacheConfig(
        sink_size=2, window_size=4, middle=Middle.QUANTIZE, block_size=4, prefill=Prefill.EXACT,
        key=QuantConfig.parse("int2:token:g16:minmax"), value=QuantConfig.parse("int2:token:g16:minmax"),
    )),
)  # fmt: skip
UNFIT = CacheConfig(middle=Middle.QUANTIZE, key=QuantConfig.parse("int4:token:g64:absmax"))
CORPUS = text_of("made up", "".join(chr(97 + (7 * i * i + i // 3) % 26) for i in range(90)))


def asked(configurations=CONFIGURATIONS, *, text=TextSlice("made up", 3, 60, 20), new=8):  # noqa: B008
    return ComparisonRequest(PROMPT, configurations, False, new, chunk_size=16, text=text)


def told(model, request, **how):
    *events, last = comparing(model, request, corpus=CORPUS, **how)
    assert isinstance(last, Comparison)
    return events, last


@pytest.fixture(scope="module")
def outcome(tiny):
    return told(tiny(), asked())


def test_scores_are_those_of_each_alone(tiny, outcome):
    model = tiny()
    ids = model.encode(CORPUS.text, False)[3:63]
    comparison = outcome[1]
    for entry, (_, cache) in zip(comparison.entries, CONFIGURATIONS, strict=True):
        alone = score(model, ids, cache, skip=20, chunk_size=16)
        assert entry.score.ppl == pytest.approx(alone.ppl, rel=1e-9)
        assert comparison.text.ppl == pytest.approx(alone.ppl_full, rel=1e-9)
        assert entry.score.kl == pytest.approx(alone.kl, rel=1e-9, abs=1e-12)
        assert entry.score.top1 == alone.top1
        assert entry.score.memory == alone.memory
        assert comparison.text.rows == alone.rows == len(entry.score.nll) == len(entry.score.kl_rows)


def test_rows_make_up_the_means(outcome):
    comparison = outcome[1]
    assert comparison.entries[0].score.kl == 0
    assert comparison.entries[0].score.ppl == comparison.text.ppl
    for entry in comparison.entries:
        rows = comparison.text.rows
        assert sum(entry.score.kl_rows) / rows == pytest.approx(entry.score.kl, abs=1e-5)


def test_worst_tokens_are_where_most_was_lost(tiny, outcome):
    model, comparison = tiny(), outcome[1]
    ids = model.encode(CORPUS.text, False)[3:63]
    assert comparison.entries[0].score.worst == ()
    for entry in comparison.entries[1:]:
        lost = [b - a for a, b in zip(comparison.text.nll, entry.score.nll, strict=True)]
        worst = entry.score.worst
        assert [w.nll - w.nll_full for w in worst] == pytest.approx(sorted(lost, reverse=True)[: len(worst)])
        for token in worst:
            row = token.position - 21
            assert (token.nll_full, token.nll) == (comparison.text.nll[row], entry.score.nll[row])
            assert token.kl == entry.score.kl_rows[row]
            assert token.token == model.labels([ids[token.position]], at_start=False)[0].display
            assert model.decode(ids[: token.position]).endswith(token.before)
            assert token.before


def test_texts_are_those_of_each_alone(tiny, outcome):
    records = []
    for (_, cache), entry in zip(CONFIGURATIONS, outcome[1].entries, strict=True):
        record = RunRecord()
        request = asked((("x", cache),))
        for event in run(tiny(), request.runs[0], capture_attention=False):
            record.apply(event)
        records.append(record)
        assert entry.generation.token_ids == tuple(record.generated_ids)
        assert entry.generation.text == record.text
        assert entry.generation.memory == record.memory[-1]
        assert entry.generation.token_labels == record.labels[len(record.prompt_ids) :]
        assert entry.generation.divergence == first_divergence(records[0], record)
        assert len(entry.generation.step_ms) == len(record.generated_ids)
    assert any(entry.generation.divergence is not None for entry in outcome[1].entries)


def test_it_tells_progress_and_maps_with_the_same_cells(outcome):
    events = outcome[0]
    progress = [event for event in events if isinstance(event, ScoreProgress)]
    assert [p.done for p in progress] == sorted(p.done for p in progress)
    assert progress[-1].done == progress[-1].total == 60 * 5
    assert any(isinstance(event, AttentionRows) for event in events)
    assert events.index(progress[0]) > max(
        i for i, event in enumerate(events) if isinstance(event, TokenGenerated)
    )


def test_maps_share_their_cells_though_sinks_differ(tiny):
    grids = [
        event.grid.edges.tolist()
        for event in comparing(tiny(), ComparisonRequest("a" * 400, CONFIGURATIONS[::2], False, 2))
        if isinstance(event, RunStarted)
    ]
    assert grids[0] == grids[1]
    assert len(grids[0]) < 400


def test_it_says_what_it_was_measured_with(tiny, outcome):
    comparison = outcome[1]
    assert comparison.model == tiny().facts
    assert comparison.asked == asked()
    assert comparison.machine == machine_of(tiny().facts.device)
    assert comparison.machine.cores >= 1
    assert comparison.versions == versions()
    assert set(comparison.versions) == {"kvviz", "python", "torch", "transformers", "gradio", "numpy"}
    assert comparison.elapsed_ms > 0
    assert comparison.text.sha256 == CORPUS.sha256
    assert comparison.prompt_tokens == len(tiny().encode(PROMPT, False))


def test_a_file_of_it_can_be_read(outcome):
    assert Comparison.from_json(outcome[1].to_json()).rows()[0].values == outcome[1].rows()[0].values


def test_without_a_text_nothing_is_scored(tiny):
    events, comparison = told(tiny(), asked(text=None))
    assert comparison.text is None
    assert {entry.score for entry in comparison.entries} == {None}
    assert not any(isinstance(event, ScoreProgress) for event in events)


def test_the_prompt_itself_can_be_scored(tiny):
    request = asked(text=TextSlice("prompt", 0, 20, 5))
    *_, comparison = comparing(tiny(), request)
    assert comparison.text.name == "prompt"
    assert comparison.text.sha256 == text_of("", PROMPT).sha256
    assert comparison.text.rows == 14


@pytest.mark.parametrize("when", [TokenGenerated, ScoreProgress])
def test_a_stop_leaves_what_was_measured(tiny, when):
    stop = threading.Event()
    after, comparison, stopped = 0, None, False
    for event in comparing(tiny(), asked(new=12), corpus=CORPUS, stop=stop):
        after += stopped and isinstance(event, (TokenGenerated, ScoreProgress))
        if isinstance(event, when):
            stop.set()
            stopped = True
        if isinstance(event, Comparison):
            comparison = event
    assert after <= 2 * len(CONFIGURATIONS)
    assert {entry.score for entry in comparison.entries} == {None}
    if when is TokenGenerated:
        assert {entry.generation.status for entry in comparison.entries} == {"stopped"}
    assert Comparison.from_json(comparison.to_json()).text is None


def test_closing_it_frees_every_cache(tiny, monkeypatch):
    model, made = tiny(), []
    new_session = model.new_session
    monkeypatch.setattr(model, "new_session", lambda *a, **k: made.append(new_session(*a, **k)) or made[-1])
    for kind in (TokenGenerated, ScoreProgress):
        events = comparing(model, asked(), corpus=CORPUS)
        seen = 0
        for event in events:
            seen += isinstance(event, kind)
            if seen == 3:
                break
        assert any(session.seen_tokens for session in made)
        events.close()
        assert all(session.seen_tokens == 0 for session in made)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: asked(text=TextSlice("made up", 80, 60, 20)),
        lambda: asked(text=TextSlice("made up", 0, 600, 20)),
        lambda: asked((("x", UNFIT),)),
        lambda: ComparisonRequest("", CONFIGURATIONS, False),
    ],
)  # fmt: skip
def test_it_refuses_before_anything_runs(tiny, request_of):
    with pytest.raises(ConfigError):
        comparing(tiny(), request_of(), corpus=CORPUS)


def test_named_texts_only(tiny):
    for name in NAMED_TEXTS:
        assert named_text(name).name == name
    for name in ("../../../etc/passwd", "/etc/passwd", "chat.txt", ""):
        with pytest.raises(ConfigError, match="chat, code, math"):
            comparing(tiny(), asked(text=TextSlice(name, 0, 20, 5)))


def test_every_run_ends(outcome):
    ended = [event for event in outcome[0] if isinstance(event, RunFinished)]
    assert [event.run for event in ended] == [0, 1, 2, 3]
