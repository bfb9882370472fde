"""Progress, in a real terminal and in a real notebook's kernel."""

import io
import os
import pty
import re
import subprocess
import sys
import textwrap
import threading

import pytest
from jupyter_client import KernelManager

from processes import run_script
from tidemill import _progress

# Standard input is a pipe; who reads it waits until something was shown.
WAITING = """
import os, sys, threading
import tidemill as tm

result = tm.query("SELECT count() AS n FROM '-'", source_format="csv")
print(result.to_pylist(), flush=True)
"""
ROWS = 300_000
DATA = b"x\n" + b"1\n" * ROWS


def in_a_terminal(script, until, **environment):
    """Run Python with a terminal as standard error; feed it once `until` was shown."""
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=inside,
        env=os.environ | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | environment,
    )
    os.close(inside)
    feeder = threading.Thread(target=lambda: (process.stdin.write(DATA), process.stdin.flush()))
    feeder.start()
    shown = b""
    try:
        while not re.search(until, shown):
            shown += os.read(terminal, 4096)
    except OSError:
        # The other side is closed.
        pass
    feeder.join()
    process.stdin.close()
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:
        pass
    os.close(terminal)
    said = process.stdout.read().decode()
    process.stdout.close()
    assert process.wait(600) == 0, shown
    return said, shown.decode()


def test_a_terminal_sees_how_far_a_run_is_and_nothing_of_it_afterwards():
    said, shown = in_a_terminal(WAITING, rb"[1-9][0-9,]* rows, ")
    assert said == f"[{{'n': {ROWS}}}]\n"
    assert re.search(r"\r. [\d.]+ kB, [\d,]+ rows, \S+ .?B/s, \d+ seconds?\x1b\[K", shown), shown
    assert shown.endswith("\r\x1b[K")


def test_a_terminal_sees_it_while_files_are_written(tmp_path):
    script = WAITING.replace('"csv")', f'"csv", output="{tmp_path}/x.csv")')
    script = script.replace("result.to_pylist()", "result.files")
    said, shown = in_a_terminal(script, rb"rows, ")
    assert said == "1\n"
    assert shown.endswith("\r\x1b[K")


def with_option(option):
    return WAITING.replace('"csv")', f'"csv", {option})')


def test_nothing_is_shown_where_it_was_not_asked_for():
    # Without patience each wait shows something before it waits.
    hasty = "from tidemill import _progress\n_progress._PATIENCE_SECONDS = 0\nresult = "
    for script, environment, is_shown in (
        (WAITING, {}, True),
        (WAITING, {"TERM": "dumb"}, False),
        (with_option("progress=False"), {}, False),
    ):
        said, shown = in_a_terminal(script.replace("result = ", hasty), b"", **environment)
        assert said == f"[{{'n': {ROWS}}}]\n"
        assert (" rows, " in shown) == is_shown == (shown != "")


def without_a_terminal(script):
    return subprocess.run(
        [sys.executable, "-c", script], input=DATA, capture_output=True, check=False
    )


def test_what_is_no_terminal_sees_progress_if_it_was_asked_for():
    done = without_a_terminal(WAITING)
    assert (done.stdout, done.stderr) == (f"[{{'n': {ROWS}}}]\n".encode(), b"")
    assert b"rows, " in without_a_terminal(with_option("progress=True")).stderr


@pytest.mark.parametrize(
    ("encoding", "begins"), [("utf-8", f"{'━' * 7}╸{' ' * 20}"), ("ascii", f"{'=' * 7}>{' ' * 20}")]
)
def test_the_bar_is_as_full_as_the_input_is_read(encoding, begins, monkeypatch):
    bytes_out = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(bytes_out, encoding=encoding))
    bar = _progress.display(True)
    bar.update(250, 1000, 1234)
    shown = bytes_out.getvalue().decode(encoding)
    assert shown.startswith(f"\r{begins} 250 B of 1.00 kB, 1,234 rows, ")
    bar.clear()
    bar.clear()
    assert bytes_out.getvalue().decode(encoding).count("\x1b[K") == 2


