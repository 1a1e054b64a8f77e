"""Random runs of the scheduler: what is drawn, how it is played, and what is watched meanwhile.

`scenario` is what hypothesis draws: settings, requests with all that happens to them outside, and
disturbances. `player` plays it, one step after the other, without any choice of its own: the same
scenario gives the same run. `connector` answers for KV that lies elsewhere. `watch` says what holds
in every output; `kv_memory` what the KV blocks would really contain.
"""
