"""Attention kernels that read the paged cache in place, and which of them is used.

* `choice`: which kernel a model gets on a device; `trial` has it attend before it is trusted.
* `flashinfer_kernel`, `flash_kernel`, `flex_kernel`: one kernel each. What all of them need of a
  step in numpy is in `paged_tables`, attention sinks in `sinks`.

A kernel says in `complaint` what it cannot do. Gathering (`engine.runner.attention_backend`) can
do everything. Importing this package loads no kernel.
"""
