"""Random runs of the scheduler: what is drawn, how it is played, and what is watched meanwhile.

`scenario` is a run as data: settings, requests with all that happens to them outside, disturbances;
`draws` is how hypothesis makes one. `player` plays it, one step after the other, without any choice
of its own: the same scenario gives the same run. `tokens` are what its model says, `connector`
answers for KV that lies elsewhere. `watch` says what holds in every output, `kv_memory` what the KV
blocks would really contain, `rows` what two runs are compared by; `digest` compares interpreters.
"""
