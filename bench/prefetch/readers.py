"""What clients of object stores do from Python, one a process.

    readers.py sequential READER ENDPOINT KEY RATE_MBS      all of an object; a rate of 0 is none
    readers.py small READER ENDPOINT PREFIX                 all objects below a prefix
    readers.py query ENGINE ENDPOINT KEY NAME               a query of `queries.py` over a Parquet file

Prints a line of JSON: `work_s`, without what it takes to import the client, and `bytes` or the `answer`.
"""

import http.client
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

BUCKET = "bench"
PIECE = 1 << 20
KEYS = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench"}


# ------------------------------------------------------- an object from its beginning to its end


def pieces(file, size=PIECE):
    while piece := file.read(size):
        yield piece


def synchronous(endpoint, key):
    """A request, whose body is read as it comes, 64 KiB at a time."""

    def read():
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
        connection.request("GET", f"/{BUCKET}/{key}")
        yield from pieces(connection.getresponse(), 64 << 10)

    return read


def client(endpoint):
    import boto3

    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **KEYS)


def boto3_stream(endpoint, key):
    s3 = client(endpoint)
    return lambda: pieces(s3.get_object(Bucket=BUCKET, Key=key)["Body"])


class Sink:
    """Takes what is downloaded, and keeps none of it."""

    def __init__(self):
        self.bytes = 0

    def write(self, piece):
        self.bytes += len(piece)
        return len(piece)


def boto3_download(endpoint, key):
    """Its download in parts, by ten threads. Nobody reads: it cannot be paced."""
    s3 = client(endpoint)

    def read():
        sink = Sink()
        s3.download_fileobj(BUCKET, key, sink)
        yield range(sink.bytes)

    return read


def s3fs_file(endpoint, key):
    import s3fs

    system = s3fs.S3FileSystem(key="bench", secret="bench", endpoint_url=endpoint, client_kwargs={"region_name": "us-east-1"})
    return lambda: pieces(system.open(f"{BUCKET}/{key}", "rb"))


def arrow_system(endpoint):
    from pyarrow import fs

    host = endpoint.removeprefix("http://")
    return fs.S3FileSystem(access_key="bench", secret_key="bench", endpoint_override=host, scheme="http", region="us-east-1")


def pyarrow_stream(endpoint, key):
    system = arrow_system(endpoint)
    return lambda: pieces(system.open_input_stream(f"{BUCKET}/{key}"))


def obstore_store(endpoint):
    from obstore.store import S3Store

    return S3Store(
        BUCKET, endpoint=endpoint, region="us-east-1", access_key_id="bench", secret_access_key="bench",
        client_options={"allow_http": True, "timeout": "3600s"},
    )


def obstore_reader(endpoint, key):
    import obstore

    store = obstore_store(endpoint)
    return lambda: pieces(obstore.open_reader(store, key))


def obstore_stream(endpoint, key):
    import obstore

    store = obstore_store(endpoint)
    return lambda: iter(obstore.get(store, key).stream(min_chunk_size=PIECE))


def tidemill_options(endpoint):
    return {"endpoint": endpoint, "allow_http": "true", "region": "us-east-1", "access_key_id": "bench", "secret_access_key": "bench"}


def tidemill_file(endpoint, key):
    import tidemill as tm

    return lambda: pieces(tm.open(f"s3://{BUCKET}/{key}", storage_options=tidemill_options(endpoint)))


READERS = {
    "synchronous": synchronous,
    "boto3": boto3_stream,
    "boto3-download": boto3_download,
    "s3fs": s3fs_file,
    "pyarrow": pyarrow_stream,
    "obstore": obstore_reader,
    "obstore-stream": obstore_stream,
    "tidemill-python": tidemill_file,
}


def sequential(reader, endpoint, key, rate):
    read = READERS[reader](endpoint, key)
    rate = float(rate) * 1e6
    began, count = time.monotonic(), 0
    for piece in read():
        count += len(piece)
        if rate:
            ahead = count / rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
    return {"work_s": time.monotonic() - began, "bytes": count}


# ------------------------------------------------------------------------- many small objects


def small(reader, endpoint, prefix):
    if reader == "s3fs":
        import s3fs

        system = s3fs.S3FileSystem(key="bench", secret="bench", endpoint_url=endpoint, client_kwargs={"region_name": "us-east-1"})
        began = time.monotonic()
        found = system.cat(system.find(f"{BUCKET}/{prefix}"))
        count = sum(len(content) for content in found.values())
    elif reader == "boto3":
        from concurrent.futures import ThreadPoolExecutor

        s3 = client(endpoint)
        began = time.monotonic()
        listed = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"] for page in listed for entry in page.get("Contents", [])]
        with ThreadPoolExecutor(32) as pool:
            count = sum(pool.map(lambda key: len(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()), keys))
    else:
        import asyncio

        import obstore

        store = obstore_store(endpoint)
        began = time.monotonic()

        async def all_of_them():
            keys = [entry["path"] for page in obstore.list(store, prefix) for entry in page]

            async def one(key):
                return len(await (await obstore.get_async(store, key)).bytes_async())

            return sum(await asyncio.gather(*map(one, keys)))

        count = asyncio.run(all_of_them())
    return {"work_s": time.monotonic() - began, "bytes": count}


# -------------------------------------------------------------------------------- Parquet


def query(engine, endpoint, key, name):
    import queries

    if engine.startswith("pyarrow"):
        import pyarrow
        from pyarrow import dataset
        from pyarrow.dataset import ParquetFragmentScanOptions

        options = ParquetFragmentScanOptions(pre_buffer=engine == "pyarrow-pre-buffer")
        began = time.monotonic()
        form = dataset.CsvFileFormat() if key.endswith(".csv") else dataset.ParquetFileFormat()
        found = dataset.FileSystemDatasetFactory(arrow_system(endpoint), [f"{BUCKET}/{key}"], form)
        # It cannot filter string views, which the file says its texts are.
        plain = {pyarrow.string_view(): pyarrow.string()}
        fields = [field.with_type(plain.get(field.type, field.type)) for field in found.inspect()]
        data = found.finish(pyarrow.schema(fields))
        answer = queries.of_arrow(name, data, options)
    elif engine == "duckdb":
        import duckdb
        import duckdb_extension_httpfs

        [extension] = Path(duckdb_extension_httpfs.__file__).parent.rglob("httpfs.duckdb_extension")
        database = duckdb.connect()
        database.execute(f"LOAD '{extension}'")
        host = endpoint.removeprefix("http://")
        database.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID 'bench', SECRET 'bench', REGION 'us-east-1', ENDPOINT '{host}', "
            "URL_STYLE 'path', USE_SSL false)"
        )
        began = time.monotonic()
        answer = database.execute(queries.SQL[name].format(table=f"'s3://{BUCKET}/{key}'")).fetchall()
    else:
        import polars

        options = {
            "aws_endpoint_url": endpoint, "aws_region": "us-east-1", "aws_access_key_id": "bench",
            "aws_secret_access_key": "bench", "aws_allow_http": "true",
        }
        began = time.monotonic()
        scan = polars.scan_csv if key.endswith(".csv") else polars.scan_parquet
        answer = queries.of_polars(name, scan(f"s3://{BUCKET}/{key}", storage_options=options))
    return {"work_s": time.monotonic() - began, "answer": queries.settled(answer)}


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    print(json.dumps({"sequential": sequential, "small": small, "query": query}[what](*words)))
