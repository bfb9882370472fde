"""The package and its stub under strict type checkers, and the wheel's name."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

import pytest

import tidemill

REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def run(*arguments, **options):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        **options,
    )
    return done.returncode, done.stdout + done.stderr


def test_package_and_stub_are_typed_strictly(cache):
    status, says = run(
        *("-m", "mypy", "--cache-dir", cache, "python/tidemill", "python/tests/typed.py")
    )
    assert status == 0, says


def test_the_stub_is_that_of_the_native_module(cache):
    options = {"env": os.environ | {"MYPY_CACHE_DIR": str(cache)}}
    config = ("--mypy-config-file", "pyproject.toml")
    status, says = run("-m", "mypy.stubtest", *config, "tidemill._tidemill", **options)
    assert status == 0, says


def test_the_package_says_that_it_is_typed():
    folder = pathlib.Path(tidemill.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_tidemill.pyi").exists()
    assert tidemill.__version__ == tidemill._tidemill.__version__


def test_the_native_module_is_for_every_later_python():
    assert pathlib.Path(tidemill._tidemill.__file__).name == "_tidemill.abi3.so"
    wheel = importlib.metadata.distribution("tidemill").read_text("WHEEL")
    assert re.findall("^Tag: (.*)$", wheel, re.MULTILINE)[0].startswith("cp310-abi3-")
