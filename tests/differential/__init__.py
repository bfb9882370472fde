"""Random tables and statements, answered by tidemill in every way it has, and by DuckDB.

See README.md.
"""
