import pytest

import java_hll
import postgres
import programs


@pytest.fixture(scope="session")
def ours():
    """Our own sketches."""
    made = programs.ours()
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server with the hll extension."""
    try:
        with postgres.server() as server:
            yield server
    except programs.MissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def java():
    """java-hll behind a program."""
    try:
        program = java_hll.program()
    except programs.MissingError as missing:
        pytest.skip(str(missing))
    yield program
    program.close()
