"""A report as one page that works by itself: no script, no network, no other file.

Knows reports and words. Whatever people or models wrote is escaped; the page forbids itself scripts and every
address. It carries the report's JSON, so that it can be loaded back.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from kvviz.catalogue import ASSETS_DIR, text
from kvviz.comparison import Comparison
from kvviz.comparison_words import (
    cache_words,
    cell_words,
    measure_info,
    measure_label,
    verdict,
    verdict_line,
)
from kvviz.config import CacheConfig
from kvviz.errors import KvvizError
from kvviz.figures.report_charts import Chart, charts, record_of_entry
from kvviz.figures.texts import text_segments
from kvviz.figures.theme import palette, run_letter
from kvviz.report import CLOSING, MOST_BYTES, OPENING, Report, to_json
from kvviz.units import format_bytes, format_count, format_ms, format_number

_POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">"""


def report_page(report: Report) -> str:
    """The whole page, at most :data:`kvviz.report.MOST_BYTES` of UTF-8.

    Raises:
        KvvizError: it does not fit.
    """
    body = "".join(_sections(report))
    style = (Path(ASSETS_DIR) / "css" / "report.css").read_text(encoding="utf-8")
    head = (
        f'<!doctype html><html lang="{escape(text("report.language"))}"><head><meta charset="utf-8">'
        f'{_POLICY}<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(_title(report.comparison))}</title><style>{style}</style></head><body><main>"
    )
    end = "</main></body></html>"
    around = head + body + OPENING + CLOSING + end
    carried = to_json(report, MOST_BYTES - len(around.encode()))
    page = head + body + OPENING + carried + CLOSING + end
    if len(page.encode()) > MOST_BYTES:
        raise KvvizError("file_large", most=MOST_BYTES)
    return page


def escape(words: object) -> str:
    """Anything as text of a page; characters that no page may hold become a mark."""
    kept = "".join(c if c.isprintable() or c in "\n\t" or ord(c) > 0x9F else "\ufffd" for c in str(words))
    return html.escape(kept.encode("utf-8", "replace").decode(), quote=True)


def _title(comparison: Comparison) -> str:
    names = " / ".join(entry.label or run_letter(i) for i, entry in enumerate(comparison.entries))
    return text("report.title", names=names)


def _sections(report: Report) -> Iterable[str]:
    comparison = report.comparison
    yield f"<h1>{escape(_title(comparison))}</h1>"
    kind = "stored" if comparison.is_stored else "measured"
    yield f'<p class="quiet">{escape(text(f"report.intro.{kind}", created=comparison.created))}</p>'
    yield _verdicts(comparison)
    yield _numbers(comparison)
    yield "".join(map(_figure, charts(report)))
    yield _texts(comparison)
    yield _worst(comparison)
    yield _made_with(comparison)
    yield _request(comparison)


def _verdicts(comparison: Comparison) -> str:
    lines = "".join(
        f"<li>{_letter(i)}<b>{escape(entry.label)}</b> {escape(verdict_line(verdict(comparison, i)))}</li>"
        for i, entry in enumerate(comparison.entries)
    )
    return _section("verdict", f'<ul class="verdicts">{lines}</ul>')


def _letter(index: int) -> str:
    return f'<span class="letter" style="background:{palette().run(index).color}">{run_letter(index)}</span> '


def _numbers(comparison: Comparison) -> str:
    """One row a measure, with its kind and how it came about; a measure that nobody has is left out."""
    dtype = comparison.model.dtype
    head = [text("report.column.number"), *(_letter_name(comparison)), *_columns("kind", "how")]
    rows = [
        [
            measure_label(row.measure, dtype),
            *(cell_words(value, row.measure.unit) for value in row.values),
            text(f"figures.kind.{row.kind}"),
            measure_info(row.measure, dtype),
        ]
        for row in comparison.rows()
        if any(value is not None for value in row.values)
    ]
    scored = comparison.text
    if scored is not None:
        kind = text(f"figures.kind.{'stored' if comparison.is_stored else 'measured'}")
        shown = [format_number(scored.ppl)] * len(comparison.entries)
        rows.insert(0, [text("report.ppl_full"), *shown, kind, text("report.ppl_full_how")])
    return _section("numbers", _table(head, rows, numbers=len(comparison.entries)))


def _letter_name(comparison: Comparison) -> list[str]:
    return [f"{run_letter(i)} {entry.label}".strip() for i, entry in enumerate(comparison.entries)]


def _columns(*names: str) -> list[str]:
    return [text(f"report.column.{name}") for name in names]


def _figure(chart: Chart) -> str:
    caption = f"<figcaption>{escape(chart.note)}</figcaption>"
    return f"<figure><h2>{escape(chart.title)}</h2>{_scrolled(chart.svg)}{caption}</figure>"


