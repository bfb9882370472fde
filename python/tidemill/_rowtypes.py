"""Rows as dataclasses: the schema that a class stands for, and its instances from rows."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tidemill._errors import UsageError

#: A schema, a type or a default as the header of a rowfile has it.
Json = Any

_SIMPLE: dict[object, Json] = {
    str: "string",
    int: "int64",
    float: "float64",
    bool: "boolean",
    bytes: "binary",
    datetime.datetime: {"timestamp": {"unit": "us", "zone": "UTC"}},
    datetime.date: "date",
    datetime.time: {"time": "us"},
    datetime.timedelta: {"duration": "us"},
}

_SEQUENCES = (list, collections.abc.Sequence)
_MAPPINGS = (dict, collections.abc.Mapping)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime.datetime(1970, 1, 1)


def is_dataclass(kind: object) -> bool:
    """Whether it is a dataclass, and no instance of one."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def schema_of(kind: type) -> Json:
    """Give the schema that a dataclass stands for, as the header of a rowfile has it.

    >>> @dataclasses.dataclass
    ... class Visit:
    ...     user: str
    ...     pages: list[int]
    ...     seconds: float | None = None
    >>> for field in schema_of(Visit)["fields"]:
    ...     print(field)
    {'name': 'user', 'type': 'string'}
    {'name': 'pages', 'type': {'list': {'name': 'item', 'type': 'int64'}}}
    {'name': 'seconds', 'type': 'float64', 'nullable': True, 'default': None}
    """
    return {"fields": _fields(kind, ())}


def given(schema: object) -> str | object:
    """Take a schema in any of its forms: as JSON's text, or as an object that exports Arrow's."""
    if is_dataclass(schema):
        return json.dumps(schema_of(typing.cast("type", schema)))
    if isinstance(schema, Mapping):
        return json.dumps(dict(schema))
    if hasattr(schema, "__arrow_c_schema__"):
        return schema
    kind = type(schema).__name__
    raise UsageError(
        f"`schema` must be a schema of Arrow's, a dataclass or a dict, not {kind}\n"
        'hint: schema=pyarrow.schema([("id", pyarrow.int64())])'
    )


def _fields(kind: type, within: tuple[type, ...]) -> list[Json]:
    if kind in within:
        raise UsageError(f"`{kind.__name__}` holds itself, which no schema can say")
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise UsageError(f"the types of `{kind.__name__}` are not all known: {error}") from None
    return [_field(kind, field, hints, within) for field in dataclasses.fields(kind)]


def _field(
    kind: type,
    field: dataclasses.Field[Any],
    hints: Mapping[str, Any],
    within: tuple[type, ...],
) -> Json:
    place = f"{kind.__name__}.{field.name}"
    said = dict(field.metadata.get("rowfile", {}))
    unknown = said.keys() - {"type", "aliases", "doc"}
    if unknown:
        raise UsageError(f"`{place}`: unknown key `{min(unknown)}`\nkeys: type, aliases, doc")
    made: dict[str, Json] = {"name": field.name}
    made |= _type(hints[field.name], place, (*within, kind), said.get("type"))
    if said.get("aliases"):
        made["aliases"] = list(said["aliases"])
    default: Any = field.default
    factory: Any = field.default_factory
    if factory in (list, dict, tuple):
        default = factory()
    if default is not dataclasses.MISSING:
        made["default"] = _default(default, made["type"], place)
    if said.get("doc"):
        made["doc"] = str(said["doc"])
    return made


def _type(hint: Any, place: str, within: tuple[type, ...], said: Json = None) -> dict[str, Json]:
    """Give ``type``, and ``nullable`` where it is."""
    hint = _plain(hint)
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        for note in notes:
            if isinstance(note, str | dict):
                said = note
            elif isinstance(note, tuple) and len(note) == 2:
                said = _decimal(*note)
        return _type(hint, place, within, said)
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if len(kinds) != 1 or len(kinds) == len(get_args(hint)):
            raise UsageError(
                f"`{place}`: {hint} is of several types\nhint: a field has one type, or None"
            )
        return _type(kinds[0], place, within, said) | {"nullable": True}
    if said is not None:
        return {"type": said}
    return {"type": _kind(hint, place, within)}


