"""Test suites of other projects, run on Tidemill."""
