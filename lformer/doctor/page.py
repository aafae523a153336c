"""The report as one page: style, text, figures and the table of channels in a single file."""

from __future__ import annotations

from lformer.doctor.draw import (
    BARS,
    channel_bars,
    gap_histogram,
    length_histogram,
    padding_bars,
    timeline,
)
from lformer.doctor.report import Finding, Report
from lformer.doctor.words import counted
from lformer.drawing import clean

ROWS = 500  # channels in the table

LIGHT = """--page:#fcfcfb;--card:#f3f3f1;--ink:#1d1e20;--soft:#66686d;--grid:#e3e3e0;--fill:#2f6fb5;--rest:#dcdcd8;
--error:#b3261e;--warning:#a66300;--info:#2f6fb5;--good:#22784f;--c0:#2f6fb5;--c1:#d9622b;--c2:#2b9a73;--c3:#b5589b;
--c4:#b98a0e;--c5:#4aa5d3;--c6:#7263c4;--c7:#8d8f94"""
DARK = """--page:#17181a;--card:#212326;--ink:#ececee;--soft:#a0a2a8;--grid:#303337;--fill:#6ea8e6;--rest:#3a3d42;
--error:#f28b82;--warning:#f0b35a;--info:#8ab8ee;--good:#6fcf9f;--c0:#6ea8e6;--c1:#f08a55;--c2:#4cc79a;--c3:#d989c1;
--c4:#e0b84a;--c5:#9bdcf7;--c6:#a99cf0;--c7:#8a8c92"""

STYLE = f"""
:root{{color-scheme:light dark;{LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;padding:32px 20px 64px;max-width:860px;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
h1{{font-size:24px;margin:0 0 4px}} h2{{font-size:17px;margin:36px 0 8px}}
p{{margin:0}} .soft{{color:var(--soft)}} .good{{color:var(--good)}} .bad{{color:var(--error)}}
.verdict{{font-size:17px;font-weight:600}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:18px 0 0}}
dt{{color:var(--soft)}} dd{{margin:0}}
.finding{{background:var(--card);border-left:4px solid;border-radius:4px;padding:10px 14px;margin:10px 0;
overflow-wrap:anywhere}}
.finding h3{{font-size:15px;margin:0}} .finding p{{color:var(--ink);margin-top:2px}}
.finding p.soft{{color:var(--soft)}}
.error{{border-color:var(--error)}} .warning{{border-color:var(--warning)}} .info{{border-color:var(--info)}}
.error h3{{color:var(--error)}} .warning h3{{color:var(--warning)}} .info h3{{color:var(--info)}}
.pair{{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:0 24px}}
svg{{width:100%;height:auto;display:block;margin-top:10px;font-size:12px;fill:var(--ink)}}
.pair svg{{max-width:460px}}
svg .small{{font-size:11px;fill:var(--soft)}}
svg path{{fill:none}} .grid{{stroke:var(--grid)}} .axis{{stroke:var(--soft)}} .mark{{stroke:var(--c1);stroke-width:1.5}}
.fill{{fill:var(--fill)}} .rest{{fill:var(--rest)}}
.dot{{stroke-linecap:round;stroke-width:2.6}} .key{{stroke-width:8}}
{"".join(f".c{k}{{stroke:var(--c{k})}}" for k in range(8))}
.wide{{overflow-x:auto}} table{{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;width:100%}}
th,td{{text-align:right;padding:4px 10px;border-bottom:1px solid var(--grid);white-space:nowrap}}
th{{color:var(--soft);font-weight:500}} th:first-child,td:first-child{{text-align:left}}
"""


def page(report: Report) -> str:
    """The whole page, which is also well-formed XML."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>Data doctor</title><style>{STYLE}</style></head><body>",
            _head(report),
            *(_finding(finding) for finding in report.findings),
            *_pictures(report),
            *_table(report),
            "</body></html>\n",
        ]
    )


def _head(report: Report) -> str:
    figures = "".join(f"<dt>{clean(name)}</dt><dd>{clean(what)}</dd>" for name, what in report.summary())
    findings = "<h2>Findings</h2>" if report.findings else ""
    return (
        f'<h1>Data doctor</h1><p class="verdict {"good" if report.ok else "bad"}">{clean(report.verdict)}</p>'
        f"<dl>{figures}</dl>{findings}"
    )


def _finding(finding: Finding) -> str:
    return (
        f'<div class="finding {finding.level}"><h3>{finding.level.capitalize()}: {clean(finding.title)}</h3>'
        f'<p>{clean(finding.detail)}</p><p class="soft">{clean(finding.advice)}</p></div>'
    )


def _pictures(report: Report) -> list[str]:
    sketch, figures = report.sketch, report.figures
    if sketch is None:
        return []
    some = f"{counted(len(sketch.lanes), 'series')} of {figures['series']:,.0f}, sorted by length"
    least = f" Only the {BARS} most frequently observed channels." if len(report.channels) > BARS else ""
    gaps = gap_histogram(sketch, figures, report.unit)
    return [
        f'<h2>Observations over time</h2><p class="soft">{some}</p>{timeline(sketch, report.unit)}',
        f'<h2>Channels</h2><p class="soft">Share of observed rows, and observation rates.{least}</p>'
        + channel_bars(report),
        '<div class="pair">',
        f'<div><h2>Gaps</h2><p class="soft">Time between rows; both axes logarithmic</p>{gaps}</div>' if gaps else "",
        f'<div><h2>Lengths</h2><p class="soft">Series by number of rows</p>{length_histogram(sketch)}</div></div>',
        f'<h2>Padding</h2><p class="soft">Batches of {figures["batch_size"]:,.0f} series</p>{padding_bars(figures)}',
    ]


def _table(report: Report) -> list[str]:
    if not len(report.channels):
        return []
    header, rows = report.channel_rows()
    head = "".join(f"<th>{clean(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{clean(cell)}</td>" for cell in row) + "</tr>" for row in rows[:ROWS])
    more = f'<p class="soft">And {counted(len(rows) - ROWS, "more channel")}.</p>' if len(rows) > ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return [f'<h2>All channels</h2><div class="wide">{table}</div>{more}']
