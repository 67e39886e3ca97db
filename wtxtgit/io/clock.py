"""What the clock says, also where that is beyond what Python's own functions take.

`time.time` fails from the year 2262 on, where 63 bits of nanoseconds end, and `datetime.now` stays
there.
"""

from __future__ import annotations

import time

from wtxtgit.errors import EnvironmentFailure


def now() -> float:
    """Seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def utc_now() -> str:
    """The time as texts and ledgers have it; raises EnvironmentFailure beyond the year 9999."""
    from datetime import datetime, timedelta

    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=int(now()))
    except OverflowError:
        raise EnvironmentFailure(
            "the system's clock stands beyond the year 9999, which no record can hold",
            hint="set the clock: date",
        ) from None
    return f"{moment.isoformat()}Z"
