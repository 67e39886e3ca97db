"""Without the extra everything but a cluster and URLs is there, and starts as fast."""

from __future__ import annotations

import subprocess
import sys

_CODE = """\
import sys
for name in ("dask", "distributed", "fsspec", "aiohttp"):
    sys.modules[name] = None
from wtxtgit.cli import audit, emit, inspect, options, review
from wtxtgit.chain import audit
from wtxtgit.checkpoint import emit, verify
from wtxtgit.remotes import urls
from wtxtgit.review import review
from wtxtgit.cluster import client, tasks
"""


def test_nothing_of_the_extra_is_imported() -> None:
    """Importing any of those that are taken away raises."""
    subprocess.run([sys.executable, "-c", _CODE], check=True)
