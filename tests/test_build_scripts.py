"""Tests of the build scripts: the cases in which cargo compiles this project's crates again."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "scripts"
LONG_AGO = 1_000_000_000


@pytest.fixture
def checkout(tmp_path):
    """Create a checkout with one source file; return a function that claims a target folder."""
    folder = tmp_path / "checkout"
    source = folder / "crates" / "text" / "src" / "lib.rs"
    source.parent.mkdir(parents=True)
    source.write_text("")
    (folder / "scripts").mkdir()
    shutil.copy(SCRIPTS / "common.sh", folder / "scripts")
    target = tmp_path / "target"

    def is_rebuilt():
        os.utime(source, (LONG_AGO, LONG_AGO))
        words = "source scripts/common.sh; claim_target"
        environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
        subprocess.run(["bash", "-c", words], cwd=folder, env=environment, check=True)
        assert (target / "checkout").read_text() == f"{folder}\n"
        return source.stat().st_mtime != LONG_AGO

    return folder, target, is_rebuilt


def test_first_build_and_builds_of_same_checkout_rebuild_nothing(checkout):
    _, _, is_rebuilt = checkout
    assert not is_rebuilt()
    assert not is_rebuilt()


def test_build_of_another_checkout_is_rebuilt(checkout):
    _, target, is_rebuilt = checkout
    target.mkdir()
    (target / "checkout").write_text("/elsewhere/tidemill\n")
    assert is_rebuilt()
    assert not is_rebuilt()


@pytest.mark.parametrize("is_ours", [True, False])
def test_build_that_no_script_started_is_known_by_its_sources(checkout, is_ours):
    folder, target, is_rebuilt = checkout
    builder = folder if is_ours else "/elsewhere/tidemill"
    (target / "release").mkdir(parents=True)
    (target / "release" / "tidemill.d").write_text(
        f"{target}/release/tidemill: {builder}/crates/avro/src/lib.rs "
        f"{builder}/crates/text/src/lib.rs\n"
    )
    assert is_rebuilt() == (not is_ours)
