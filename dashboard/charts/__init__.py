"""Charts: a frame in, an Altair chart out. No Streamlit, no log.

`axis` is the one time axis and the width; `marks` are titles, labels and the cursor that every
panel repeats; `load`, `memory`, `reasons` and `work` are the panels by family; `timeline` stacks
them; `evictions` draws who evicted whom and what it cost. `request_story` stacks the panels of one
request: `request_phases`, `request_tokens`, and the engine meanwhile.

Facts of Vega that cost time to find: layers are flat (nested ones are copied again and again); all
layers of a panel repeat the same axis, else it vanishes; the brush lies on the first panel alone,
which is not layered; x is milliseconds since the window's start, not a `utc` scale.
"""
