"""KV events as a source: what vLLM publishes of its prefix cache over ZeroMQ.

    messages    a message's bytes -> its events, without the token ids in them
    hashes      block hashes, keyed, so that they say nothing outside the log
    rows        events -> rows of `kv_events`
    streams     publishers told apart, and the gaps in their numbers
    endpoints, replay, reception, subscriber     a live source of a collector
    captures    messages that lie in files
    command     `stepscope import kv-events`, and the flags of `collect`

Token ids are in each message. They are skipped when it is decoded, and never become objects.

Source: `vllm/distributed/kv_events.py` of vLLM 0.32, and its older form with events as arrays.
"""
