"""Compares Tidemill with PyArrow and DuckDB on the files of apache/parquet-testing."""
