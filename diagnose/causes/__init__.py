"""Why preemptions rose: which change of state, and how much of them is its doing.

Its tour: `history`, `traffic` and `settings_diff` are what happened; a `change` is a candidate, and
`candidates` lists the judges, in `arrival_changes`, `length_changes`, `mix_changes` and
`engine_changes`, with the statistics of `arrival_rate`, `burst` and `change_point`; `undo` takes a
change out of the recorded load, `attribution` replays the load without it, and `shapley` makes
shares of that; `chain` tells it from the cause to the impact. `diagnose.changes` puts it together.
"""
