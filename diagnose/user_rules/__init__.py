"""Rules of your own: YAML files in a directory, judged beside ours.

A file is a page, named thresholds, one statement over the library's views and what its answer means
(`docs/user-rules.md`). `document` reads YAML that may be hostile, with the lines of what it reads;
`definition` says what a rule consists of, `reading` makes one of a document, `deciding` makes a
`diagnose.rule.Rule` of it, `loading` takes a whole directory, and `trial` runs the tests that stand
in the files. The statements run behind the same three walls as any reader's
(`telemetry.store.guard`); nothing in a file is ever executed but those.
"""
