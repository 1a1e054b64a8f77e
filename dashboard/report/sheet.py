"""The style of a report: one column, both themes on a screen, light and paged on paper."""

from __future__ import annotations

from dashboard import colours
from dashboard.colours import Colour, Theme

FONT = "'Source Sans 3', 'Source Sans Pro', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
"""What a machine has of these: a report brings no font along."""

_VARIABLES: dict[str, Colour] = {
    "ground": colours.BACKGROUND,
    "panel": colours.PANEL,
    "border": colours.BORDER,
    "text": colours.TEXT,
    "muted": colours.MUTED,
    "link": colours.LINK,
    "healthy": colours.HEALTHY[1],
    **{severity.name: colour for severity, (_, colour) in colours.SEVERITIES.items()},
}


def style_sheet() -> str:
    """Returns the style sheet. Nothing from a log is in it."""
    return f"""
:root {{{_variables("light")}}}
@media screen and (prefers-color-scheme: dark) {{:root {{{_variables("dark")}}}}}
{_RULES}
@media screen {{{_SCREEN}}}
@media print {{{_PRINT}}}
""".replace("FONT", FONT)


def _variables(theme: Theme) -> str:
    return f"color-scheme:{theme};" + "".join(
        f"--{name}:{colour.of(theme)};" for name, colour in _VARIABLES.items()
    )


_RULES = """
* {box-sizing:border-box;}
body {margin:0; background:var(--ground); color:var(--text); font:15px/1.5 FONT;}
main {max-width:960px; margin:0 auto; padding:28px 24px 60px;}
header.brand {display:flex; align-items:center; gap:9px; color:var(--muted); font-size:13px;
  padding-bottom:10px; margin-bottom:22px; border-bottom:1px solid var(--border);}
header.brand b {color:var(--text); font-size:15px;}
header.brand svg {width:20px; height:20px; flex:none;}
h1 {font-size:27px; line-height:1.25; margin:0 0 4px; letter-spacing:-0.01em;}
h2 {font-size:19px; margin:34px 0 8px; line-height:1.3;}
h3 {font-size:16px; margin:26px 0 6px;}
h4 {font-size:14px; margin:20px 0 4px;}
p {margin:7px 0;}
p.meta {color:var(--muted); font-size:13.5px;}
p.lead {font-size:18px; line-height:1.42; font-weight:600; padding:13px 16px; margin:14px 0 16px;
  background:var(--panel); border-left:4px solid var(--edge, var(--muted));
  border-radius:0 6px 6px 0;}
.critical {--edge:var(--critical);} .high {--edge:var(--high);} .medium {--edge:var(--medium);}
.info {--edge:var(--info);} .well {--edge:var(--healthy);}
.badge {color:var(--edge, var(--text)); font-weight:700; white-space:nowrap;}
code, pre {font-family:ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace;
  font-size:0.86em;}
code {background:var(--panel); border-radius:4px; padding:1px 3px; overflow-wrap:anywhere;}
td code, p.meta code {white-space:nowrap;}
pre {background:var(--panel); border-radius:6px; padding:10px 12px; white-space:pre-wrap;
  overflow-wrap:anywhere; margin:4px 0 14px; line-height:1.45;}
table {border-collapse:collapse; width:100%; margin:8px 0 14px; font-size:13.5px;
  font-variant-numeric:tabular-nums;}
th, td {text-align:left; vertical-align:top; padding:5px 14px 5px 0;
  border-bottom:1px solid var(--border); overflow-wrap:anywhere;}
thead th {color:var(--muted); font-weight:500; font-size:12.5px; vertical-align:bottom;
  overflow-wrap:normal;}
td.n, th.n {text-align:right; white-space:nowrap;}
thead th.n {white-space:normal;}
td:last-child, th:last-child {padding-right:0;}
tbody th {font-weight:600; white-space:nowrap; padding-right:20px;}
ul {margin:6px 0; padding-left:20px;} li {margin:3px 0;}
details {margin:10px 0;}
summary {cursor:pointer; color:var(--link); font-size:13.5px;}
figure {margin:16px 0 8px;}
figure svg {display:block; width:100%; height:auto; font-family:FONT;}
figcaption {font-weight:600; font-size:14px; margin-bottom:4px;}
.scroll {overflow-x:auto;}
"""

_SCREEN = """
figure .dark {display:none;}
@media (prefers-color-scheme: dark) {
  figure .dark {display:block;} figure .light {display:none;}
}
@media (max-width: 700px) {figure .light, figure .dark {overflow-x:auto;}
  figure svg {min-width:640px;}}
"""

_PRINT = """
@page {size:A4; margin:15mm 15mm 17mm;
  @bottom-left {content:"Stepscope incident report"; font:8pt FONT; color:#5A6675;}
  @bottom-right {content:counter(page) " / " counter(pages); font:8pt FONT; color:#5A6675;}}
body {font-size:10.2pt; print-color-adjust:exact; -webkit-print-color-adjust:exact;}
main {max-width:none; padding:0;}
h1 {font-size:19pt;} h2 {font-size:13.5pt; margin-top:18pt;} h3 {font-size:11.5pt;}
p.lead {font-size:12pt;}
table {font-size:8.8pt;} thead th {font-size:8.3pt;} p.meta {font-size:9pt;}
th, td {padding-top:3.2pt; padding-bottom:3.2pt;}
h1, h2, h3, h4, figcaption, p.lead {break-after:avoid;}
tr, li, p, figure, .facts, .short {break-inside:avoid;}
thead {display:table-header-group;}
h2.finding ~ h2.finding {break-before:page;}
figure.narrow {max-width:108mm !important;}
figure .dark, figure details {display:none;}
summary {color:var(--muted); list-style:none;} summary::after {content:" (in the file)";}
details[open] > summary::after {content:none;}
"""
