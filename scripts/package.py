"""Builds the Python package: maturin makes the extension, and the command line goes beside it.

`pyproject.toml` names this as the build backend (PEP 517). maturin puts what it finds in the folder
`COMMANDS` into a wheel's scripts, so that `tidemill` is the binary itself and no Python starts
before it. Command line and extension are built with one profile and the same features of their
dependencies, in one target folder: what they share is compiled once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

# Where maturin looks by itself: the module's name and `.data`.
DATA = "tidemill._tidemill.data"
COMMANDS = os.path.join(DATA, "scripts")
CRATE = "tidemill-cli"


def built_command() -> str:
    """Build the command line; gives its path."""
    cargo = ["cargo", "build", "--release", "--locked", "--package", CRATE]
    # Where cargo puts it depends on settings and the environment: it says so.
    told = subprocess.run(
        [*cargo, "--message-format", "json-render-diagnostics"], stdout=subprocess.PIPE, check=False
    )
    if told.returncode != 0:
        sys.exit(f"error: `{' '.join(cargo)}` failed with status {told.returncode}")
    messages = (json.loads(line) for line in told.stdout.splitlines() if line.startswith(b"{"))
    made = [message["executable"] for message in messages if message.get("executable")]
    if len(made) != 1:
        sys.exit(f"error: cargo built {len(made)} programs of {CRATE}, not one: {made}")
    return made[0]


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Have the command line where maturin looks for it."""
    binary = built_command()
    # One that a killed build left is of another day.
    shutil.rmtree(DATA, ignore_errors=True)
    os.makedirs(COMMANDS)
    try:
        shutil.copy2(binary, COMMANDS)
        yield
    finally:
        shutil.rmtree(DATA, ignore_errors=True)


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel of both."""
    with command():
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel that stands for this folder."""
    with command():
        return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Refuse: maturin packs the extension's crates, and the command line is not one of them."""
    sys.exit("error: no source package is made; of a checkout a wheel is: pip wheel --no-deps .")
