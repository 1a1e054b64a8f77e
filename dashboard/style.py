"""The few rules of style that Streamlit's theme has no option for: edges, the header, the strip."""

from __future__ import annotations

from dashboard import colours
from dashboard.colours import Theme
from diagnose.finding import Severity

MOST_COLUMNS = 9
"""Columns of a document's table, of which each may be one of numbers."""
STYLED = "--stepscope-styled"
"""A property of the page, set when the sheet has reached it: before, nothing has its size."""
ROW_PX = 31
"""Pixels of a row of a table that scrolls."""
_HEAD_PX = 38
EMPTY_UNDER_CHARTS = 14
"""Pixels of the empty 20 that Streamlit puts under every chart."""


def table_height(num_rows: int, *, most: int) -> int:
    """Returns the pixels of a table that scrolls from `most` on, and ends with its last row."""
    return min(most, _HEAD_PX + ROW_PX * max(num_rows, 1))


def _numbers_at_the_right() -> str:
    """Returns the rule for tables whose key names their columns of numbers: `doc-paid-c1-c3`."""
    chosen = ",".join(
        f'[class*="st-key-doc-"][class*="-c{column}"] :is(td, th):nth-child({column})'
        for column in range(1, MOST_COLUMNS + 1)
    )
    return f"{chosen} {{text-align:right !important;}}"


