"""Load to try an engine with: traces, presets, and a client that replays them.

Its tour: `plan` is what will be sent and when; `azure` and `mooncake` read public traces into a
plan (`trace_file` tells them apart), `presets` draw one; `client` sends one request and times its
stream; `replay` sends a whole plan, open or closed loop; `report` sums up what came back. Nothing
here knows our server: any OpenAI-compatible API will do.
"""
