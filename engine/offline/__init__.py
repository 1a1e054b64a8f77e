"""What `engine.llm` is made of.

`flags` makes settings of keywords, `prompts` makes tokens of texts and conversations, `batch` takes
requests through the core to their ends, `progress` shows how far it is, `results` is what comes
back.
"""
