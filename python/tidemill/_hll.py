"""Sketches: how many different values there are, by HyperLogLog."""

# What has types is checked all the same: most callers have no type checker.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import operator
import re
from typing import Any, Literal, NamedTuple, SupportsIndex

from tidemill import _arrays
from tidemill._errors import UncertainEstimateError, UsageError
from tidemill._tidemill import RawHll
from tidemill._words import counted

#: Whose rules the bytes are written by.
Dialect = Literal["postgresql", "java"]

#: How an estimate is made.
Estimator = Literal["published", "ertl"]

_DIALECTS = ("postgresql", "java")
_ESTIMATORS = ("published", "ertl")


class Estimate(NamedTuple):
    """A number that is estimated, with its error.

    Attributes
    ----------
    value : float
        The number.
    standard_error : float
        One standard error, in the unit of the value; 0.0 where the number is exact.
    interval : tuple of float
        The least and the most that it is in 19 cases of 20.

    Examples
    --------
    >>> import tidemill as tm
    >>> a, b = tm.Hll(), tm.Hll()
    >>> a.add_values(range(100)), b.add_values(range(50, 150))
    (None, None)
    >>> a.intersection(b)
    Estimate(value=50.0, standard_error=0.0, interval=(50.0, 50.0))
    >>> float(a.intersection(b))
    50.0
    """

    value: float
    standard_error: float
    interval: tuple[float, float]

    @property
    def is_exact(self) -> bool:
        """Whether there is no error in it."""
        return self.standard_error == 0.0

    def __float__(self) -> float:
        """Give the value alone."""
        return self.value


