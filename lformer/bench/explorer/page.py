"""The page: one file of HTML with its style, its script and the records inside, which asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from lformer import __version__
from lformer.drawing import clean, themes

SCRIPTS = ("dom", "axes", "ranking", "compare", "costs", "curves", "record", "main")  # in the order of their needs
SECTIONS = {
    "ranking": "Ranking",
    "paired": "Paired comparison",
    "costs": "Accuracy against cost",
    "curves": "Learning curves",
    "ablation": "Ablation",
    "critical": "Across data sets",
}


def page(payload: dict[str, Any], base: str | None = None, back: str | None = None) -> str:
    """The whole page.

    Args:
        payload: from `gather`.
        base: address of the folder of records as seen from the page; None where they are not beside it.
        back: address of a page to go back to.
    """
    style = themes() + _read("explorer.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_read(f"{name}.js") for name in SCRIPTS) + "\n})();"
    data = in_script({**payload, "base": base})
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:"
    links = "".join(f'<li><a href="#{name}">{clean(title)}</a></li>' for name, title in SECTIONS.items())
    home = f'<p class="soft"><a href="{clean(back)}">Back to the documentation</a></p>' if back else ""
    sections = "".join(
        f'<section id="{name}" tabindex="-1" aria-labelledby="{name}-title"><h2 id="{name}-title">{clean(title)}</h2>'
        f'<div id="{name}-body"></div></section>'
        for name, title in SECTIONS.items()
    )
    counts = f"{payload['count']:,} records, {payload['systems']} systems, {payload['datasets']} data sets"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="{policy}"/>
<title>lformer · results</title><style>{style}</style></head><body>
<a class="skip" href="#main">Skip to the results</a>
<header><div class="inner"><div><h1>Results of the benchmark</h1>
<p class="soft">{clean(counts)}. Selected on the validation part, tested once.</p>{home}</div>
<button id="theme" type="button" hidden="hidden">Dark page</button></div>
<nav aria-label="Sections"><ul class="inner">{links}</ul></nav></header>
<main id="main" tabindex="-1"><noscript><p class="notice">The charts need JavaScript. The same figures as text:
<code>lformer bench table</code>.</p></noscript>
<form id="chooser" aria-label="What is shown"></form>
<p id="said" class="hidden" role="status"></p>
{sections}
<footer><p>Made by <code>lformer bench page</code>, lformer {clean(__version__)}.</p></footer></main>
<dialog id="record" aria-labelledby="record-title"></dialog>
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""


def in_script(value: Any) -> str:
    """JSON that may stand inside a script element, whatever text it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """What the policy of the page calls a style or script that may run: nothing that comes in by a record may."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
