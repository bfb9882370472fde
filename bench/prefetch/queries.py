"""The queries over files in a bucket, as SQL, for PyArrow and for Polars. `group-by` is over CSV, `columns` over `prepare`'s file of forty
columns; `q1` and `q6` are TPC-H's, with the parameters that its specification validates by."""

import datetime

SQL = {
    "group-by": "SELECT k, count(*) AS n, sum(n) AS s FROM {table} GROUP BY k ORDER BY k",
    "columns": "SELECT c07 % 10 AS k, sum(c17) AS a, sum(c31) AS b FROM {table} GROUP BY c07 % 10 ORDER BY k",
    "q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(CAST(l_quantity AS DOUBLE)) AS avg_qty,
        avg(CAST(l_extendedprice AS DOUBLE)) AS avg_price, avg(CAST(l_discount AS DOUBLE)) AS avg_disc, count(*) AS count_order
        FROM {table} WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "q6": """SELECT sum(l_extendedprice * l_discount) AS revenue FROM {table}
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
}


def settled(rows):
    """An answer as numbers and texts that can be compared: floats by seven digits, as sums differ by their order."""

    def value(found):
        if found is None or isinstance(found, str):
            return found
        return f"{float(found):.7g}"

    return [[value(found) for found in row] for row in rows]


def of_arrow(name, data, options):
    import pyarrow.compute as pc

    def table(columns, condition=None):
        return data.to_table(columns=columns, filter=condition, fragment_scan_options=options)

    if name == "group-by":
        sums = data.to_table(columns=["k", "n"]).group_by("k").aggregate([("n", "count"), ("n", "sum")]).sort_by("k")
        return list(zip(sums["k"].to_pylist(), sums["n_count"].to_pylist(), sums["n_sum"].to_pylist()))
    if name == "columns":
        found = table({"a": pc.field("c17"), "b": pc.field("c31"), "c": pc.field("c07")})
        # PyArrow has no remainder.
        tenth = pc.divide(found["c"], 10)
        found = found.append_column("k", pc.subtract(found["c"], pc.multiply(tenth, 10)))
        sums = found.group_by("k").aggregate([("a", "sum"), ("b", "sum")]).sort_by("k")
        return list(zip(sums["k"].to_pylist(), sums["a_sum"].to_pylist(), sums["b_sum"].to_pylist()))
    float_of = {name: pc.field(f"l_{name}").cast("double") for name in ("quantity", "extendedprice", "discount", "tax")}
    price, discount, shipped = float_of["extendedprice"], float_of["discount"], pc.field("l_shipdate")
    if name == "q6":
        condition = (shipped >= datetime.date(1994, 1, 1)) & (shipped < datetime.date(1995, 1, 1))
        condition &= (discount >= 0.0499) & (discount <= 0.0701) & (float_of["quantity"] < 24)
        return [(pc.sum(table({"revenue": price * discount}, condition)["revenue"]).as_py(),)]
    reduced = price * (pc.scalar(1.0) - discount)
    columns = {
        "flag": pc.field("l_returnflag"), "status": pc.field("l_linestatus"), "qty": float_of["quantity"],
        "price": price, "reduced": reduced, "charge": reduced * (pc.scalar(1.0) + float_of["tax"]),
        "discount": discount,
    }
    found = table(columns, shipped <= datetime.date(1998, 9, 2))
    asked = [(name, "sum") for name in ("qty", "price", "reduced", "charge")]
    asked += [(name, "mean") for name in ("qty", "price", "discount")] + [("qty", "count")]
    sums = found.group_by(["flag", "status"]).aggregate(asked).sort_by([("flag", "ascending"), ("status", "ascending")])
    names = ["flag", "status", *(f"{name}_{what}" for name, what in asked)]
    return list(zip(*(sums[name].to_pylist() for name in names)))


def of_polars(name, frame):
    import polars as pl

    if name == "group-by":
        return frame.group_by("k").agg(pl.len(), pl.sum("n")).sort("k").collect().rows()
    if name == "columns":
        asked = frame.group_by((pl.col("c07") % 10).alias("k")).agg(pl.sum("c17"), pl.sum("c31")).sort("k")
        return asked.collect().rows()
    price, discount, tax = (pl.col(f"l_{name}").cast(pl.Float64) for name in ("extendedprice", "discount", "tax"))
    quantity, shipped = pl.col("l_quantity").cast(pl.Float64), pl.col("l_shipdate")
    if name == "q6":
        condition = (shipped >= datetime.date(1994, 1, 1)) & (shipped < datetime.date(1995, 1, 1))
        condition &= discount.is_between(0.0499, 0.0701) & (quantity < 24)
        return frame.filter(condition).select((price * discount).sum()).collect().rows()
    reduced = price * (1 - discount)
    asked = [
        quantity.sum(), price.sum(), reduced.sum().alias("reduced"), (reduced * (1 + tax)).sum().alias("charge"),
        quantity.mean().alias("avg_qty"), price.mean().alias("avg_price"), discount.mean().alias("avg_disc"), pl.len(),
    ]
    keys = ["l_returnflag", "l_linestatus"]
    return frame.filter(shipped <= datetime.date(1998, 9, 2)).group_by(keys).agg(asked).sort(keys).collect().rows()
