"""Prometheus as a source: the `/metrics` of vLLM and SGLang, saved, kept by a server, or live.

Its tour: `page` reads lines, `series` says which are kept and of what they tell, `engines` which
engines there are and what is known of each (with the launch flags of `flags`), `storing` makes rows
of samples. Four ways in: `pages` from a `directory` of scrapes, `dump` from one file with times,
`window` from a `server`, `scrape` live; `fetch` is the HTTP of the last two. `choosing` tells which
was meant, `command` has the flags. `names` is the one table of what metrics are called.
"""
