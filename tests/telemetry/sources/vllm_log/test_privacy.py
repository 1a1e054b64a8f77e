"""Nothing of a request's content gets into a step log, however it got into the vLLM's log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.telemetry.sources.vllm_log.builders import LINE, import_text

SECRET = "my grandmother Hildegard"
HEAD = "INFO 03-14 09:27:00 [logger.py:43] "
PARAMS = "params: SamplingParams(n=1), prompt_token_ids: [4711, 4712], lora_request: None."

LEAKS = {
    "a request as vLLM logs it": f"{HEAD}Received request cmpl-1-0: prompt: '{SECRET}', {PARAMS}\n",
    "of V0": (
        f"INFO 03-14 09:27:00 async_llm_engine.py:433] Received request cmpl-1: prompt: '{SECRET}'"
        f", {PARAMS}\n"
    ),
    "over several lines, each with a head": (
        f"{HEAD}Received request cmpl-1-0: prompt: a\r\n{HEAD}ERROR CUDA out of memory {SECRET}\r\n"
    ),
    "over several lines without heads": (
        f"{HEAD}Received request cmpl-1-0: prompt: a\n{SECRET}\nValueError: {SECRET}\n"
    ),
    "cut by a log collector": f"{HEAD}Received request cmpl-1-0: prompt: a\nand {SECRET}'\n",
    "on a line of its own": f"{SECRET}\n",
    "an output": f"{HEAD}Generated response cmpl-1-0: output: '{SECRET}', output_token_ids: [9]\n",
    "in an exception": (
        "ERROR 03-14 09:27:00 [core.py:1] Traceback (most recent call last):\n"
        f"ERROR 03-14 09:27:00 [core.py:1] ValueError: {SECRET}\n"
    ),
    "in an error of the server": f"ERROR 03-14 09:27:00 [serving_chat.py:1] {SECRET} is bad\n",
    "after the words of an error": f"ERROR 03-14 09:27:00 [core.py:1] Cannot do this: {SECRET}\n",
    "in quotes in an error": f"ERROR 03-14 09:27:00 [core.py:1] Cannot do '{SECRET}'\n",
    "token ids in an error": (
        "ERROR 03-14 09:27:00 [scheduler.py:2189] Unexpected: grammar rejected tokens "
        f"[4711, 4712] for request {SECRET}\n"
    ),
    "a dump of the scheduler's input": (
        "ERROR 03-14 09:27:00 [dump_input.py:69] Dumping scheduler output for model execution: "
        f"SchedulerOutput(prompt_token_ids=[4711], text='{SECRET}')\n"
    ),
    "an access line": f'INFO:     1.2.3.4:5 - "GET /v1/find?q={SECRET} HTTP/1.1" 200 OK\n',
    "as docker keeps it, in parts": "".join(
        json.dumps({"log": part, "stream": "stderr", "time": "2026-03-14T09:27:00Z"}) + "\n"
        for part in (f"{HEAD}Received request cmpl-1: prompt: '{'a ' * 9_000}", f"{SECRET}'\n")
    ),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that a step log holds after a log with every leak, each secret numbered."""
    leaks = (
        leak.replace("Hildegard", f"Hildegard{number:02}")
        for number, leak in enumerate(LEAKS.values())
    )
    imported = import_text(tmp_path_factory.mktemp("leaks"), LINE + LINE.join(leaks) + LINE)
    assert imported.values()["log:running"] == 12
    return imported.everything()


@pytest.mark.parametrize("name", LEAKS)
def test_content_of_a_request_is_not_stored(stored: str, name: str) -> None:
    assert f"Hildegard{list(LEAKS).index(name):02}" not in stored


def test_token_ids_are_not_stored(stored: str) -> None:
    assert "4711" not in stored


def test_content_of_a_request_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_text(tmp_path, LINE + LINE.join(LEAKS.values()))
    shown = capsys.readouterr()
    assert "Hildegard" not in shown.out + shown.err
    assert "4711" not in shown.out + shown.err


def test_a_line_that_was_not_understood_is_shown_by_its_shape(tmp_path: Path) -> None:
    told = import_text(tmp_path, f"{LINE}Ächz 12 {SECRET}\n").told()
    assert told["num_unread"] == 1
    assert told["unread"] == ["line 2: Xxxx 99 xx xxxxxxxxxxx Xxxxxxxxx (32 characters)"]


def test_equal_shapes_are_shown_once_and_counted_each(tmp_path: Path) -> None:
    told = import_text(tmp_path, LINE + "Abc\nXyz\nlonger line\n").told()
    assert told["num_unread"] == 3
    assert len(told["unread"]) == 2


def test_control_characters_of_a_log_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_text(tmp_path, LINE + "\x1b]0;title\x07 \x9b31m \u202e odd\n", "--name", "a\x1b[2Jb")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
