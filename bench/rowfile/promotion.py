"""The group-by of the promotion case in Python and DuckDB: `promotion.py WAY THREADS SOURCE OUTPUT`.

`pickle`: the two columns by pyarrow, each input unpickled out of base64, the groups in a dict.
`duckdb`: JSON in a string, parsed once for its three fields.
The last line of standard output is `{"work_s"}`: the time after the imports.
"""

import json
import sys
import time


def main() -> None:
    way, threads, source, output = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    # Each way imports what it needs, and nothing else.
    groups = {"pickle": unpickle, "duckdb": query}[way](threads, source)
    with open(output, "w") as file:
        file.write("country,page,events,queries,members\n")
        for country, page, *counts in groups():
            page = "" if page is None else page
            file.write(",".join(map(str, [country, page, *counts])) + "\n")
    print(json.dumps({"work_s": time.perf_counter() - START}))


def started() -> None:
    global START
    START = time.perf_counter()


def unpickle(threads: int, source: str):
    import binascii
    import pickle

    import pyarrow.parquet

    started()

    def groups():
        decode, loads = binascii.a2b_base64, pickle.loads
        found: dict[tuple, list[int]] = {}
        file = pyarrow.parquet.ParquetFile(source)
        for batch in file.iter_batches(65536, columns=["country", "input"], use_threads=threads > 1):
            for country, blob in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
                row = loads(decode(blob)) if blob is not None else {}
                key = country, row.get("page")
                counts = found.get(key)
                if counts is None:
                    counts = found[key] = [0, 0, 0]
                counts[0] += 1
                counts[1] += row.get("query") is not None
                counts[2] += row.get("logged_in") is True
        return ((*key, *counts) for key, counts in found.items())

    return groups


def query(threads: int, source: str):
    import duckdb

    started()

    def groups():
        connection = duckdb.connect(config={"threads": threads})
        shape = """{"page": "INTEGER", "query": "VARCHAR", "logged_in": "BOOLEAN"}"""
        return connection.execute(
            "SELECT country, input.page, count(*), count(input.query), count(*) FILTER (input.logged_in) "
            "FROM (SELECT country, from_json(input, $shape) AS input FROM read_parquet($source)) "
            "GROUP BY ALL",
            {"shape": shape, "source": source},
        ).fetchall()

    return groups


if __name__ == "__main__":
    main()
