"""A notebook in a real browser."""

import json

import browsing
import pytest


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """JupyterLab; its folder, its address and its token."""
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    if browsing.browser() is None:
        pytest.skip(browsing.MISSING)
    folder, state = (tmp_path_factory.mktemp(name) for name in ("notebooks", "jupyter"))
    with browsing.server(folder, state) as (url, token):
        yield folder, url, token


@pytest.fixture(scope="session")
def chromium(lab):
    """A browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browsing.browser(), args=flags)
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def notebook(request, lab, chromium):
    """Open a notebook of some cells, in a light and in a dark theme; its page."""
    folder, url, token = lab
    pages = []

    def opened(name, *cells):
        code = [
            {"cell_type": "code", "execution_count": None, "id": f"cell-{place}"}
            | {"metadata": {}, "outputs": [], "source": source}
            for place, source in enumerate(cells)
        ]
        kernel = {"name": "python3", "display_name": "Python 3"}
        file = {"cells": code, "metadata": {"kernelspec": kernel}}
        path = folder / f"{name}-{request.param}.ipynb"
        path.write_text(json.dumps({**file, "nbformat": 4, "nbformat_minor": 5}))
        page = chromium.new_page(viewport={"width": 1000, "height": 700})
        pages.append(page)
        page.set_default_timeout(120_000)
        page.goto(f"{url}/lab/tree/{path.name}?reset&token={token}")
        page.wait_for_function("() => window.jupyterapp !== undefined")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        theme = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[request.param]
        execute(page, "apputils:change-theme", {"theme": theme})
        # Before that, running cells asks for a kernel.
        page.get_by_text("| Idle").wait_for()
        return page

    yield opened
    for page in pages:
        page.close()


def execute(page, command, options=None):
    """Execute one of JupyterLab's commands."""
    page.evaluate(
        "([command, options]) => window.jupyterapp.commands.execute(command, options)",
        [command, options or {}],
    )