def _kind(hint: Any, place: str, within: tuple[type, ...]) -> Json:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _SEQUENCES and arguments:
        return {"list": {"name": "item", **_type(arguments[0], place, within)}}
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"list": {"name": "item", **_type(arguments[0], place, within)}}
    if origin in _MAPPINGS and arguments:
        key, value = (_type(argument, place, within) for argument in arguments)
        return {"map": {"key": {"name": "key", **key}, "value": {"name": "value", **value}}}
    if origin is Literal and all(isinstance(symbol, str) for symbol in arguments):
        return {"enum": {"symbols": list(arguments)}}
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return {"enum": {"symbols": list(_symbols(hint))}}
        if dataclasses.is_dataclass(hint):
            return {"struct": _fields(hint, within)}
        if issubclass(hint, decimal.Decimal):
            raise UsageError(
                f"`{place}`: a Decimal needs to know its digits\n"
                "hint: Annotated[Decimal, (10, 2)] has 10 digits, 2 of them behind the point"
            )
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    raise UsageError(
        f"`{place}`: {hint} is no type of a rowfile\n"
        "types: str, int, float, bool, bytes, datetime, date, time, timedelta, Decimal, Enum, "
        "list[…], dict[str, …], dataclasses, each also | None"
    )


def _plain(hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return hint


def _decimal(precision: int, scale: int) -> Json:
    bits = 128 if precision <= 38 else 256
    return {"decimal": {"bits": bits, "precision": precision, "scale": scale}}


def _symbols(kind: type[enum.Enum]) -> dict[str, enum.Enum]:
    """Give the members by their symbols: their values if these are all texts, else their names."""
    if all(isinstance(member.value, str) for member in kind):
        return {member.value: member for member in kind}
    return {member.name: member for member in kind}


def _default(value: Any, kind: Json, place: str) -> Json:
    """Write a default as the header does."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return next(symbol for symbol, member in _symbols(type(value)).items() if member is value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, int | str) or (isinstance(value, float) and value - value == 0):
        return value
    if isinstance(value, datetime.datetime):
        return _ticks(
            value.replace(tzinfo=None) - (value.utcoffset() or _EPOCH - _EPOCH) - _EPOCH, kind
        )
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, datetime.time):
        return _ticks(datetime.datetime.combine(_EPOCH, value.replace(tzinfo=None)) - _EPOCH, kind)
    if isinstance(value, datetime.timedelta):
        return _ticks(value, kind)
    if isinstance(value, list | tuple) and "list" in kind:
        return [_default(item, kind["list"]["type"], place) for item in value]
    if isinstance(value, dict) and "map" in kind:
        inner = kind["map"]["value"]["type"]
        return {key: _default(item, inner, place) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and "struct" in kind:
        return {
            field["name"]: _default(getattr(value, field["name"]), field["type"], place)
            for field in kind["struct"]
        }
    raise UsageError(f"`{place}`: {value!r} cannot be the default of a field")


def _ticks(length: datetime.timedelta, kind: Json) -> int:
    (said,) = kind.values()
    unit = said["unit"] if isinstance(said, dict) else said
    micros = length // datetime.timedelta(microseconds=1)
    return micros * _PER_SECOND[unit] // 1_000_000


# Instances from rows

_Make = Callable[[Any], Any]


def maker(kind: type) -> _Make:
    """Give what makes an instance of a dataclass of a row that is a dictionary."""
    hints = typing.get_type_hints(kind, include_extras=True)
    inner = {
        field.name: made
        for field in dataclasses.fields(kind)
        if (made := _maker(hints[field.name])) is not None
    }
    given = {field.name for field in dataclasses.fields(kind) if field.init}

    def make(row: dict[str, Any]) -> Any:
        for name, made in inner.items():
            if row.get(name) is not None:
                row[name] = made(row[name])
        return kind(**{name: value for name, value in row.items() if name in given})

    return make


def _maker(hint: Any) -> _Make | None:
    """Give what makes the value that a class wants of the one that a row has; none if it is it."""
    hint = _plain(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _maker(arguments[0])
    if origin in (Union, types.UnionType):
        makers = [made for kind in arguments if (made := _maker(kind)) is not None]
        return _unless_none(makers[0]) if makers else None
    if origin in _SEQUENCES and arguments:
        item = _maker(arguments[0])
        return None if item is None else lambda items: [item(each) for each in items]
    if origin is tuple and arguments:
        one = _maker(arguments[0]) or _same
        return lambda items: tuple(one(each) for each in items)
    if origin in _MAPPINGS and arguments:
        key, value = _maker(arguments[0]) or _same, _maker(arguments[1]) or _same
        if key is _same and value is _same:
            return None
        return lambda pairs: {key(name): value(each) for name, each in pairs.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        symbols = _symbols(hint)
        return lambda symbol: symbols[symbol]
    return maker(hint) if is_dataclass(hint) else None


def _same(value: Any) -> Any:
    return value


def _unless_none(make: _Make) -> _Make:
    return lambda value: None if value is None else make(value)
