"""Whatever is given to an import, it ends in rows or in a sentence, in bounded memory."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.telemetry.sources.vllm_log.builders import LINE, STATS, import_text

MIB = 1 << 20

_MEMORY = """
import re, sys
import stepscope
code = stepscope.main(["import", "vllm-log", sys.argv[1], "--log", sys.argv[2], "--year", "2026"])
with open("/proc/self/status") as status:
    print("peak", int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read())[1]) * 1024)
sys.exit(code)
"""


def peak_bytes(file: Path, log: Path) -> int:
    """Returns the most memory that an import of a file had, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(file), str(log)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
        env={**os.environ, "NO_COLOR": "1"},
    )
    return int(done.stdout.rpartition("peak ")[2])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: there is nothing to import"),
        (b"\n\n\n", "is no log of vLLM: none of its 3 lines begins with a level"),
        (b"once upon a time\n", "is no log of vLLM: none of its 1 lines begins with a level"),
        (random.Random(7).randbytes(200_000), "is no log of vLLM"),
        (b'{"log": 5}\n{"MESSAGE": null}\n{"a": [' + b"[" * 9_000 + b"\n", "is no log of vLLM"),
        (gzip.compress(b""), "is no log of vLLM: none of its 0 lines"),
        (gzip.compress(b"x" * 5_000)[:12], "is cut off: nothing of it can be unpacked"),
        (b"\x1f\x8b" + b"garbage", "is damaged: nothing of it can be unpacked"),
    ],
    ids=["empty", "blank", "prose", "binary", "JSON", "empty gzip", "stub", "no gzip"],
)
def test_what_is_no_log_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = import_text(tmp_path, content)
    assert imported.code == 2
    assert sentence in capsys.readouterr().err
    assert not imported.log.exists()


def test_a_directory_and_a_missing_file_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import stepscope

    for path in (tmp_path, tmp_path / "none.log"):
        assert stepscope.main(["import", "vllm-log", str(path), "--log", str(tmp_path / "l")]) == 2
    errors = capsys.readouterr().err
    assert "is a directory: name the log files in it" in errors
    assert "none.log" in errors


def test_of_a_truncated_gzip_file_what_is_there_is_imported(tmp_path: Path) -> None:
    lines = "".join(
        LINE.replace("26:53", f"{i // 60:02}:{i % 60:02}").replace("480.5", f"{i * 7919 % 997}.5")
        for i in range(3600)
    )
    packed = gzip.compress(lines.encode())
    imported = import_text(tmp_path, packed[: len(packed) // 2], name="vllm.log.gz")
    assert imported.code == 0
    assert 100 < imported.rows("SELECT count(DISTINCT ts) AS n FROM samples")[0]["n"] < 3600
    assert any("is cut off: what comes before is imported" in n for n in imported.told()["notes"])


def test_garbage_between_lines_is_counted(tmp_path: Path) -> None:
    rubbish = b"\xff\x00\x1b[ \x80\x81\n" * 50
    told = import_text(tmp_path, LINE.encode() + rubbish + LINE.encode()).told()
    assert (told["num_read"], told["num_unread"]) == (2, 50)


def test_a_line_of_numbers_in_other_words_is_counted_and_shown(tmp_path: Path) -> None:
    head = "INFO 03-14 09:26:54 [loggers.py:161] "
    told = import_text(tmp_path, f"{LINE}{head}Avg prompt throughput: plenty\n").told()
    assert told["num_unread"] == 1
    assert told["unread"] == ["line 2: Avg prompt throughput: plenty"]


@pytest.mark.parametrize("head", [b"", b"INFO 03-14 09:27:00 [loggers.py:161] "])
def test_a_line_of_50_megabytes_is_passed_over(tmp_path: Path, head: bytes) -> None:
    imported = import_text(
        tmp_path, LINE.encode() + head + b"A" * (50 * MIB) + b"\n" + LINE.encode()
    )
    assert imported.code == 0
    assert imported.rows("SELECT count(*) AS n FROM samples") == [{"n": 12}]


def test_a_part_that_never_ends_is_bounded(tmp_path: Path) -> None:
    part = b"2026-03-14T09:26:53Z stderr P " + b"A" * 9_000 + b"\n"
    imported = import_text(tmp_path, LINE.encode() + part * 5_000)
    assert imported.code == 0
    assert len(imported.everything()) < 20_000


def test_times_that_do_not_exist_do_not_stop_it(tmp_path: Path) -> None:
    imported = import_text(tmp_path, LINE + LINE.replace("03-14", "02-31") + LINE)
    assert imported.rows("SELECT count(*) AS n FROM samples") == [{"n": 18}]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """48 MiB with many rows, packed and not, may take 32 MiB more than a file of one line."""
    small, large, packed = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "c.log.gz"
    small.write_text(LINE)
    access = f'INFO:     10.0.0.1:5000 - "GET /v1/models?{"q" * 500} HTTP/1.1" 200 OK\n' * 1_800
    with large.open("w") as file, gzip.open(packed, "wt", compresslevel=1) as other:
        for number in range(48):
            minute = f"INFO 03-14 09:{number % 60:02}:{{:02}} [loggers.py:161] {STATS}\n"
            block = access + "".join(minute.format(second) for second in range(60))
            file.write(block)
            other.write(f"{number}\n{block}")
    assert large.stat().st_size > 45 * MIB
    floor = peak_bytes(small, tmp_path / "log-a")
    assert peak_bytes(large, tmp_path / "log-b") - floor < 32 * MIB
    assert peak_bytes(packed, tmp_path / "log-c") - floor < 32 * MIB
