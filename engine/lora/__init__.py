"""LoRA adapters in PEFT's format: several beside the plain model, in one batch.

    NAME=PATH ─► reading ─► AdapterStore ─► AdapterSlots ─► LoRALayers
                 a thread    host memory,    the device's    y += B(A(x))
                             versions, LRU   LRU

Its tour: `module_spec` is an adapter's name and place as a flag gives it. `adapter_config` reads
`adapter_config.json` and refuses what cannot be served; `reading` reads the weights and holds them
against the model. `store` keeps adapters in host memory and knows which version a name stands for;
`slots` says which of them are on the device, `layers` adds them to the model's own layers, and
`batch` knows which request has which.

Importing this package loads no torch; `reading`, `layers` and `batch` do. Not responsible for: how
many adapters a step may have (the scheduler's `max_loras`), nor who may load one (the API).
"""
