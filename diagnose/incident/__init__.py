"""The incident report: a diagnosis as a document that can be handed to somebody who was not there.

Its tour: `whole` puts a report together, one finding or many, well or unknown; `one_finding` writes
what one finding says, whose sections are `evidence`, `who_paid` and `what_to_do`; `predictions`
writes the what-ifs that go along; `moments` reads from the log when what happened; `notes` says
what is not known; `tables` drops columns without a measurement. None of it knows a form:
`diagnose.markdown` and the dashboard's report write it out.
"""

from diagnose.incident.whole import write_incident

__all__ = ["write_incident"]
