"""The OpenAI-compatible server: an API process, and the step loop in a process of its own.

    client ──HTTP──► app ► completions ─┐
                         ► chat ────────┴► generation ► EngineClient ══pipe══► engine_process
                                                             ▲                        │
                                                             └── StepDone, one a step ┘

Its tour: `settings` is what the API process was told; `server` runs it from its first breath to its
last and takes what others `mount`; `app` has the routes. `request_body` has the fields of any
request for text; `completion_request` and `chat_request` read theirs, `chat_template` makes a
prompt of a conversation. `generation` takes prompts through the engine, and `completion_text` turns
their tokens into text up to a stop string (`tokenizer`, `detokenizer`, `stop_strings`);
`completions` and `chat` make JSON of it, as an `answer`. `integrity` has the engine check its
books; `engine_client` is the API's end of the pipe (`result_box` holds what came), `messages` what
passes through it, `engine_process` the other end (`inbox` holds what was asked).

Importing this package loads neither FastAPI nor torch.
"""