def test_a_host_that_does_not_answer_is_shown_in_the_place_of_numbers(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    bar = _progress.display(True)
    bar.update(250, 1000, 1234, "waiting for `h`: refused; it is asked again")
    assert re.search(r"\r. waiting for `h`: refused; it is asked again, \d", shown.getvalue())
    told = []

    class Handle:
        def display(self, bundle, raw):
            told.append(bundle)

    in_notebook = _progress._NotebookBar(Handle, patience=0.0)
    in_notebook.update(0, 0, 0, "waiting for `<h>`")
    assert told[0]["text/plain"].startswith("waiting for `<h>`, ")
    assert "waiting for `&lt;h&gt;`, " in told[0]["text/html"]


def test_a_display_that_fails_does_not_fail_the_run():
    done = run_script(
        """
        PIPE
        class Broken:
            encoding = "utf-8"

            def write(self, text):
                failed.set()
                raise OSError("no such terminal")

        failed = threading.Event()
        sys.stderr = Broken()
        feed()
        # The input has no end before the display has failed.
        threading.Thread(target=lambda: (failed.wait(), end())).start()
        result = tm.query("SELECT count() AS n FROM '-'", progress=True, **csv)
        print(result.to_pylist())
        """,
        timeout=600,
    )
    assert done.stdout == "[{'n': 200000}]\n", done.stderr


def test_a_bar_whose_display_is_interrupted_is_taken_away():
    told = []

    class Handle:
        def display(self, bundle, raw):
            told.append(("display", raw, bundle["text/plain"]))
            raise KeyboardInterrupt

        def update(self, bundle, raw):
            told.append(("update", raw, bundle["text/plain"]))

    bar = _progress._NotebookBar(Handle, patience=0.0)
    with pytest.raises(KeyboardInterrupt):
        bar.update(0, 0, 0)
    bar.clear()
    assert [(what, raw) for what, raw, _ in told] == [("display", True), ("update", True)]
    assert told[0][2].startswith("0 B, 0 rows, ") and told[1][2] == ""


@pytest.fixture
def kernel():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=600)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def messages(client, code, react):
    """Run a cell and give what it sends; `react` is called with each message."""
    request = client.execute(code)
    found = []
    while True:
        message = client.get_iopub_msg(timeout=600)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return found
        if kind != "status":
            found.append((kind, content))
        react(kind, content)


def test_a_notebook_shows_a_bar_a_table_and_stops_when_it_is_interrupted(kernel):
    manager, client = kernel
    reading, writing = os.pipe()
    waiting = f"""
        import os
        import tidemill as tm
        os.dup2(os.open("/proc/{os.getpid()}/fd/{reading}", os.O_RDONLY), 0)
        tm.query("SELECT count() AS n FROM '-'", source_format="csv")
    """
    os.write(writing, b"x\n1\n2\n")

    def end_input(kind, content):
        if kind == "display_data":
            os.close(writing)

    found = messages(client, textwrap.dedent(waiting), end_input)
    assert [kind for kind, _ in found][:2] == ["execute_input", "display_data"]
    assert [kind for kind, _ in found][-2:] == ["update_display_data", "execute_result"]
    bar = found[1][1]
    assert "<progress" in bar["data"]["text/html"]
    assert re.match(r"0 B, 0 rows, ", bar["data"]["text/plain"])
    removed = found[-2][1]
    assert removed["transient"] == bar["transient"]
    assert removed["data"]["text/html"] == ""
    assert '<td class="number" align="right">2</td>' in found[-1][1]["data"]["text/html"]
    # The kernel's event loop does not stand still for it: what is there by then is shown.
    plain = found[-1][1]["data"]["text/plain"]
    assert plain == "Result(n BIGINT; its rows are to come)" or "complete: 2 rows" in plain
    os.close(reading)

    reading, writing = os.pipe()

    def interrupt(kind, content):
        if kind == "display_data":
            manager.interrupt_kernel()

    waiting = re.sub(r"fd/\d+", f"fd/{reading}", waiting)
    found = messages(client, textwrap.dedent(waiting), interrupt)
    # However early it comes, the bar is taken away and no other appears.
    kinds = [kind for kind, _ in found]
    assert (kinds.count("display_data"), kinds[-2:]) == (1, ["update_display_data", "error"])
    assert (found[-2][1]["data"]["text/html"], found[-1][1]["ename"]) == ("", "KeyboardInterrupt")
    os.close(reading)
    os.close(writing)
