"""The SQL behind every chart and table, over the library's views, reduced in the database.

Each function returns one statement with its numbers in it: what *Show SQL* prints is what was run,
and it can be pasted into `stepscope query`. `x` is always milliseconds since the window's start.
"""
