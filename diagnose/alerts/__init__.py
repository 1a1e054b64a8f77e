"""What Prometheus watches in our place: alert rules and runbooks, generated from the rules.

A rule that can be judged by metrics declares an `Alert` beside that judgement, in PromQL that is
built from the rule's own thresholds. `catalogue` collects them, those on findings and those on the
recorder's own health; `rules_file` and `runbooks` write them down, `panels` is a Grafana dashboard
of the same names; `python -m diagnose.alerts` writes all of it to `deploy/`. Nothing here asks a
Prometheus.
"""
