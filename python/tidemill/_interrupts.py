"""How does what a signal's handler raises come out of somebody else's call?

Whoever reads a result as an Arrow stream (PyArrow, Polars, ...) calls our code from C, and that
can give it nothing but a number and a text: the reader raises an error of its own, and Python
looks at signals only when a call has succeeded. So a `KeyboardInterrupt` would be a strange
error first, and come too late, if it came at all.

What Python does ask, before the reader's error goes anywhere, is the trace function of the
frame that the error has arrived in. It is set for that one question, and what it raises takes
the error's place.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def raise_soon(error: BaseException) -> bool:
    """Raise an exception in the Python code that waits for the call under way in this thread.

    Returns whether there is any. It is raised once, whether the call fails or not; what it
    fails with becomes the context.
    """
    frame = sys._getframe().f_back
    if frame is None:
        return False
    tracing, local = sys.gettrace(), frame.f_trace

    def trace(_: FrameType, event: str, argument: Any) -> None:
        frame.f_trace = local
        sys.settrace(tracing)
        if event == "exception":
            error.__context__ = argument[1]
        raise error

    frame.f_trace = trace
    sys.settrace(trace)
    return True
