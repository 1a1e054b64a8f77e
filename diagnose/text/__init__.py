"""A diagnosis on a terminal, part by part: `diagnose.report` puts them together.

Its tour: `lines` are at most 100 columns wide and know their colours; `finding_text` writes one
finding, `effects_text` what its actions would do, `metric_report` what only scrapes need.
"""
