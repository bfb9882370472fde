#!/usr/bin/env python3
"""Reads a rowfile: a second implementation, made from docs/formats/rowfile.md alone.

    second_reader.py FILE            each row as a line of JSON
    second_reader.py --salvage FILE  of the whole blocks of a file without an end

Standard library only; LZ4 is decoded here, Zstandard with the `zstandard` or `pyzstd` package or
Python's own `compression.zstd`, if there is one. Bytes are shown in hexadecimal, floats by their bits, decimals,
dates and times as the integers that they are kept as; rows in a binary field as what they hold.
"""

import json
import struct
import sys


def crc32c(data, table=[]):
    if not table:
        for number in range(256):
            for _ in range(8):
                number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
            table.append(number)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def lz4(data, size):
    out, at = bytearray(), 0

    def length(number):
        nonlocal at
        more = 255 if number == 15 else 0
        while more == 255:
            more, at = data[at], at + 1
            number += more
        return number

    while at < len(data):
        token, at = data[at], at + 1
        count = length(token >> 4)
        out += data[at : at + count]
        at += count
        if at >= len(data):
            break
        back, at = int.from_bytes(data[at : at + 2], "little"), at + 2
        for _ in range(length(token & 15) + 4):
            out.append(out[-back])
    assert len(out) == size
    return bytes(out)


def zstd(data, size):
    try:
        from compression import zstd as module
    except ImportError:
        try:
            import pyzstd as module
        except ImportError:
            import zstandard

            return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    return module.decompress(data)


WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "date": 4, "date64": 8}
UNSIGNED = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
FLOATS = {"float16": 2, "float32": 4, "float64": 8}