def _texts(comparison: Comparison) -> str:
    found = []
    for index, entry in enumerate(comparison.entries):
        made = entry.generation
        parts = text_segments(record_of_entry(comparison, index), made.divergence)
        marked = f"<mark>{escape(parts['marked']) or '▏'}</mark>" if made.divergence is not None else ""
        status = text(
            "report.status",
            status=text(f"report.ended.{made.status}"),
            tokens=format_count(len(made.token_ids)),
        )
        failed = f'<p class="failed">{escape(made.message)}</p>' if made.message else ""
        found.append(
            f"<h3>{_letter(index)}{escape(entry.label)}</h3>"
            f'<p class="quiet">{escape(status)}</p>{failed}'
            f'<p class="text">{escape(parts["before"])}{marked}{escape(parts["after"])}</p>'
        )
    return _section("texts", "".join(found))


def _worst(comparison: Comparison) -> str:
    rows = [
        [
            run_letter(index),
            format_count(token.position),
            f"{token.before}⟨{_visible(token.token)}⟩",
            format_number(token.nll_full),
            format_number(token.nll),
            format_number(token.kl),
            _visible(token.choice_full),
            _visible(token.choice),
        ]
        for index, entry in enumerate(comparison.entries)
        for token in (entry.score.worst if entry.score else ())
    ]
    if not rows:
        return ""
    columns = ("configuration", "position", "token", "nll_full", "nll", "kl", "choice_full", "choice")
    return _section("worst", _table(_columns(*columns), rows))


def _visible(token: str) -> str:
    """A token with the visible space that common fonts have."""
    return token.replace("\u2420", "\u2423")


def _made_with(comparison: Comparison) -> str:
    model, machine = comparison.model, comparison.machine
    memory = "–" if machine.memory_bytes is None else format_bytes(machine.memory_bytes)
    pairs = {
        "model": model.name,
        "weights_hash": model.weights_hash,
        "source": " · ".join(filter(None, (model.source, model.commit))),
        "shape": text(
            "report.shape",
            layers=model.n_layers,
            heads=model.n_heads,
            kv_heads=model.n_kv_heads,
            head_dim=model.head_dim,
            context=format_count(model.context_tokens),
        ),
        "precision": f"{model.dtype} · {model.device}",
        "machine": f"{machine.system} · {machine.processor} × {machine.cores} · {memory}",
        "accelerator": machine.accelerator or "–",
        "versions": " · ".join(f"{name} {version}" for name, version in comparison.versions.items()),
        "created": comparison.created,
        "elapsed": format_ms(comparison.elapsed_ms),
    }
    return _section("made_with", _pairs(pairs))


def _request(comparison: Comparison) -> str:
    asked = comparison.asked
    greedy = asked.sampling.temperature == 0
    pairs = {
        "decoding": text("report.greedy") if greedy else text("report.sampled", **_sampling(comparison)),
        "seed": str(asked.sampling.seed),
        "tokens": format_count(asked.max_new_tokens),
        "prompt_tokens": format_count(comparison.prompt_tokens),
        "chat": text("report.yes" if asked.use_chat_template else "report.no"),
        "chunk": format_count(asked.chunk_size),
    }
    if comparison.text is not None and asked.text is not None:
        pairs["text"] = text(
            "report.text",
            name=comparison.text.name,
            hash=comparison.text.sha256,
            start=format_count(asked.text.start),
            stop=format_count(asked.text.start + asked.text.length),
            rows=format_count(comparison.text.rows),
        )
    for index, entry in enumerate(comparison.entries):
        name = f"{run_letter(index)} {entry.label}".strip()
        pairs[f"={name}"] = cache_words(CacheConfig.from_dict(entry.cache))
    prompt = f'<h3>{escape(text("report.prompt"))}</h3><p class="text">{escape(asked.prompt)}</p>'
    return _section("request", _pairs(pairs) + prompt)


def _sampling(comparison: Comparison) -> dict[str, float]:
    sampling = dataclasses.asdict(comparison.asked.sampling)
    return {name: sampling[name] for name in ("temperature", "top_p")}


def _section(name: str, body: str) -> str:
    return f"<section><h2>{escape(text(f'report.section.{name}'))}</h2>{body}</section>"


def _pairs(pairs: dict[str, str]) -> str:
    """Names from the catalogue, or as they stand after ``=``."""
    found = "".join(
        f"<dt>{escape(name[1:] if name.startswith('=') else text(f'report.field.{name}'))}</dt>"
        f"<dd>{escape(value)}</dd>"
        for name, value in pairs.items()
    )
    return f"<dl>{found}</dl>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """The first column heads its row; the ``numbers`` columns after it are aligned as numbers."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = []
    for first, *rest in rows:
        cells = "".join(
            f'<td class="number">{escape(cell)}</td>' if i < numbers else f"<td>{escape(cell)}</td>"
            for i, cell in enumerate(rest)
        )
        body.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return _scrolled(table)


def _scrolled(body: str) -> str:
    """What is wider than a phone moves in its own place."""
    return f'<div class="scroll" tabindex="0">{body}</div>'