class Hll:
    r"""A sketch of how many different values there are (HyperLogLog).

    Exact while the values are few, then an estimate in constant memory. Sketches of parts unite to
    the sketch of all, and their bytes are those of postgresql-hll and java-hll (the storage
    specification v1.0.0). `docs/sketches.md` is the guide.

    Parameters
    ----------
    log2m : int, default 11
        The base-2 logarithm of the number of registers, 4 to 31: the standard error is
        1.04 / √(2 ** log2m), 2.3 % by default.
    regwidth : int, default 5
        Bits of a register, 1 to 8; 5 is enough for 10\ :sup:`12` values.
    explicit : "auto" or int, default "auto"
        Up to how many values the count is exact: 0 or a power of two; ``"auto"``: as many as fit
        the space of the registers.
    sparse : bool or int, default True
        Whether few registers are written as a list: where that is shorter (True), up to so many
        registers (a number: ``hll_set_max_sparse`` of postgresql-hll), or never (False or 0).
    dialect : "postgresql" or "java", default "postgresql"
        Whose rules decide between the forms of the bytes. All read any of them.

    Raises
    ------
    UsageError
        If a parameter is out of its range.

    Examples
    --------
    >>> import tidemill as tm
    >>> monday, tuesday = tm.Hll(), tm.Hll()
    >>> monday.add_values(["ann", "bob", "ann"])
    >>> tuesday.add("cy")
    >>> (monday | tuesday).cardinality()
    3.0
    >>> tuesday.to_bytes().hex()
    '128b7fb2f3d123f28fb5d4'
    >>> tm.Hll.from_bytes(tuesday.to_bytes()) == tuesday
    True

    Of many values an estimate:

    >>> million = tm.Hll(log2m=14, regwidth=6)
    >>> million.add_values(range(1_000_000))
    >>> million
    Hll(log2m=14, regwidth=6: 1,003,245 values ± 8,151)
    >>> million.estimate().interval[0] < 1_000_000 < million.estimate().interval[1]
    True
    """

    __slots__ = ("_dialect", "_raw", "_sparse_max")

    def __init__(
        self,
        log2m: int = 11,
        regwidth: int = 5,
        explicit: Literal["auto"] | int = "auto",
        sparse: bool | int = True,
        dialect: Dialect = "postgresql",
    ) -> None:
        threshold: int | None = None
        if explicit != "auto":
            if not isinstance(explicit, int) or isinstance(explicit, bool):
                raise UsageError(
                    f"`explicit` must be 'auto', 0 or a power of two, not {explicit!r}"
                )
            threshold = _whole("explicit", explicit, 0, 2**30)
        is_sparse, self._sparse_max = _sparse(sparse, dialect)
        self._dialect: Dialect = dialect
        self._raw = RawHll(
            _whole("log2m", log2m, 4, 31), _whole("regwidth", regwidth, 1, 8), threshold, is_sparse
        )

    @classmethod
    def _of(cls, raw: RawHll, sparse_max: int | None, dialect: Dialect) -> Hll:
        hll = cls.__new__(cls)
        hll._raw, hll._sparse_max, hll._dialect = raw, sparse_max, dialect
        return hll

    @classmethod
    def from_bytes(
        cls,
        bytes: bytes | bytearray | memoryview | str,
        *,
        sparse: bool | int = True,
        dialect: Dialect = "postgresql",
        max_log2m: int = 24,
    ) -> Hll:
        r"""Read a sketch that this or another implementation of the specification has written.

        Parameters
        ----------
        bytes : bytes or str
            The sketch; as text in hexadecimal behind ``\x``, as PostgreSQL shows it.
        sparse : bool or int, default True
            As for a new one; the bytes tell whether they may be sparse, and no number. ``False``
            rules it out.
        dialect : "postgresql" or "java", default "postgresql"
            Whose rules the sketch is written by from now on.
        max_log2m : int, default 24
            The most that is accepted. Three bytes may claim 2 ** 31 registers, which take 2 GB
            once values fill them: allow that of bytes that are trusted.

        Returns
        -------
        Hll
            The sketch.

        Raises
        ------
        CorruptBytesError
            If the bytes are no sketch, or are damaged or cut short.
        UsageError
            If ``log2m`` is larger than ``max_log2m``.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.Hll.from_bytes(r"\x128b7f0000000000000001")
        Hll(log2m=11, regwidth=5: 1 value, exact)
        >>> tm.Hll.from_bytes(b"\x12\x8b")
        Traceback (most recent call last):
        tidemill._errors.CorruptBytesError: `hll` state ends at byte 2: 1 more expected there
        """
        is_sparse, sparse_max = _sparse(sparse, dialect)
        data = _bytes(bytes)
        raw = RawHll.from_bytes(data, _whole("max_log2m", max_log2m, 4, 31))
        if not is_sparse:
            log2m, regwidth, explicit, _ = raw.parameters
            other = RawHll(log2m, regwidth, explicit, False)
            # The smaller of each parameter holds: only sparse is.
            other.update(raw)
            raw = other
        return cls._of(raw, sparse_max, dialect)

    def to_bytes(self) -> bytes:
        r"""Write the sketch by the storage specification, as ``dialect`` has it.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.Hll(log2m=14, regwidth=6).to_bytes()
        b'\x11\xae\x7f'
        """
        return self._raw.to_bytes(self._sparse_max, self._dialect == "java")

    def to_hex(self) -> str:
        r"""Write the sketch as text that PostgreSQL takes for an ``hll``.

        Examples
        --------
        >>> import tidemill as tm
        >>> print(tm.Hll().to_hex())
        \x118b7f
        """
        return "\\x" + self.to_bytes().hex()

    @property
    def log2m(self) -> int:
        """The base-2 logarithm of the number of registers."""
        return self._raw.parameters[0]

    @property
    def regwidth(self) -> int:
        """Bits of a register."""
        return self._raw.parameters[1]

    @property
    def explicit(self) -> Literal["auto"] | int:
        """Up to how many values the count is exact."""
        explicit = self._raw.parameters[2]
        return "auto" if explicit is None else explicit

    @property
    def sparse(self) -> bool | int:
        """Whether few registers are written as a list, or up to how many."""
        is_sparse = self._raw.parameters[3]
        return self._sparse_max if is_sparse and self._sparse_max is not None else is_sparse

    @property
    def dialect(self) -> Dialect:
        """Whose rules decide between the forms of the bytes."""
        return self._dialect

    @property
    def is_exact(self) -> bool:
        """Whether the count is exact so far."""
        return self._raw.is_exact

    @property
    def is_undefined(self) -> bool:
        """Whether it is a union with something of unknown content, and has no count."""
        return self._raw.is_undefined

    def add(self, value: object) -> None:
        """Add a value.

        Parameters
        ----------
        value : int, str, float, bytes, bool, Decimal, datetime, date, time or timedelta
            Hashed as in a column of SQL: a whole number of any width as 64 bits, a str as its
            UTF-8, a float as a double, a time as its microseconds in UTC. ``1``, ``1.0`` and
            ``"1"`` are three values.

        Raises
        ------
        UsageError
            If it is None, a whole number of more than 64 bits, or of another type.

        Examples
        --------
        >>> import tidemill as tm
        >>> hll = tm.Hll()
        >>> for value in [1, 1.0, "1", 1]:
        ...     hll.add(value)
        >>> hll.cardinality()
        3.0
        """
        self._raw.add(value)

    def add_values(self, values: Any) -> None:
        """Add many values. Nulls (None, NaT, masked) are left out.

        Parameters
        ----------
        values : array or iterable
            A NumPy array, what exports Arrow's data (an array or column of PyArrow, Polars, pandas,
            DuckDB; a table of one column), which are not copied; or an iterable of what `add`
            takes, all or nothing of which is added. Ctrl-C ends it; what was added by then stays.

        Raises
        ------
        UsageError
            If there are values that have no hash.

        Examples
        --------
        >>> import tidemill as tm, pyarrow
        >>> hll = tm.Hll()
        >>> hll.add_values(pyarrow.array([7, None, 8, 7]))
        >>> hll.add_values({"a", "b"})
        >>> hll.cardinality()
        4.0
        """
        kind, values = _arrays.given(values, "values")
        if kind == "arrow":
            self._raw.add_arrow(values)
        elif kind == "numpy":
            self._raw.add_numpy(values)
        else:
            self._raw.add_objects(values)

    def add_hash(self, hash: int) -> None:
        """Add a value by a hash of its own.

        Parameters
        ----------
        hash : int
            Of 64 bits, signed or not.

        Examples
        --------
        >>> import tidemill as tm
        >>> hll = tm.Hll()
        >>> hll.add_hash(-1), hll.add_hash(2**64 - 1)
        (None, None)
        >>> hll.cardinality()
        1.0
        """
        self._raw.add_hash(_signed(hash))

    def add_hashes(self, hashes: Any) -> None:
        """Add many values by hashes of their own.

        Parameters
        ----------
        hashes : array or iterable
            Whole numbers of 64 bits, signed or not: as `add_values` takes them.

        Raises
        ------
        UsageError
            If they are of another type.

        Examples
        --------
        >>> import tidemill as tm, numpy
        >>> hll = tm.Hll()
        >>> hll.add_hashes(numpy.array([1, 2, -1]))
        >>> hll.add_hashes([1, 2**64 - 1])
        >>> hll.cardinality()
        3.0
        """
        kind, hashes = _arrays.given(hashes, "hashes")
        if kind == "arrow":
            self._raw.add_arrow_hashes(hashes)
        elif kind == "numpy":
            self._raw.add_numpy_hashes(hashes)
        else:
            self._raw.add_hash_list([_signed(hash) for hash in hashes if hash is not None])

    def update(self, *others: Hll) -> None:
        """Add all that others have seen.

        Where ``log2m``, ``regwidth`` and the others differ, the smaller of each holds from then
        on: registers are folded to exactly what they would have been.

        Parameters
        ----------
        *others : Hll
            The others, which stay as they are.

        Examples
        --------
        >>> import tidemill as tm
        >>> fine, coarse = tm.Hll(log2m=14, regwidth=6), tm.Hll(log2m=10)
        >>> fine.add_values(range(5)), coarse.add_values(range(3, 10))
        (None, None)
        >>> fine.update(coarse)
        >>> fine
        Hll(log2m=10, regwidth=5: 10 values, exact)
        """
        for other in others:
            self._raw.update(_raw(other, "union"))

    def __or__(self, other: Hll) -> Hll:
        """Unite two sketches, as `update` does."""
        if not isinstance(other, Hll):
            return NotImplemented
        return Hll._of(self._raw.union(other._raw), self._sparse_max, self._dialect)

    def __ior__(self, other: Hll) -> Hll:
        """Add all that another has seen."""
        if not isinstance(other, Hll):
            return NotImplemented
        self._raw.update(other._raw)
        return self

    def folded(self, log2m: int | None = None, regwidth: int | None = None) -> Hll:
        """Give the sketch that smaller parameters would have led to.

        Parameters
        ----------
        log2m, regwidth : int, optional
            At most what they are.

        Examples
        --------
        >>> import tidemill as tm
        >>> fine, coarse = tm.Hll(log2m=14, regwidth=6), tm.Hll(log2m=11, regwidth=5)
        >>> fine.add_values(range(10_000)), coarse.add_values(range(10_000))
        (None, None)
        >>> fine.folded(log2m=11, regwidth=5) == coarse
        True
        """
        raw = self._raw.folded(
            self.log2m if log2m is None else _whole("log2m", log2m, 4, 31),
            self.regwidth if regwidth is None else _whole("regwidth", regwidth, 1, 8),
        )
        return Hll._of(raw, self._sparse_max, self._dialect)

    def cardinality(self, estimator: Estimator = "published") -> float:
        """Count the different values: exactly while they are few, then by an estimate.

        Parameters
        ----------
        estimator : "published" or "ertl", default "published"
            The published one gives postgresql-hll's results, and rounded up java-hll's; between
            2.5 and 5 times as many values as registers it is up to 2.4 % too high on average.
            Ertl's is not.

        Returns
        -------
        float
            The number; NaN of a sketch that `is_undefined`.

        Examples
        --------
        >>> import tidemill as tm
        >>> hll = tm.Hll()
        >>> hll.add_values(range(6_000))
        >>> round(hll.cardinality()), round(hll.cardinality("ertl"))
        (6068, 5989)
        """
        return self._raw.cardinality(_is_improved(estimator))

    def error(self, estimator: Estimator = "published") -> float:
        """Give the standard error of the `cardinality`, as a share of it; 0.0 while it is exact.

        Examples
        --------
        >>> import tidemill as tm
        >>> hll = tm.Hll()
        >>> hll.add_values(range(100_000))
        >>> round(hll.error(), 3)
        0.023
        """
        value, standard_error, _ = self._raw.estimate(_is_improved(estimator))
        return standard_error / value if standard_error else 0.0

    def estimate(self, estimator: Estimator = "published") -> Estimate:
        """Give the `cardinality` with its standard error and its interval.

        Examples
        --------
        >>> import tidemill as tm
        >>> hll = tm.Hll()
        >>> hll.add_values(range(100_000))
        >>> value, standard_error, (low, high) = hll.estimate()
        >>> round(value), round(standard_error), round(low), round(high)
        (96663, 2221, 92309, 101017)
        """
        return Estimate(*self._raw.estimate(_is_improved(estimator)))

    def intersection(self, other: Hll, *, uncertain: bool = False) -> Estimate:
        """Estimate how many values both have seen, by inclusion and exclusion.

        Its error is that of the whole sketches: a small overlap of large ones cannot be told.

        Parameters
        ----------
        other : Hll
            The other one, of any parameters.
        uncertain : bool, default False
            Give the number even if its error is larger than it.

        Returns
        -------
        Estimate
            The number, by Ertl's estimator, with its error; exact while both are.

        Raises
        ------
        UncertainEstimateError
            If the error at 95 % is larger than the number, unless ``uncertain``.

        Examples
        --------
        >>> import tidemill as tm
        >>> a, b = tm.Hll(log2m=14, regwidth=6), tm.Hll(log2m=14, regwidth=6)
        >>> a.add_values(range(60_000)), b.add_values(range(40_000, 100_000))
        (None, None)
        >>> both = a.intersection(b)
        >>> both.interval[0] < 20_000 < both.interval[1]
        True
        """
        return self._compared(other, 0, "intersection", uncertain)

    def difference(self, other: Hll, *, uncertain: bool = False) -> Estimate:
        """Estimate how many values this one has seen and the other has not; as `intersection`.

        Examples
        --------
        >>> import tidemill as tm
        >>> a, b = tm.Hll(), tm.Hll()
        >>> a.add_values("abc"[i] for i in range(3)), b.add_values(["c"])
        (None, None)
        >>> a.difference(b).value
        2.0
        """
        return self._compared(other, 1, "difference", uncertain)

    def jaccard(self, other: Hll, *, uncertain: bool = False) -> Estimate:
        """Estimate which share of all values both have seen; as `intersection`.

        Examples
        --------
        >>> import tidemill as tm
        >>> a, b = tm.Hll(), tm.Hll()
        >>> a.add_values([1, 2, 3]), b.add_values([3, 4])
        (None, None)
        >>> a.jaccard(b).value
        0.25
        """
        found = self._compared(other, 2, "Jaccard index", uncertain)
        low, high = found.interval
        return found._replace(interval=(low, min(high, 1.0)))

    def _compared(self, other: Hll, at: int, what: str, uncertain: bool) -> Estimate:
        told, is_certain = self._raw.compare(_raw(other, what))[at]
        estimate = Estimate(*told)
        if not is_certain and not uncertain:
            margin = 1.96 * estimate.standard_error
            error = UncertainEstimateError(
                f"the {what} cannot be told from nothing: {_rounded(estimate.value)} ± "
                f"{_rounded(margin)} (95 %)\n"
                "hint: a larger log2m= narrows it; uncertain=True gives it all the same"
            )
            error.estimate = estimate
            raise error
        return estimate

    def copy(self) -> Hll:
        """Copy the sketch.

        Examples
        --------
        >>> import tidemill as tm
        >>> hll = tm.Hll()
        >>> copy = hll.copy()
        >>> copy.add(1)
        >>> hll == copy
        False
        """
        return Hll._of(self._raw.copy(), self._sparse_max, self._dialect)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Hll:
        """Copy the sketch."""
        return self.copy()

    def __eq__(self, other: object) -> bool:
        """Whether both have the same parameters and have seen the same."""
        return isinstance(other, Hll) and self._raw.equals(other._raw)

    __hash__ = None  # type: ignore[assignment]

    def __sizeof__(self) -> int:
        """Give the memory that it takes."""
        return object.__sizeof__(self) + self._raw.heap_bytes

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the sketch by its bytes."""
        # Java's rules keep the values where they are kept in memory, whatever their number.
        return _unpickled, (self._raw.to_bytes(None, True), self._sparse_max, self._dialect)

    def __repr__(self) -> str:
        """Show the parameters and how many values there are."""
        log2m, regwidth, _, _ = self._raw.parameters
        value, standard_error, _ = self._raw.estimate(False)
        if self._raw.is_undefined:
            says = "undefined"
        elif self._raw.is_exact:
            says = f"{counted(round(value), 'value')}, exact"
        else:
            says = f"{_rounded(value)} values ± {_rounded(standard_error)}"
        return f"Hll(log2m={log2m}, regwidth={regwidth}: {says})"


def _raw(other: object, what: str) -> RawHll:
    if not isinstance(other, Hll):
        raise UsageError(f"the {what} is with an Hll, not with a {type(other).__name__}")
    return other._raw


def _unpickled(data: bytes, sparse_max: int | None, dialect: Dialect) -> Hll:
    return Hll._of(RawHll.from_bytes(data, 31), sparse_max, dialect)


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise UsageError(f"`{name}` must be a whole number, not {value!r}")
    number = operator.index(value)
    if not least <= number <= most:
        raise UsageError(f"`{name}` is {number}, but must be from {least} to {most}")
    return number


def _sparse(sparse: object, dialect: object) -> tuple[bool, int | None]:
    if dialect not in _DIALECTS:
        raise UsageError(
            f"there is no dialect {dialect!r}\nhint: dialects are {' and '.join(_DIALECTS)}"
        )
    if isinstance(sparse, bool):
        return sparse, None
    most = _whole("sparse", sparse, 0, 2**31)
    if dialect == "java" and most:
        raise UsageError(
            f"`sparse` is {most}, but java-hll has no number of sparse registers\n"
            "hint: True or False, or dialect='postgresql'"
        )
    return most > 0, most or None


def _is_improved(estimator: object) -> bool:
    if estimator not in _ESTIMATORS:
        raise UsageError(
            f"there is no estimator {estimator!r}\nhint: estimators are {' and '.join(_ESTIMATORS)}"
        )
    return estimator == "ertl"


def _signed(hash: object) -> int:
    number = _whole("hash", hash, -(2**63), 2**64 - 1)
    return number - 2**64 if number >= 2**63 else number


def _bytes(data: object) -> bytes:
    if isinstance(data, str):
        digits = data.strip()
        if re.fullmatch(r"\\x([0-9a-fA-F]{2})*", digits):
            return bytes.fromhex(digits[2:])
        raise UsageError(
            "the text is no sketch in hexadecimal, which begins with \\x\n"
            "hint: bytes.fromhex(text) reads it without"
        )
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise UsageError(f"a sketch is bytes or text in hexadecimal, not {type(data).__name__}")


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value != value else f"{value:.3g}"
