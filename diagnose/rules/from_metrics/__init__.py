"""What the rules say of an engine of which only scrapes, or lines of its log, are known.

One file a rule, named as its page in the folder above; rules that look at nothing but scrapes have
their decision beside their page. `undecidable` names the problems that no scrape can tell.
"""
