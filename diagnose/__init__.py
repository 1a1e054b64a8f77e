"""Diagnosis: from the step log to a sentence that a person can act on.

Its tour: `reading` is the little that is asked of a log, `window` what part of it is looked at;
`facts` reads one engine's numbers once, `accounting` accounts for every preemption, `changes` says
which change of state made them rise; `rules/` holds one problem a file, `evaluation` runs them in
order and lets one silence another; `diagnosis.diagnose` is the whole of it as one call; `report`
writes it for people, `json_output` for machines.

It reads the step log and nothing else, and runs no engine: `replay/` schedules a recorded run again
with the engine's own scheduler, and computes nothing.
"""
