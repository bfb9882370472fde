"""Columns of values as the native module takes them: Arrow's, NumPy's, or objects one by one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tidemill import _lazy_frames
from tidemill._errors import UsageError

#: Units of times that are finer, and take all values of the coarser one.
_FINER = {"W": "D", "M": "D", "Y": "D", "h": "s", "m": "s"}


def given(values: Any, name: str) -> tuple[Literal["arrow", "numpy", "objects"], Any]:
    """Tell which kind of values they are, in the form in which the native module takes them.

    >>> given([1, 2], "values")
    ('objects', [1, 2])
    >>> given("ab", "values")
    Traceback (most recent call last):
    tidemill._errors.UsageError: `values` is a str, which is one value
    hint: add(value) takes one value, and a list several
    """
    values = _lazy_frames.to_arrow_source(values)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(values, numpy.ndarray):
        return _of_numpy(values, name)
    if hasattr(values, "__arrow_c_stream__"):
        try:
            # pandas needs PyArrow for it.
            return "arrow", _Exported(values.__arrow_c_stream__())
        except ImportError:
            pass
    elif hasattr(values, "__arrow_c_array__"):
        return "arrow", values
    if hasattr(values, "__array__") and not hasattr(values, "__iter__"):
        raise UsageError(f"`{name}` is one value of type {type(values).__name__}")
    if hasattr(values, "__array__"):
        import numpy

        return _of_numpy(numpy.asarray(values), name)
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise UsageError(
            f"`{name}` is a {type(values).__name__}, which is one value\n"
            "hint: add(value) takes one value, and a list several"
        )
    if isinstance(values, Mapping):
        raise UsageError(
            f"`{name}` is a {type(values).__name__}, which is no column of values\n"
            "hint: list(x) gives its keys, x.values() what it has for them, x['name'] one of these"
        )
    if not isinstance(values, Iterable):
        raise UsageError(
            f"`{name}` must be an array or an iterable, not {type(values).__name__}\n"
            "hint: add(value) takes one value"
        )
    return "objects", values


class _Exported:
    """A stream that has been exported already."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._capsule


def _of_numpy(array: Any, name: str) -> tuple[Literal["numpy", "objects"], Any]:
    """Have an array of one dimension, without gaps, in the machine's byte order."""
    import numpy

    if isinstance(array, numpy.ma.MaskedArray):
        array = array.compressed()
    array = array.ravel()
    dtype = array.dtype
    if dtype.kind in "OT":
        return "objects", array.tolist()
    if dtype.kind in "mM":
        unit, count = numpy.datetime_data(dtype)
        finer = _FINER.get(unit, unit)
        if dtype.kind == "m" and finer == "D":
            finer = "s"
        if finer not in ("D", "s", "ms", "us", "ns"):
            raise UsageError(f"`{name}` has times of NumPy's unit `{unit}`, which no SQL has")
        if (unit, count) != (finer, 1):
            array = array.astype(f"{dtype.kind}8[{finer}]")
    elif dtype.kind not in "biufSU" or (dtype.itemsize > 8 and dtype.kind == "f"):
        raise UsageError(
            f"`{name}` is of NumPy's type {dtype}, which no value is\n"
            "hint: whole numbers, floats of up to 64 bits, truth values, times, texts and bytes are"
        )
    native = array.dtype.newbyteorder("=")
    return "numpy", numpy.require(array, native, ["C_CONTIGUOUS", "ALIGNED"])
