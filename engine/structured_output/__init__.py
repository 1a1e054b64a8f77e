"""Structured output: grammars that say which tokens may come next.

Its tour, from the client's wish to the step:

* `wishes`: what can be asked for, and what is wrong with it at first sight. `json_schema`: which
  schemas an output can be kept to.
* `vocabulary`: a model's tokens as xgrammar wants them. `compiler`: from a wish to a compiled
  grammar. `compile_thread`: one after the other, beside the step loop. `cache`: those that are
  there already.
* `grammar`: one request's place in its grammar. `structured_outputs`: all of it, as the engine core
  uses it. `bitmask`: what the runner is given for a step.

xgrammar is loaded when the first grammar is compiled; an engine that is never asked for one does
without.
"""
