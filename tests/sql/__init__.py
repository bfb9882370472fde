"""Statements as people write them who come from other databases, each with its answer."""
