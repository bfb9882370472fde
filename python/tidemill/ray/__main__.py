"""Tasks of the command line on their way to a cluster: frames on standard input and output.

A frame is the length of its head (4 bytes, little-endian), its head (JSON), the length of its
content (8 bytes) and its content. The command line says ``start``, ``begin``, ``submit`` and
``end``; what it is told are ``ready``, ``done`` and ``failed``. It ends this process by closing its
input.

With ``up`` or ``down`` behind it, it starts or ends a master instead.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import struct
import sys
import threading
from typing import IO, Any

from tidemill._errors import TidemillError

#: What is said of a file that programs find by name.
_FILE = ("name", "path", "shown", "bytes", "modified_ns", "is_executable")

#: How long it is waited for a task before it is looked what else there is to do, in seconds.
_TICK = 0.02


def _read(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    start = source.read(4)
    if len(start) < 4:
        return None
    head = json.loads(source.read(struct.unpack("<I", start)[0]))
    size = struct.unpack("<Q", source.read(8))[0]
    return head, source.read(size)


def _write(target: IO[bytes], head: dict[str, Any], content: bytes = b"") -> None:
    text = json.dumps(head).encode()
    target.write(struct.pack("<I", len(text)) + text + struct.pack("<Q", len(content)) + content)
    target.flush()


def _pump(
    source: IO[bytes], frames: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]
) -> None:
    while True:
        frame = _read(source)
        frames.put(frame)
        if frame is None:
            return


def main() -> None:
    """Deal tasks until the input is closed; or start or end a master."""
    # What libraries print is no frame.
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if len(sys.argv) > 1:
        _stand(target, sys.argv[1])
        return
    frames: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
    threading.Thread(target=_pump, args=(sys.stdin.buffer, frames), daemon=True).start()
    try:
        _serve(target, frames)
    except BrokenPipeError:
        pass
    except Exception as error:
        is_known = isinstance(error, TidemillError)
        said = str(error) if is_known else f"{type(error).__name__}: {error}"
        _write(target, {"is": "failed", "why": said})


def _stand(target: IO[bytes], verb: str) -> None:
    """Start or end a master: what is asked and what is told are JSON."""
    from tidemill.ray import _master

    asked = json.loads(sys.stdin.buffer.read())
    try:
        if verb == "up":
            told = dataclasses.asdict(_master.up(**asked))
        else:
            told = {"was_there": _master.kill(asked["on"])}
    except TidemillError as error:
        told = {"failed": str(error)}
    except Exception as error:
        told = {"failed": f"{type(error).__name__}: {error}"}
    target.write(json.dumps(told).encode())
    target.flush()


def _serve(
    target: IO[bytes], frames: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]
) -> None:
    from tidemill.ray import connect

    frame = frames.get()
    if frame is None:
        return
    start = frame[0]
    workers = connect(start["on"], memory=start["memory"]).job()
    machines, processes, threads, is_here = workers.reach()
    counts = {"machines": machines, "workers": processes, "threads": threads}
    _write(target, {"is": "ready", **counts, "is_here": is_here})
    in_work = 0
    while True:
        try:
            frame = frames.get(timeout=None if in_work == 0 else 0)
        except queue.Empty:
            done = workers.next(_TICK)
            if done is not None:
                number, attempt, part, why, worker = done
                in_work -= 1
                told = {"is": "done", "number": number, "attempt": attempt, "worker": worker}
                _write(target, told | {"why": why}, part or b"")
            continue
        if frame is None:
            workers.end()
            return
        head, content = frame
        match head["is"]:
            case "begin":
                in_work = 0
                files = [tuple(file[key] for key in _FILE) for file in head["files"]]
                workers.begin(content, head["secrets"], head["paths"], files)
            case "submit":
                in_work += 1
                place = (head["number"], head["attempt"], head["bytes"], head["name"])
                workers.submit(*place, content)
            case "end":
                in_work = 0
                workers.end()
            case other:
                raise ValueError(f"a frame of an unknown kind: {other}")


if __name__ == "__main__":
    main()
