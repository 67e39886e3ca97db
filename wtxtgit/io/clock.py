"""The time, also beyond the range of Python's own functions.

`time.time` fails from the year 2262 on, where 63 bits of nanoseconds end, and `datetime.now` gets
no further.
"""

from __future__ import annotations

import time

from wtxtgit.errors import EnvironmentFailure


def now() -> float:
    """Return the seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def utc_now() -> str:
    """Return the time as in texts and ledgers; raises EnvironmentFailure beyond the year 9999."""
    from datetime import datetime, timedelta

    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=int(now()))
    except OverflowError:
        raise EnvironmentFailure(
            "the system's clock is set beyond the year 9999, which no record can hold",
            hint="date shows what it says; set it to the right time",
        ) from None
    return f"{moment.isoformat()}Z"
