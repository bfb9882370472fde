"""A JupyterLab on loopback, and a browser in front of it."""

import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

# Where a browser that is not found is told of.
MISSING = "Chromium is not installed (apt-get install chromium)"

# JupyterLab starts in seconds, on a machine with other work in a minute.
START_SECONDS = 120


def browser():
    """Where Chromium is; none where it is not installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def server(folder: pathlib.Path, state: pathlib.Path):
    """Start JupyterLab over a folder; its address, and the token that it asks for.

    What it keeps, and what its kernels do, is below `state`.
    """
    token = secrets.token_hex(16)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "IdentityProvider.token": token,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.expose_app_in_browser": True,
        "LabApp.extension_manager": "readonly",
        "LabApp.news_url": None,
        "ServerApp.allow_root": True,
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.open_browser": False,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder,
    }
    places = {
        "HOME": state,
        "IPYTHONDIR": state / "ipython",
        "JUPYTER_CONFIG_DIR": state / "config",
        "JUPYTER_DATA_DIR": state / "data",
        "JUPYTER_RUNTIME_DIR": state / "runtime",
        "TIDEMILL_HOME": state / "tidemill",
    }
    # Whether there is news is not asked for, and nobody is asked whether it may be.
    said = state / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    said.mkdir(parents=True)
    (said / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    log = state / "jupyter.log"
    with log.open("wb") as written:
        started = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter", "lab"),
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            cwd=folder,
            env={**os.environ, **{name: str(place) for name, place in places.items()}},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            # A group of its own, so that its kernels end with it.
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait(started, f"{url}/api/status?token={token}", log)
        yield url, token
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def wait(started: subprocess.Popen, url: str, log: pathlib.Path) -> None:
    """Wait until the server answers."""
    tries = START_SECONDS * 10
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except (urllib.error.URLError, OSError) as error:
            tries -= 1
            if started.poll() is not None or tries == 0:
                message = f"JupyterLab has not started: {log.read_text()}"
                raise RuntimeError(message) from error
        # Another look, and not a guess of when it is ready.
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(0.1)
