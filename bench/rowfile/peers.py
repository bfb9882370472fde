"""Python's formats for rows: `peers.py FILE COLUMN,COLUMN,...`, the requests of `peers/src/main.rs`.

Runs in the peers' environment. A row is a dict, with a dict for a struct and a number for a time.

- fastavro: an object container file with blocks of 1 MiB, as dicts;
- pickle: each row by itself, behind its length; pickle-batch: 1,000 rows in a list at a time, so
  that keys are written once for each list;
- python-json: a line for each row, by the encoder and decoder of the standard library.

Processor times are the thread's. All but fastavro decode a whole row to get at three columns.
"""

import gc
import io
import json
import os
import pickle
import struct
import sys
import time
from pathlib import Path

import fastavro
import pyarrow
import pyarrow.ipc

LENGTH = struct.Struct("<I")
BATCH_ROWS = 1000
BUFFER_BYTES = 1 << 20


def main() -> None:
    table = pyarrow.ipc.open_file(sys.argv[1]).read_all()
    server = Server(table, sys.argv[2].split(","))
    for line in sys.stdin:
        try:
            step, name, codec, path = line.rstrip("\n").split(" ", 3)
            answer = server.answer(step, name, codec, None if path == "-" else Path(path))
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class Server:
    def __init__(self, table: pyarrow.Table, few: list[str]):
        numbers = [
            field.with_type(pyarrow.int64()) if pyarrow.types.is_timestamp(field.type) else field
            for field in table.schema
        ]
        self.rows = table.cast(pyarrow.schema(numbers)).to_pylist()
        self.few = few
        self.formats = {
            "fastavro": Avro(numbers),
            "pickle": Pickle(),
            "pickle-batch": PickleBatch(),
            "python-json": Json(),
        }
        self.encoded: dict[tuple[str, str], io.BytesIO] = {}
        # The input is not the formats' garbage to look through.
        gc.collect()
        gc.freeze()

    def answer(self, step: str, name: str, codec: str, path: Path | None) -> dict:
        format = self.formats[name]
        if step in ("encode", "check"):
            memory = self.encoded.setdefault((name, codec), io.BytesIO())
            memory.seek(0)
            start = clock()
            if path:
                with open(path, "wb", buffering=BUFFER_BYTES) as file:
                    format.encode(self.rows, codec, file)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                format.encode(self.rows, codec, memory)
                memory.truncate()
            answer = self.cost(start)
            if step == "encode":
                return answer | {"bytes": self.bytes(name, codec, path)}

        def source():
            if path:
                return open(path, "rb", buffering=BUFFER_BYTES)
            memory = self.encoded[name, codec]
            memory.seek(0)
            return memory

        if step == "check":
            found = list(format.decode(source()))
            if found != self.rows:
                raise ValueError("rows came back with other values")
            few = [{name: row[name] for name in self.few} for row in found]
            if list(format.decode_few(source(), self.few)) != few:
                raise ValueError("some columns came back with other values")
            return {}
        count = 0
        start = clock()
        rows = format.decode(source()) if step == "decode" else format.decode_few(source(), self.few)
        for _ in rows:
            count += 1
        answer = self.cost(start)
        if count != len(self.rows):
            raise ValueError(f"{count} rows, expected {len(self.rows)}")
        return answer | {"bytes": self.bytes(name, codec, path)}

    def cost(self, start: tuple[float, float]) -> dict:
        wall, cpu = clock()
        return {"rows": len(self.rows), "work_s": wall - start[0], "cpu_s": cpu - start[1]}

    def bytes(self, name: str, codec: str, path: Path | None) -> int:
        return path.stat().st_size if path else self.encoded[name, codec].getbuffer().nbytes


def clock() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


class Avro:
    def __init__(self, fields: list[pyarrow.Field]):
        self.fields = fields
        self.schema = fastavro.parse_schema(avro_record("row", fields))

    def encode(self, rows, codec, file):
        names = {"none": ("null", None), "deflate": ("deflate", None), "zstd3": ("zstandard", 3)}
        codec, level = names[codec]
        fastavro.writer(
            file, self.schema, rows, codec=codec, codec_compression_level=level,
            sync_interval=BUFFER_BYTES,
        )

    def decode(self, file):
        return fastavro.reader(file)

    def decode_few(self, file, names):
        wanted = [field for field in self.fields if field.name in names]
        return fastavro.reader(file, reader_schema=avro_record("row", wanted))


def avro_record(name: str, fields: list) -> dict:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field.name, "type": avro_type(field)} for field in fields],
    }


def avro_type(field: pyarrow.Field):
    kind = field.type
    if pyarrow.types.is_struct(kind):
        found = avro_record(f"{field.name}_record", [kind.field(i) for i in range(kind.num_fields)])
    elif pyarrow.types.is_list(kind):
        found = {"type": "array", "items": avro_type(kind.value_field)}
    else:
        found = {"string": "string", "int32": "int", "int64": "long", "double": "double", "bool": "boolean"}[str(kind)]
    return ["null", found] if field.nullable else found


class Whole:
    """A format that decodes whole rows, whatever is wanted of them."""

    def decode_few(self, file, names):
        return ({name: row[name] for name in names} for row in self.decode(file))


class Pickle(Whole):
    def encode(self, rows, codec, file):
        dumps, pack, write = pickle.dumps, LENGTH.pack, file.write
        for row in rows:
            data = dumps(row, 5)
            write(pack(len(data)))
            write(data)

    def decode(self, file):
        data = memoryview(file.read())
        loads, unpack = pickle.loads, LENGTH.unpack_from
        at = 0
        while at < len(data):
            end = at + 4 + unpack(data, at)[0]
            yield loads(data[at + 4 : end])
            at = end


class PickleBatch(Pickle):
    def encode(self, rows, codec, file):
        batches = (rows[at : at + BATCH_ROWS] for at in range(0, len(rows), BATCH_ROWS))
        super().encode(batches, codec, file)

    def decode(self, file):
        for batch in super().decode(file):
            yield from batch


class Json(Whole):
    def encode(self, rows, codec, file):
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
        for at in range(0, len(rows), BATCH_ROWS):
            lines = "\n".join(map(encode, rows[at : at + BATCH_ROWS]))
            file.write(lines.encode() + b"\n")

    def decode(self, file):
        loads = json.loads
        for line in file:
            yield loads(line)


if __name__ == "__main__":
    main()
