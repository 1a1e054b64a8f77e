"""Text in, tokens out, and back: what the server and `engine.llm` have in common.

`tokenizer` is a checkpoint's, `chat_template` makes a prompt of a conversation. `completion_text`
turns one request's tokens into text up to a stop string (`detokenizer`, `stop_strings`), and
`token_spelling` says how single tokens are written.
"""
