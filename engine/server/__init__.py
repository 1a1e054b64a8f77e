"""The OpenAI-compatible server: an API process, and the step loop in a process of its own.

    client ──HTTP──► app ► completions ─┐
                         ► chat ────────┴► generation ► EngineClient ══pipe══► engine_process
                                                             ▲                        │
                                                             └── StepDone, one a step ┘

Its tour: `settings` is what the API process was told; `server` runs it from its first breath to its
last and takes what others `mount`; `app` has the routes. `json_body` takes a body in;
`request_body` has the fields of any request for text (`structured_fields`: what it is to look
like); `completion_request` and `chat_request` read
theirs. `sampling_limits` asks whether this model and server allow it. `generation` takes prompts
through the engine, and tokens become text in `engine.text`; `completions` and `chat` make JSON of
it, as an `answer` (`logprobs`). `access` says who may ask, `admin` has an operator's routes, of
which `integrity` has the engine check its books. `served_models` knows the names of models and
adapters, `adapter_routes` load and unload the latter, and the engine process has them read at its
`adapter_desk`. `engine_client` is the API's end of the pipe
(`result_box` holds what came), `messages` what passes through it, `engine_process` the other end
(`inbox` holds what was asked).

Importing this package loads neither FastAPI nor torch.
"""
