"""Queries on a Ray cluster: all that knows Ray.

``tm.query(sql, on="ray")`` comes here, and nothing else of the package does; Ray itself is the
extra ``tidemill[ray]`` and is imported when it is asked for.

- ``_workers``: how do tasks reach actors, and what becomes of one that is gone?
- ``_actor``: what is an actor? It holds the engine.
- ``_master``: how does one stay that answers at once?
- ``_service``: what does it answer over HTTP?
- ``_job_queue``: the queue of a master's jobs, with priorities, limits and suspension.
- ``_delivery``: non-blocking delivery of an answer to a client that may stop reading.
- ``_files``: how does a file that programs find by name come to each machine once?
"""

from __future__ import annotations

from tidemill.ray._master import Standing, down, jobs, status, token, up
from tidemill.ray._workers import RayJob, RayWorkers, connect, disconnect

__all__ = [
    "RayJob",
    "RayWorkers",
    "Standing",
    "connect",
    "disconnect",
    "down",
    "jobs",
    "status",
    "token",
    "up",
]