def sheet(theme: Theme) -> str:
    """Returns the style sheet of every page. Nothing from a log is in it."""
    edges = "".join(
        f'[class*="st-key-card-"][class*="-{severity.name}"],'
        f'[class*="st-key-verdict-"][class*="-{severity.name}"]'
        f"{{border-left:4px solid {colour.of(theme)} !important;}}"
        for severity, (_, colour) in colours.SEVERITIES.items()
    )
    healthy, muted = colours.HEALTHY[1].of(theme), colours.MUTED.of(theme)
    text, border, panel = (c.of(theme) for c in (colours.TEXT, colours.BORDER, colours.PANEL))
    return f"""<style>
{edges}
{_numbers_at_the_right()}
:is([data-testid="stMarkdownContainer"], [data-testid="stCaptionContainer"]) code
  {{color:{text};}}
a code {{color:inherit !important;}}
[class*="st-key-doc-"] code {{font-size:0.78rem; white-space:normal;
  -webkit-box-decoration-break:clone; box-decoration-break:clone;}}
[class*="st-key-doc-todo"] td:first-child code, [class*="st-key-doc-silenced"] code,
[class*="st-key-doc-unjudged"] td:first-child code
  {{white-space:nowrap;}}
[class*="st-key-card-"][class*="-quiet"] {{border-left:4px solid {muted} !important;}}
[class*="st-key-verdict-"][class*="-healthy"] {{border-left:4px solid {healthy} !important;}}
[class*="st-key-verdict-"] {{background:{panel}; border-radius:6px;}}
[data-testid="stMainBlockContainer"] {{padding:4.4rem 1.75rem 2rem 1.75rem; max-width:none;
  {STYLED}:1;}}
[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"] {{gap:0.6rem;}}
[data-testid="stAppDeployButton"] {{display:none;}}
[data-stale="true"] {{opacity:1 !important; transition:none !important;}}
[data-testid="stHeader"] {{border-bottom:1px solid {border};}}
.st-key-measure, [class*="st-key-clock-"],
[data-testid="stElementContainer"]:has(> [data-testid="stHtml"] > style)
  {{display:none;}}
[data-testid="stMarkdownContainer"] {{margin-bottom:0 !important;}}
[data-testid="stMarkdownContainer"] p {{margin-bottom:0;}}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p
  {{color:{muted}; opacity:1 !important; margin-bottom:0 !important;}}
[data-testid="stVegaLiteChart"] {{overflow-x:auto; overflow-y:hidden; max-width:100%;}}
[data-testid="stVegaLiteChart"] :is(canvas, svg.marks) {{display:block;
  margin-bottom:-{EMPTY_UNDER_CHARTS}px;}}
{_code(theme)}
[data-testid="stMarkdownContainer"] h3
  {{text-wrap:pretty; font-size:1.42rem; padding:0.1rem 0 0.2rem 0;}}
[data-testid="stMarkdownContainer"] h4 {{font-size:1.3rem; padding:0;}}
.st-key-header {{position:fixed; top:0.75rem; right:3.6rem; z-index:999991; width:auto !important;
  flex-wrap:nowrap; align-items:center;}}
.st-key-header > *, .st-key-header [data-testid="stPopover"],
.st-key-header [data-testid="stButton"] {{width:max-content !important; flex:0 0 auto;}}
.st-key-header > :nth-child(4) {{position:absolute; top:3.05rem; right:0;}}
.st-key-header [data-testid="stVerticalBlock"] {{gap:0;}}
.st-key-header p {{font-size:0.82rem; white-space:nowrap; margin:0;}}
.st-key-header button {{min-height:1.9rem; padding:0.1rem 0.65rem; width:max-content;}}
[class*="st-key-card-"], [class*="st-key-card-"] [data-testid="stVerticalBlock"]
  {{gap:0.45rem;}}
[class*="st-key-verdict-"], [class*="st-key-verdict-"] [data-testid="stVerticalBlock"]
  {{gap:0.4rem;}}
[class*="st-key-sql-"] button, .st-key-whatif-hand-on button {{min-height:1.2rem; padding:0;}}
[class*="st-key-sql-"] button p, .st-key-whatif-hand-on button p
  {{color:{colours.LINK.of(theme)}; font-size:0.8rem;}}
[data-testid="stBaseButton-primary"], [data-testid="stBaseButton-primary"] p
  {{color:{colours.BACKGROUND.of(theme)} !important;}}
[class*="st-key-sql_text"] textarea {{font-family:monospace; font-size:0.86rem;}}
@media (max-width: 1420px) {{
  .st-key-header {{position:static; width:100%; flex-wrap:wrap; gap:0.5rem;}}
  .st-key-header > :nth-child(4) {{position:static;}}
}}
@media (max-width: 1180px) {{
  [data-testid="stHorizontalBlock"] {{flex-wrap:wrap;}}
  [data-testid="stHorizontalBlock"] > [data-testid="stColumn"] {{min-width:min(100%, 34rem);}}
  [data-testid="stHorizontalBlock"] > [data-testid="stColumn"]:has(> [data-testid="stVerticalBlock"]
    > [data-testid="stElementContainer"]:only-child > [data-testid="stButton"])
    {{min-width:8rem;}}
  .st-key-figures [data-testid="stColumn"] {{min-width:9rem !important;}}
  .st-key-figures [data-testid="stHorizontalBlock"]:has(> :nth-child(6)) > [data-testid="stColumn"]
    {{min-width:30% !important;}}
  .st-key-card-whatif-courses [data-testid="stColumn"] {{min-width:20rem !important;}}
  [class*="st-key-verdict-"] [data-testid="stHorizontalBlock"] {{row-gap:0.6rem;}}
  [class*="st-key-verdict-"] [data-testid="stColumn"]:last-child > [data-testid="stVerticalBlock"]
    {{flex-flow:row wrap; justify-content:flex-start;}}
  [class*="st-key-verdict-"] [data-testid="stColumn"]:last-child [data-testid="stElementContainer"]
    {{width:max-content !important; flex:0 1 auto;}}
}}
.checks {{display:grid; grid-template-columns:repeat(6, 1fr); border:1px solid {border};
  border-radius:10px; overflow:hidden; margin-bottom:0.4rem;}}
.checks > * {{padding:0.42rem 0.8rem; border-right:1px solid {border};
  border-bottom:1px solid {border}; margin:0 -1px -1px 0; line-height:1.32; font-size:0.8rem;
  color:{muted};}}
.checks a {{text-decoration:none;}}
.checks a:hover {{background:{panel};}}
.checks a:focus-visible {{outline:2px solid {colours.LINK.of(theme)}; outline-offset:-2px;}}
.checks b {{color:{text}; font-weight:600; font-size:0.84rem;}}
.block-key {{font-size:0.84rem; color:{muted}; margin:0; display:flex; flex-wrap:wrap;
  gap:0.3rem 0.5rem; align-items:center;}}
.block-key i:not(:first-child) {{margin-left:0.7rem;}}
.block-key i {{display:inline-block; width:0.7rem; height:0.7rem; border-radius:2px;}}
.block-key i.taken {{border:1px dashed;}}
.block-key span {{margin-left:0.8rem;}}
@media (max-width: 1180px) {{ .checks {{grid-template-columns:repeat(3, 1fr);}} }}
[data-testid="stTable"] td, [data-testid="stTable"] th {{
  font-size:0.84rem; padding:0.34rem 0.5rem; border-left:0; border-right:0;}}
[data-testid="stTable"] :is(td, th):first-child {{padding-left:0.15rem;}}
[data-testid="stTable"] :is(td, th):last-child {{padding-right:0.15rem;}}
[data-testid="stTable"] td, [data-testid="stTable"] td * {{max-width:none !important;}}
[data-testid="stTable"] p {{font-size:0.84rem;}}
[class*="st-key-card-"] > [data-testid="stElementContainer"]:not(:first-child)
  [data-testid="stMarkdown"] [data-testid="stMarkdownContainer"] :is(p, li) {{font-size:0.9rem;}}
.st-key-card-rule-page [data-testid="stMarkdownContainer"] p {{font-size:0.9rem;}}
.st-key-card-rule-page table {{display:block; overflow-x:auto; font-size:0.84rem;}}
.st-key-batch thead {{display:none;}}
.st-key-evictions td:nth-child(3) *, .st-key-story td:not(:nth-child(3)) *
  {{white-space:nowrap;}}
.st-key-batch td:last-child, .st-key-waiting td:last-child, .st-key-waiting th:last-child,
.st-key-evictions td:nth-child(n+4), .st-key-evictions th:nth-child(n+4),
.st-key-changes td:last-child, .st-key-changes th:last-child,
.st-key-story td:nth-child(4), .st-key-story th:nth-child(4),
.st-key-story td:last-child, .st-key-story th:last-child {{text-align:right !important;}}
.st-key-story td:first-child {{font-family:monospace; color:{muted};}}
</style>"""


CODE = {
    "keyword": colours.LINK,
    "function": colours.LOST,
    "number": colours.HEALTHY[1],
    "string": colours.HEALTHY[1],
    "boolean": colours.HEALTHY[1],
    "comment": colours.MUTED,
    "operator": colours.TEXT,
    "punctuation": colours.TEXT,
}
"""The colour of each kind of word in a statement: those of the host are too pale to read."""


def _code(theme: Theme) -> str:
    return "\n".join(
        f'[data-testid="stCode"] .token.{kind} {{color:{colour.of(theme)} !important;}}'
        for kind, colour in CODE.items()
    )


SEVERITY_WORDS = {severity: severity.name.upper() for severity in Severity}
"""The word that always stands beside shape and colour."""

MARKDOWN_COLOURS = {
    Severity.critical: "red",
    Severity.high: "orange",
    Severity.medium: "yellow",
    Severity.info: "blue",
}
"""Streamlit's names of the severities' colours; the theme sets what they are."""
