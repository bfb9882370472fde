"""A Ray cluster of three machines, which are processes of this one."""

import os
import pathlib
import subprocess
import sys

# Neither a word to anybody nor a guess of what the machine is for.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"

import pytest
import ray
from moto.server import ThreadedMotoServer
from ray.cluster_utils import Cluster

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cluster():
    """Three machines of a core each, to which this process is connected."""
    memory = 80 << 20
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": memory,
            "include_dashboard": False,
        },
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=memory)
    cluster.wait_for_nodes(timeout=300)
    ray.init(
        address=cluster.address, namespace="tidemill", log_to_driver=False, logging_level="error"
    )
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def server():
    """An S3 server of a test file's own."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def program():
    """Give the path of the built binary."""
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    path = REPOSITORY / target / "release" / "tidemill"
    assert path.exists(), f"{path} is not built: cargo build --release --package tidemill-cli"
    return str(path)


@pytest.fixture(scope="session")
def tidemill(program):
    """Run the built binary, on the cluster that an address names."""

    def run(*words, address=None, home=None):
        environment = {**os.environ, "TIDEMILL_PYTHON": sys.executable}
        if address is not None:
            environment["RAY_ADDRESS"] = address
        if home is not None:
            environment["TIDEMILL_HOME"] = str(home)
        return subprocess.run(
            [program, *words], capture_output=True, text=True, env=environment, timeout=240
        )

    return run


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Files of several formats with the same kinds of rows, in more than one split each."""
    folder = tmp_path_factory.mktemp("logs")
    state = 7
    for file in range(3):
        rows = ["day,page,user,ms,note"]
        for row in range(40_000):
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            draw = state >> 33
            # A line end in quotes, so that starts of splits are guessed.
            note = '"two\nlines, 1,2,3"' if draw % 11 == 0 else "one"
            page = "/abcdefgh"[draw % 9]
            rows.append(
                f"2026-11-{1 + row % 28:02},{page},{draw % 5000},{draw % 997 / 7:.3f},{note}"
            )
        (folder / f"{file}.csv").write_text("\n".join(rows) + "\n")
    return folder
