"""The command line that the package brings."""

import shutil
import subprocess
import sysconfig

import pytest

import tidemill as tm


@pytest.fixture(scope="module")
def command():
    found = shutil.which("tidemill", path=sysconfig.get_path("scripts"))
    assert found, "no `tidemill` was installed beside this Python"
    return found


def asked(command, *args):
    return subprocess.run([command, *args], capture_output=True, text=True, check=True).stdout


def test_the_command_is_of_the_package_and_no_python_script(command):
    assert asked(command, "--version") == f"tidemill {tm.__version__}\n"
    with open(command, "rb") as file:
        assert file.read(2) != b"#!"


def test_the_command_answers_as_the_package_does(command, tmp_path):
    (tmp_path / "a.csv").write_text("k,n\nx,1\ny,2\nx,3\n")
    sql = f"SELECT k, sum(n) AS n FROM '{tmp_path}/a.csv' GROUP BY k ORDER BY k"
    rows = tm.query(sql).to_pylist()
    assert asked(command, "query", sql, "--format", "csv").splitlines() == [
        "k,n",
        *(f"{row['k']},{row['n']}" for row in rows),
    ]
