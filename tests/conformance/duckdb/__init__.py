"""Runs DuckDB's own test suite on Tidemill, with DuckDB as the oracle."""