class Record:
    """What the rows of some fields have."""

    def __init__(self, fields):
        self.bits, self.slots, self.inner, self.count = 0, [], [], 0
        self.plain = []  # of each slot: its width in a row by itself, or none for lengths; its base
        self.is_variable = False
        self.fields = [self.field(field) for field in fields]

    def bit(self):
        self.bits += 1
        return self.bits - 1

    def slot(self, kind, width=None, base=0):
        self.slots.append(kind)
        self.plain.append((width, base))
        return len(self.slots) - 1

    def field(self, field):
        self.count += 1
        kind, options = field["type"], None
        if isinstance(kind, dict):
            [(kind, options)] = kind.items()
        null = self.bit() if field.get("nullable") and kind != "null" else None
        if kind == "null":
            how = None
        elif kind == "boolean":
            how = self.bit()
        elif kind == "struct":
            how = [self.field(inner) for inner in options]
        elif kind in ("list", "map"):
            record = Record([options] if kind == "list" else [options["key"], options["value"]])
            self.inner.append(record)
            self.is_variable = True
            number = self.slot("length")
            how = (record, number, self.slot("length") if record.is_variable else None)
        elif kind in ("string", "binary"):
            self.is_variable = True
            rows = field.get("metadata", {}).get("rowfile.rows") if kind == "binary" else None
            how = (self.slot("prefix"), Record(json.loads(rows)["fields"]) if rows else None)
        elif kind == "fixed":
            how = self.slot(options, options)
        elif kind in FLOATS:
            how = (self.slot("float", FLOATS[kind]), FLOATS[kind])
        else:
            signed = kind not in UNSIGNED and kind != "enum"
            width = 8
            if kind == "decimal":
                width = options["bits"] // 8
            elif kind == "enum" or kind == "time" and options in ("s", "ms"):
                width = 4
            width = WIDTHS.get(kind, UNSIGNED.get(kind, width))
            base = -1 << 8 * width - 1 if signed and width <= 8 else 0
            how = (self.slot("number", width, base % (1 << 64)), signed, kind, options)
        return field["name"], null, "number" if isinstance(how, tuple) and len(how) == 4 else kind, how

    def layout(self, data, at):
        states, at = data[at : at + self.bits], at + self.bits
        slots = []
        for kind in self.slots:
            if isinstance(kind, int):
                slots.append((kind, 0))
            else:
                slots.append(struct.unpack_from("<BQ", data, at))
                at += 9
        inner = {}
        for record in self.inner:
            inner[record], at = record.layout(data, at)
        return self.places(states, slots, inner), at

    def alone(self, lengths):
        """The layout of a row by itself."""
        slots = [(lengths if width is None else width, base) for width, base in self.plain]
        inner = {record: record.alone(lengths) for record in self.inner}
        return self.places(bytes([2] * self.bits), slots, inner)

    def places(self, states, widths, inner):
        bit_at, count = [], 0
        for state in states:
            bit_at.append(count if state == 2 else None)
            count += state == 2
        place = (count + 7) // 8
        slots = []
        for kind, (width, base) in zip(self.slots, widths):
            slots.append((place, width, base))
            place += 0 if kind == "prefix" else width
        return states, bit_at, slots, max(place, (self.count + 15) // 16, 1), inner

    def row(self, layout, data, start):
        """The values of the row at `start`, and where it ends."""
        states, bit_at, slots, fixed, inner = layout
        end = start + fixed

        def bit(number):
            at = bit_at[number]
            return states[number] if at is None else data[start + at // 8] >> at % 8 & 1

        def slot(number):
            at, width, base = slots[number]
            return int.from_bytes(data[start + at : start + at + width], "little"), width, base

        def value(field):
            nonlocal end
            _, null, kind, how = field
            if kind == "null":
                found = None
            elif kind == "boolean":
                found = bool(bit(how))
            elif kind == "struct":
                found = {inner[0]: value(inner) for inner in how}
            elif kind in ("list", "map"):
                record, number, size = how
                number, _, base = slot(number)
                first, found = end, []
                for _ in range(number + base):
                    item, end = record.row(inner[record], data, end)
                    found.append(list(item.values())[0] if kind == "list" else list(item.values()))
                if size is not None:
                    size, _, base = slot(size)
                    assert end - first == size + base, "items of another size"
            elif kind in ("string", "binary"):
                how, record = how
                _, width, base = slots[how]
                length = base + int.from_bytes(data[end : end + width], "little")
                end += width + length
                assert end <= len(data), "a string behind the end"
                found = data[end - length : end]
                if null is not None and bit(null):
                    return None
                if record and found:
                    assert found[0] in (1, 2, 4), "no row by itself"
                    row, behind = record.row(record.alone(found[0]), found, 1)
                    assert behind == len(found), "bytes behind a row by itself"
                    return row
                found = found.decode() if kind == "string" else found.hex()
            elif kind == "fixed":
                at, width, _ = slots[how]
                found = data[start + at : start + at + width].hex()
            elif kind in FLOATS:
                raw, width, base = slot(how[0])
                found = (raw + base).to_bytes(how[1], "little").hex()
            else:
                raw, width, base = slot(how[0])
                if width > 8:
                    found = raw - (1 << 8 * width) if raw >> 8 * width - 1 else raw
                else:
                    found = (raw + base) % (1 << 64)
                    found -= (found >> 63 << 64) if how[1] else 0
                if how[2] == "enum":
                    found = how[3]["symbols"][found] if not (null is not None and bit(null)) else None
            return None if null is not None and bit(null) else found

        return {field[0]: value(field) for field in self.fields}, end


def section(data, at, file):
    """The head of a section and its content."""
    head = data[at : at + 48]
    assert len(head) == 48 and crc32c(head[:44]) == int.from_bytes(head[44:], "little"), f"section at {at}"
    kind, owner, offset, first, count, raw, stored, codec, check = struct.unpack("<4sIQQIIIB3xI", head[:44])
    assert (owner, offset) == (file, at) and kind in (b"TBLK", b"TEND"), f"section at {at}"
    content = data[at + 48 : at + 48 + stored]
    assert len(content) == stored and crc32c(content) == check, f"content of the section at {at}"
    if codec:
        content = {1: lz4, 2: zstd}[codec](content, raw)
    assert len(content) == raw
    return kind, first, count, content, at + 48 + stored


def blocks(data, header_end, file):
    """Where the blocks begin, by the footers."""
    footer, end, owner, check = struct.unpack("<QQII", data[-32:-8])
    assert data.endswith(b"TIDEREND") and crc32c(data[-32:-12]) == check, "no trailer"
    assert (end, owner) == (len(data), file)
    found = []
    while footer:
        kind, _, count, content, _ = section(data, footer, file)
        assert kind == b"TEND"
        footer, columns = struct.unpack_from("<QI", content)
        at, listed = 12 + 4 * columns, []
        for _ in range(count):
            listed.append(struct.unpack_from("<Q", content, at)[0])
            at += 16
            for _ in range(columns):
                at += 5
                for _ in range(2 * content[at - 1]):
                    at += 1 + content[at]
        assert at == len(content)
        found = listed + found
    return found


def scan(data, at, file):
    while at < len(data):
        try:
            kind, *_, end = section(data, at, file)
        except AssertionError:
            return
        if kind == b"TBLK":
            yield at
        at = end + (0 if kind == b"TBLK" else 32)


def main(arguments):
    data = open(arguments[-1], "rb").read()
    magic, version, length = struct.unpack_from("<8sII", data)
    assert (magic, version) == (b"TIDEROWS", 1)
    header_end = 16 + length + 4
    file = int.from_bytes(data[header_end - 4 : header_end], "little")
    assert crc32c(data[: header_end - 4]) == file, "header"
    record = Record(json.loads(data[16 : header_end - 4])["schema"]["fields"])
    rows = 0
    for at in (scan if "--salvage" in arguments else blocks)(data, header_end, file):
        _, first, count, content, _ = section(data, at, file)
        assert first == rows or "--salvage" in arguments
        layout, place = record.layout(content, 0)
        for _ in range(count):
            row, place = record.row(layout, content, place)
            print(json.dumps(row, ensure_ascii=False))
        assert place == len(content), "bytes behind the last row"
        rows += count


if __name__ == "__main__":
    main(sys.argv[1:])
