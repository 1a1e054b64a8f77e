"""Files of rules for tests: the example of docs/user-rules.md, and changes to it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs" / "user-rules.md"


def example() -> str:
    """Returns the YAML that the documentation shows."""
    match = re.search(r"^```yaml\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def changed(*replacements: tuple[str, str]) -> str:
    """Returns the example with texts replaced, each of which has to be there."""
    text = example()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def put(directory: Path, text: str | bytes, name: str = "long-prompt-quota.yaml") -> Path:
    """Writes a file of a rule; returns its path."""
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
