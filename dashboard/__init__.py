"""The dashboard: a step log as pages, in a browser on this machine.

Its tour: `commands` starts it; `app` routes; `session` is the log, the engine and the window that a
page shows, and the address that says so; `answers` is what the log answers, kept where it is
closed; `header` shows them, `states` speaks where there is little to show. `views/` holds one page
a file; `one_step` and `one_finding` are what two of them open. A page asks `queries/` (SQL that
reduces in the database), draws with `charts/` (frame to chart, no Streamlit) in the `colours` of
the scarce resources, shows that by `vega`, and judges with `diagnose`.

It reads the log it was started with, writes nothing, and reaches nothing outside this machine.
"""
