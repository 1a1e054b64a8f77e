"""The OpenAI-compatible server: an API process, and the step loop in a process of its own.

    client ──HTTP──► app ► completions ► EngineClient ══pipe══► engine_process ► EngineCore
                                              ▲                        │
                                              └── StepDone, one a step ┘

Its tour: `settings` is what the API process was told; `server` runs it from its first breath to its
last and takes what others `mount`; `app` has the routes; `completion_request` reads a request,
`completions` answers it, `completion_text` turns tokens into text up to a stop string
(`detokenizer`, `stop_strings`); `integrity` has the engine check its books; `engine_client` is the
API's end of the pipe (`result_box` holds what came), `messages` what passes through it,
`engine_process` the other end (`inbox` holds what was asked).

Importing this package loads neither FastAPI nor torch.
"""
