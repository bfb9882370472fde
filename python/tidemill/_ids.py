"""Exact sets of 64-bit ids: a space that numbers them, and sets of its numbers."""

# What has types is checked all the same: most callers have no type checker.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tidemill import _arrays
from tidemill._errors import MissingPackageError, UsageError
from tidemill._tidemill import RawIds, RawIdSet, RawIdSpace
from tidemill._words import counted

if TYPE_CHECKING:
    import numpy

Path = str | os.PathLike[str]

#: What becomes of ids that a space does not have.
Unknown = Literal["add", "skip", "error"]

_BYTES = (bytes, bytearray, memoryview)

#: Ids that become Python's objects together.
_BATCH = 4096


class IdSpace:
    """Numbers for 64-bit ids, which sets of them are made of.

    An id gets a number when it is first seen, and a set is bits over the numbers: 15 bytes for
    each id of the space, once, and a bit for each id and set. Sets of one space unite, intersect
    and differ, word by word; sets of different spaces have nothing in common, and refuse to meet.
    Of the space nothing is ever taken out. It may be used from several threads.
    `docs/sketches.md` is the guide.

    Parameters
    ----------
    signed : bool, optional
        Whether ids are from -2**63 to 2**63 - 1, or from 0 to 2**64 - 1. By default the first ids
        tell: an array of unsigned 64-bit numbers, or an int that is too large for a signed one,
        makes it unsigned.

    Examples
    --------
    >>> import tidemill as tm
    >>> space = tm.IdSpace()
    >>> monday, tuesday = space.set([7, -3, 12]), space.set([-3, 99, 12])
    >>> list(monday & tuesday)
    [-3, 12]
    >>> len(monday | tuesday), len(monday - tuesday), len(monday ^ tuesday)
    (4, 1, 2)
    >>> 99 in monday, 99 in tuesday
    (False, True)
    >>> space
    IdSpace(4 signed ids)

    In a file, to be opened without being read:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "users.ids")
    >>> space.save(path)
    >>> opened = tm.IdSpace.open(path)
    >>> -3 in opened, list(opened)
    (True, [7, -3, 12, 99])
    """

    __slots__ = ("_path", "_raw")

    def __init__(self, signed: bool | None = None) -> None:
        if signed is not None and not isinstance(signed, bool):
            raise UsageError(f"`signed` must be True, False or None, not {signed!r}")
        self._raw = RawIdSpace(signed)
        self._path: str | None = None

    @classmethod
    def _of(cls, raw: RawIdSpace, path: str | None = None) -> IdSpace:
        space = cls.__new__(cls)
        space._raw, space._path = raw, path
        return space

    @classmethod
    def open(cls, path: Path) -> IdSpace:
        """Open a space that `save` has written, by mapping its file into memory.

        Takes milliseconds, whatever the size: what is looked up is read then, and what several
        processes have opened is in memory once. It does not grow; `copy` gives one that does. The
        file must stay as it is while it is open: `save` replaces files and does not write into
        them, but a file that is cut short ends the process with SIGBUS.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        NotFoundError
            If there is none.
        CorruptFileError
            If its lengths are not those of a space. What is looked up later is not checked: a file
            that is damaged inside may not find an id.

        Examples
        --------
        >>> import pathlib, tempfile, tidemill as tm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "users.ids")
        >>> space = tm.IdSpace()
        >>> _ = space.set([5, 6])
        >>> space.save(path)
        >>> opened = tm.IdSpace.open(path)
        >>> list(opened.set([6]))
        [6]
        >>> opened.set([7])
        Traceback (most recent call last):
        tidemill._errors.UsageError: the id 7 is not in this space
        hint: a space that was opened does not grow: space.copy() is one in memory that does; \
unknown='skip' leaves such ids out
        """
        return cls._of(RawIdSpace.open(os.fspath(path)), os.fspath(path))

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the space to a file, which appears once it is whole.

        Parameters
        ----------
        path : str or path
            The file; `docs/formats/states.md` has its layout. While it is written its bytes are in
            memory beside the space.
        overwrite : bool, default False
            Replace a file of that name. Whoever has it open keeps the old one.

        Raises
        ------
        OutputExistsError
            If the file exists, unless ``overwrite``.

        Examples
        --------
        >>> import pathlib, tempfile, tidemill as tm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "users.ids")
        >>> tm.IdSpace().save(path)
        >>> tm.IdSpace().save(path, overwrite=True)
        """
        self._raw.save(os.fspath(path), overwrite)

    def set(self, ids: Any = (), *, unknown: Unknown | None = None) -> IdSet:
        """Make a set of ids.

        Parameters
        ----------
        ids : array or iterable, default ()
            Whole numbers: a NumPy array or what exports Arrow's data, which are not copied if they
            are of 64 bits; an iterable of ints; or a set of another space. Nulls are left out.
        unknown : "add", "skip" or "error", optional
            What becomes of ids that the space does not have: they are added, which is the default
            of a space that grows; left out; or an error, which is the default of one that was
            opened.

        Returns
        -------
        IdSet
            The set.

        Raises
        ------
        UsageError
            If the ids are no whole numbers, do not fit the space's sign, or are unknown and may not
            be; or if the space has 2**32 - 2 ids already.

        Examples
        --------
        >>> import numpy, tidemill as tm
        >>> space = tm.IdSpace()
        >>> space.set(numpy.array([5, -1, 5]))
        IdSet(2 ids of 2)
        >>> space.set([5, 8], unknown="skip")
        IdSet(1 id of 2)
        """
        return IdSet._of(self, self._raw_set(ids, unknown))

    def _raw_set(self, ids: Any, unknown: Unknown | None = None) -> RawIdSet:
        if isinstance(ids, IdSet):
            if ids._space is self:
                return ids._raw.copy()
            ids = ids._ids()
        if hasattr(type(ids), "iloc") and getattr(getattr(ids, "dtype", None), "kind", "") == "f":
            raise UsageError(
                f"ids are whole numbers, and these are pandas' {ids.dtype}, which is DOUBLE\n"
                "hint: whole numbers of which some are missing are such in pandas: "
                "x.astype('Int64') has them as they are"
            )
        kind, ids = _arrays.given(ids, "ids")
        if kind == "arrow":
            return self._raw.set_of_arrow(ids, unknown)
        if kind == "numpy":
            return self._raw.set_of_numpy(ids, unknown)
        return self._raw.set_of_objects(ids, unknown)

    def all(self) -> IdSet:
        """Make the set of all ids that the space has now.

        Examples
        --------
        >>> import tidemill as tm
        >>> space = tm.IdSpace()
        >>> a = space.set([1, 2, 3])
        >>> list(space.all() - space.set([2]))
        [1, 3]
        """
        return IdSet._of(self, self._raw.all())

    def to_numpy(self) -> numpy.ndarray[Any, Any]:
        """Give all ids as a NumPy array, each at the place of its number.

        Examples
        --------
        >>> import tidemill as tm
        >>> space = tm.IdSpace()
        >>> _ = space.set([7, -3])
        >>> space.to_numpy()
        array([ 7, -3])
        """
        return self.all().to_numpy()

    def copy(self) -> IdSpace:
        """Copy the space into memory, where it grows. Sets stay with the space that they are of.

        Examples
        --------
        >>> import tidemill as tm
        >>> space = tm.IdSpace()
        >>> copy = space.copy()
        >>> _ = copy.set([1])
        >>> len(space), len(copy)
        (0, 1)
        """
        return IdSpace._of(self._raw.copy())

    __copy__ = copy

    @property
    def signed(self) -> bool | None:
        """Whether ids have a sign; None as long as no id has told."""
        return self._raw.signed

    @property
    def grows(self) -> bool:
        """Whether ids can be added: it was not opened from a file."""
        return self._raw.grows

    @property
    def path(self) -> str | None:
        """The file that it was opened from."""
        return self._path

    def __len__(self) -> int:
        """Count the ids."""
        return self._raw.len()

    def __bool__(self) -> bool:
        """Whether there is an id."""
        return len(self) > 0

    def __contains__(self, id: object) -> bool:
        """Whether an id has a number."""
        return _is_id(id) and self._raw.has(id)

    def __iter__(self) -> Iterator[int]:
        """Give the ids in the order of their numbers."""
        return iter(self.all())

    def __eq__(self, other: object) -> bool:
        """Whether the ids of both have the same numbers."""
        return isinstance(other, IdSpace) and self._raw.equals(other._raw)

    __hash__ = None  # type: ignore[assignment]

    def __sizeof__(self) -> int:
        """Give the memory that it takes, without a mapped file's."""
        return object.__sizeof__(self) + self._raw.heap_bytes

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the space with all of its ids."""
        return _unpickled_space, (self._raw.to_bytes(), self._raw.grows, self._raw.signed)

    def __repr__(self) -> str:
        """Show how many ids there are."""
        sign = {None: "", True: "signed ", False: "unsigned "}[self.signed]
        opened = f", opened from {self._path}" if self._path is not None else ""
        return f"IdSpace({counted(len(self), f'{sign}id')}{opened})"


class IdSet:
    """An exact set of 64-bit ids of an `IdSpace`.

    As Python's sets, ``|``, ``&``, ``-``, ``^``, ``in``, ``len`` and iteration; ids come in the
    order of their numbers, which the space gave them as it saw them (65,536 and more that come
    together get theirs in another order, the same each time). ``numpy.asarray`` and
    ``pyarrow.array`` take the ids without copying them again. Cost of an operation: a pass over a
    bit for each id of the space, or less where the sets are small.

    Parameters
    ----------
    ids : array or iterable, default ()
        As `IdSpace.set` takes them, which does the same.
    space : IdSpace
        The space that numbers them. Sets of different spaces do not meet: ``space.set(other)``
        brings a set into a space.

    Examples
    --------
    >>> import tidemill as tm
    >>> space = tm.IdSpace()
    >>> a, b = tm.IdSet([1, 2, 3], space=space), tm.IdSet([3, 4], space=space)
    >>> list(a ^ b)
    [1, 2, 4]
    >>> a & tm.IdSet([3], space=tm.IdSpace())
    Traceback (most recent call last):
    tidemill._errors.UsageError: the sets are of different spaces, whose numbers mean different ids
    hint: a.space.set(b) brings a set into the space of another
    """

    __slots__ = ("_raw", "_space")

    def __init__(self, ids: Any = (), *, space: IdSpace) -> None:
        if not isinstance(space, IdSpace):
            raise UsageError(f"`space` must be an IdSpace, not a {type(space).__name__}")
        self._space, self._raw = space, space._raw_set(ids)

    @classmethod
    def _of(cls, space: IdSpace, raw: RawIdSet) -> IdSet:
        made = cls.__new__(cls)
        made._space, made._raw = space, raw
        return made

    @classmethod
    def from_bytes(cls, bytes: bytes | bytearray | memoryview, *, space: IdSpace) -> IdSet:
        """Read a set that `to_bytes` has written, of the same space.

        Parameters
        ----------
        bytes : bytes
            The numbers in the Roaring portable format.
        space : IdSpace
            The space, or what became of it: opened from a file, or with more ids.

        Raises
        ------
        CorruptBytesError
            If the bytes are no set, or one with numbers that the space does not have.

        Examples
        --------
        >>> import tidemill as tm
        >>> space = tm.IdSpace()
        >>> a = space.set([1, 2, 3])
        >>> tm.IdSet.from_bytes(a.to_bytes(), space=space) == a
        True
        """
        if not isinstance(bytes, _BYTES):
            raise UsageError(f"a set is read from bytes, not from a {type(bytes).__name__}")
        if not isinstance(space, IdSpace):
            raise UsageError(f"`space` must be an IdSpace, not a {type(space).__name__}")
        return cls._of(space, space._raw.set_from_bytes(b"".join([bytes])))

    def to_bytes(self) -> bytes:
        """Write the numbers of the ids in the Roaring portable format. Equal sets give equal bytes.

        Examples
        --------
        >>> import tidemill as tm
        >>> len(tm.IdSpace().set(range(1_000_000)).to_bytes()) < 1000
        True
        """
        return self._raw.to_bytes()

    @property
    def space(self) -> IdSpace:
        """The space that numbers the ids."""
        return self._space

    def _ids(self) -> _Exported:
        return _Exported(self._raw.ids(self._space._raw))

    def _other(self, other: IdSet) -> RawIdSet:
        if other._space is not self._space:
            raise UsageError(
                "the sets are of different spaces, whose numbers mean different ids\n"
                "hint: a.space.set(b) brings a set into the space of another"
            )
        return other._raw

    def _combined(self, sign: str, other: IdSet) -> IdSet:
        if not isinstance(other, IdSet):
            return NotImplemented
        return IdSet._of(self._space, self._raw.combined(sign, self._other(other)))

    def _changed(self, sign: str, other: IdSet) -> IdSet:
        if not isinstance(other, IdSet):
            return NotImplemented
        self._raw.change(sign, self._other(other))
        return self

    def __or__(self, other: IdSet) -> IdSet:
        """Give the ids that are in either."""
        return self._combined("|", other)

    def __and__(self, other: IdSet) -> IdSet:
        """Give the ids that are in both."""
        return self._combined("&", other)

    def __sub__(self, other: IdSet) -> IdSet:
        """Give the ids that are in the first alone."""
        return self._combined("-", other)

    def __xor__(self, other: IdSet) -> IdSet:
        """Give the ids that are in exactly one."""
        return self._combined("^", other)

    def __ior__(self, other: IdSet) -> IdSet:
        """Add the ids of another."""
        return self._changed("|", other)

    def __iand__(self, other: IdSet) -> IdSet:
        """Keep what another has, too."""
        return self._changed("&", other)

    def __isub__(self, other: IdSet) -> IdSet:
        """Take out the ids of another."""
        return self._changed("-", other)

    def __ixor__(self, other: IdSet) -> IdSet:
        """Add the ids of another that are not there, and take out those that are."""
        return self._changed("^", other)

    def update(self, ids: Any, *, unknown: Unknown | None = None) -> None:
        """Add ids, as `IdSpace.set` takes them, or those of another set of the space.

        Examples
        --------
        >>> import tidemill as tm
        >>> a = tm.IdSpace().set([1])
        >>> a.update([2, 3])
        >>> list(a)
        [1, 2, 3]
        """
        if isinstance(ids, IdSet):
            self._raw.change("|", self._other(ids))
        else:
            self._raw.change("|", self._space._raw_set(ids, unknown))

    def add(self, id: int) -> None:
        """Add an id. Many are better added by `update`.

        Examples
        --------
        >>> import tidemill as tm
        >>> a = tm.IdSpace().set()
        >>> a.add(5)
        >>> len(a)
        1
        """
        self.update([id])

    def discard(self, id: int) -> None:
        """Take an id out, if it is there.

        Examples
        --------
        >>> import tidemill as tm
        >>> a = tm.IdSpace().set([5, 6])
        >>> a.discard(5), a.discard(5)
        (None, None)
        >>> list(a)
        [6]
        """
        if _is_id(id):
            self._raw.discard(self._space._raw, id)

    def intersection_len(self, other: IdSet) -> int:
        """Count the ids that are in both, without making a set of them.

        Examples
        --------
        >>> import tidemill as tm
        >>> space = tm.IdSpace()
        >>> space.set([1, 2, 3]).intersection_len(space.set([2, 3, 4]))
        2
        """
        if not isinstance(other, IdSet):
            raise UsageError(
                f"the intersection is with an IdSet, not with a {type(other).__name__}"
            )
        return self._raw.intersection_len(self._other(other))

    def isdisjoint(self, other: IdSet) -> bool:
        """Whether no id is in both.

        Examples
        --------
        >>> import tidemill as tm
        >>> space = tm.IdSpace()
        >>> space.set([1, 2]).isdisjoint(space.set([3]))
        True
        """
        return self.intersection_len(other) == 0

    def copy(self) -> IdSet:
        """Copy the set. The copy is of the same space.

        Examples
        --------
        >>> import tidemill as tm
        >>> a = tm.IdSpace().set([1])
        >>> b = a.copy()
        >>> b.add(2)
        >>> a < b
        True
        """
        return IdSet._of(self._space, self._raw.copy())

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> IdSet:
        """Copy the set. The copy is of the same space."""
        return self.copy()

    def __len__(self) -> int:
        """Count the ids."""
        return self._raw.len()

    def __bool__(self) -> bool:
        """Whether there is an id in it."""
        return len(self) > 0

    def __contains__(self, id: object) -> bool:
        """Whether an id is in it."""
        return _is_id(id) and self._raw.has(self._space._raw, id)

    def __iter__(self) -> Iterator[int]:
        """Give the ids, as they are now, in the order of their numbers."""
        ids = self._raw.ids(self._space._raw)
        for first in range(0, ids.len(), _BATCH):
            yield from ids.some(first, _BATCH)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same ids, of whatever spaces."""
        if not isinstance(other, IdSet):
            return NotImplemented
        if len(self) != len(other):
            return False
        theirs = other._raw
        if other._space is not self._space:
            try:
                theirs = self._space._raw_set(other, "skip")
            except UsageError:
                # An id of theirs can be none of this space's.
                return False
        return self._raw.intersection_len(theirs) == len(self)

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: IdSet) -> bool:
        """Whether all ids of this set are in the other."""
        if not isinstance(other, IdSet):
            return NotImplemented
        return self.intersection_len(other) == len(self)

    def __ge__(self, other: IdSet) -> bool:
        """Whether all ids of the other are in this set."""
        if not isinstance(other, IdSet):
            return NotImplemented
        return other.intersection_len(self) == len(other)

    def __lt__(self, other: IdSet) -> bool:
        """Whether all ids of this set are in the other, which has more."""
        if not isinstance(other, IdSet):
            return NotImplemented
        return self.intersection_len(other) == len(self) < len(other)

    def __gt__(self, other: IdSet) -> bool:
        """Whether all ids of the other are in this set, which has more."""
        if not isinstance(other, IdSet):
            return NotImplemented
        return other.intersection_len(self) == len(other) < len(self)

    def to_numpy(self) -> numpy.ndarray[Any, Any]:
        """Give the ids as a NumPy array of 64-bit numbers, in the order of their numbers.

        Raises
        ------
        MissingPackageError
            If NumPy is not installed.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.IdSpace().set([7, -3]).to_numpy()
        array([ 7, -3])
        """
        try:
            import numpy
        except ModuleNotFoundError as error:
            raise MissingPackageError(
                "`to_numpy()` needs NumPy, which is not installed\nhint: pip install numpy"
            ) from error
        return numpy.asarray(self._raw.ids(self._space._raw))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        """Give the ids to NumPy."""
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Export the ids as Arrow PyCapsules."""
        return self._ids().__arrow_c_array__(requested_schema)

    def __sizeof__(self) -> int:
        """Give the memory that it takes, without the space's."""
        return object.__sizeof__(self) + self._raw.heap_bytes

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the set with its space, which sets that are pickled together share."""
        return _unpickled_set, (self._space, self._raw.to_bytes())

    def __repr__(self) -> str:
        """Show how many ids it has, of how many."""
        return f"IdSet({counted(len(self), 'id')} of {len(self._space):,})"


class _Exported:
    """Ids as an array of Arrow's."""

    def __init__(self, ids: RawIds) -> None:
        self._ids = ids

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._ids.capsules()


def _is_id(id: object) -> bool:
    """Whether it is a whole number, of NumPy's too; a truth value is none."""
    if isinstance(id, bool):
        return False
    try:
        operator.index(id)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _unpickled_space(data: bytes, grows: bool, signed: bool | None) -> IdSpace:
    raw = RawIdSpace.from_bytes(data, grows)
    return IdSpace(signed) if grows and not raw.len() else IdSpace._of(raw)


def _unpickled_set(space: IdSpace, data: bytes) -> IdSet:
    return IdSet.from_bytes(data, space=space)
