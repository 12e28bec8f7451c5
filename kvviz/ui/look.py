"""How the page looks and what it loads: theme, style sheet, scripts, the files that may be served.

Knows paths and colours; knows no component.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import gradio as gr

from kvviz.catalogue import ASSETS_DIR, languages
from kvviz.ui.language import page_path

SCRIPTS = (
    "language",  # first: it may leave for another page
    "kvviz", "twin", "plot", "strip", "panel", "table", "atlas", "atlas_thumbs", "atlas_canvas", "atlas_map",
    "atlas_table", "atlas_replay", "calculator", "share", "opener", "glossary", "lesson", "lesson_nav",
)  # fmt: skip
STYLES = ("kvviz", "lab", "atlas", "calculator", "share", "compare", "glossary", "lesson")
#: Whoever waits in line takes a thread for as long as it looks at its place.
MAX_THREADS = 120
MAX_UPLOAD_BYTES = 1_000_000
_SANS = ["system-ui", "Segoe UI", "Roboto", "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "sans-serif"]
_MONO = ["ui-monospace", "SF Mono", "DejaVu Sans Mono", "Noto Sans Mono CJK SC", "monospace"]


def theme() -> gr.themes.Base:
    """Plain surfaces, small radii, system fonts: nothing is fetched from elsewhere."""
    flat = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.slate,
        spacing_size=gr.themes.sizes.spacing_sm,
        radius_size=gr.themes.sizes.radius_sm,
        text_size=gr.themes.sizes.text_sm,
        font=_SANS,
        font_mono=_MONO,
    )
    return flat.set(
        body_background_fill="#f3f5f8",
        body_background_fill_dark="#11151b",
        body_text_color="#1a2230",
        body_text_color_dark="#e6eaf0",
        body_text_color_subdued="#515c6d",
        body_text_color_subdued_dark="#a8b3c2",
        block_background_fill="#ffffff",
        block_background_fill_dark="#191f28",
        block_border_color="#d5dbe4",
        block_border_color_dark="#303a48",
        block_label_text_color="#3c4757",
        block_label_text_color_dark="#c3ccd8",
        block_title_text_color="#3c4757",
        block_title_text_color_dark="#c3ccd8",
        block_info_text_color="#515c6d",
        block_info_text_color_dark="#a8b3c2",
        input_background_fill="#ffffff",
        input_background_fill_dark="#11151b",
        input_border_width="1px",
        input_border_width_dark="1px",
        input_border_color="#c3cbd7",
        input_border_color_dark="#3d4858",
        checkbox_label_background_fill="#eef1f5",
        checkbox_label_background_fill_dark="#242c38",
        checkbox_label_background_fill_hover="#e2e7ee",
        checkbox_label_background_fill_hover_dark="#303a48",
        checkbox_label_border_width="0px",
        button_primary_background_fill="#1f5fa8",
        button_primary_background_fill_dark="#2f78c4",
        button_primary_background_fill_hover="#174a84",
        button_primary_background_fill_hover_dark="#3f8ad8",
        button_primary_border_color_dark="#2f78c4",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
    )


def plotly_script() -> Path:
    """The plotly.js that the Python package carries."""
    spec = importlib.util.find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


def head() -> str:
    """Our scripts inline, so that they are there before any view is mounted; plotly when it comes. First of
    all it is settled whether this is the page of the visitor's language."""
    paths = json.dumps({name: page_path(name) for name in languages()})
    sources = [(ASSETS_DIR / "js" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    sources.insert(0, f"window.kvvizLanguages = {paths};")
    inline = "".join(f"<script>{source}</script>" for source in sources)
    return f"{inline}<script>{_LIBRARY % json.dumps(plotly_script().as_posix())}</script>"


#: The drawing library from where the application is: its root may be a folder of a site.
_LIBRARY = """(() => {
  const root = new URL(window.gradio_config?.root || ".", location.href).pathname.replace(/\\/$/, "");
  const script = document.createElement("script");
  script.async = true;
  script.src = `${root}/gradio_api/file=${%s}`;
  document.head.append(script);
})();"""


def launch_options(host: str | None = None, port: int | None = None) -> dict[str, Any]:
    """What ``launch`` needs to show the page as it is meant to look, and to keep nobody's text."""
    gr.set_static_paths([plotly_script()])
    return {
        "server_name": host,
        "server_port": port,
        "share": False,
        "max_threads": MAX_THREADS,
        "max_file_size": MAX_UPLOAD_BYTES,
        "theme": theme(),
        "css_paths": [ASSETS_DIR / "css" / f"{name}.css" for name in STYLES],
        "head": head(),
        "run_history": False,
        "ssr_mode": False,
        "footer_links": [],
        "enable_monitoring": False,
    }
