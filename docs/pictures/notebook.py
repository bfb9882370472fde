"""Take the picture of a notebook: a real JupyterLab in a real browser.

In an environment that has the package, and `docs/pictures/requirements.txt`:

    pip install . -r docs/pictures/requirements.txt
    python docs/pictures/notebook.py                      # docs/pictures/notebook.png
    python docs/pictures/notebook.py --theme dark --output dark.png

The browser is a Chromium that is installed (`apt-get install chromium`), or Playwright's own
(`playwright install chromium`).
"""

import argparse
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

import nbformat
from playwright.sync_api import Page, sync_playwright

REPOSITORY = pathlib.Path(__file__).parents[2]

CELLS = [
    "import tidemill as tm",
    '''tm.query("""
    SELECT state, page, unique(user_id) AS visitors, count() AS views,
           round(mean(ms), 1) AS mean_ms, max(ms) FILTER (WHERE ms > 380) AS slowest
    FROM 'examples/logs/*.json'
    GROUP BY state, page ORDER BY views DESC LIMIT 6
""")''',
    """tm.head("examples/logs/*.json", rows=3)""",
]

# What is not asked for by the documentation, but has to look right too.
MORE_CELLS = [
    """import pathlib
pathlib.Path("bad.csv").write_text("id,note\\n1,<b>bold</b> & co\\n2,\\noops,x\\n3," + "long " * 60)
result = tm.query("SELECT * FROM 'bad.csv'", schema="id BIGINT", max_bad=1)
result""",
    """tm.query("SELECT 1 AS one WHERE false")""",
    """tm.schema("examples/logs/*.json")""",
    """tm.query("SELECT " + ", ".join(f"{n} AS column_{n}" for n in range(40)))""",
    """tm.explain("SELECT state, count() FROM 'examples/logs/*.json' GROUP BY state")""",
    """result.show()""",
    """result.to_pylist(); result""",
    # A bar that has gone, and one that is there.
    """import os, threading
def pipe():
    reading, writing = os.pipe()
    os.write(writing, b"x\\n" + b"1\\n" * 1000)
    os.dup2(reading, 0)
    return writing
threading.Timer(1.5, os.close, (pipe(),)).start()
tm.query("SELECT count() AS n FROM '-'", source_format="csv", schema="x INT")""",
    """waiting = pipe()
tm.query("SELECT count() AS n FROM '-'", source_format="csv", schema="x INT")""",
]


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default=REPOSITORY / "docs" / "pictures" / "notebook.png")
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    parser.add_argument("--everything", action="store_true", help="more cells, for looking at")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(REPOSITORY / "examples", pathlib.Path(folder, "examples"))
        cells = CELLS + (MORE_CELLS if arguments.everything else [])
        notebook = nbformat.v4.new_notebook(
            cells=list(map(nbformat.v4.new_code_cell, cells)),
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, pathlib.Path(folder, "visitors.ipynb"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {
            "IdentityProvider.token": "",
            "LabApp.expose_app_in_browser": True,
            "ServerApp.allow_root": True,
            "ServerApp.open_browser": False,
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": folder,
        }
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter", "lab"),
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for line in server.stderr:
                if f":{port}/lab" in line:
                    break
            # What comes later must not fill the pipe.
            drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
            take(f"http://127.0.0.1:{port}", arguments)
        finally:
            server.terminate()
            server.wait()
            drain.wait()


def take(url: str, arguments: argparse.Namespace) -> None:
    """Open the notebook, run it, and take the picture."""
    with sync_playwright() as playwright:
        installed = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        height = 2800 if arguments.everything else 1000
        page = browser.new_page(viewport={"width": 960, "height": height})
        page.goto(f"{url}/lab/tree/visitors.ipynb?reset")
        page.wait_for_function("() => window.jupyterapp !== undefined")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        theme = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[arguments.theme]
        execute(page, "apputils:change-theme", f"{{theme: '{theme}'}}")
        execute(page, "application:toggle-left-area" if is_open(page) else "application:set-mode")
        # The status bar: before that, running cells asks for a kernel.
        page.get_by_text("| Idle").wait_for()
        run_all(page, arguments.everything)
        picture = page.locator(".jp-Notebook .jp-WindowedPanel-viewport").first
        picture.screenshot(path=arguments.output)
        browser.close()


def execute(page: Page, command: str, options: str = "{}") -> None:
    """Execute one of JupyterLab's commands."""
    page.evaluate(f"() => window.jupyterapp.commands.execute('{command}', {options})")


def is_open(page: Page) -> bool:
    """Whether the list of files is beside the notebook."""
    return bool(page.evaluate("() => !window.jupyterapp.shell.leftCollapsed"))


def run_all(page: Page, has_waiting_cell: bool) -> None:
    """Run all cells, and wait for what they show."""
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    if has_waiting_cell:
        page.wait_for_selector(".jp-CodeCell:last-child .jp-OutputArea progress", timeout=60_000)
    else:
        page.wait_for_selector(".jp-CodeCell:last-child .jp-OutputArea table", timeout=60_000)
    # Nothing is selected, and no cursor blinks.
    execute(page, "notebook:enter-command-mode")


if __name__ == "__main__":
    main()
