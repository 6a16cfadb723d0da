"""How fast requests of a tenant may come: a token bucket each, full at first."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from ..limits import TENANTS_MOST, Bucket
from .quotas import QuotaOf


class Rates:
    """Requests and handshakes of all tenants. On the event loop only; nothing of it runs per frame."""

    def __init__(self, quota_of: QuotaOf, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota_of = quota_of
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __contains__(self, tenant: object) -> bool:
        return tenant in self._buckets

    def wait(self, tenant: str) -> float:
        """Count a request; 0, or how many seconds it comes too early, and then it is not counted."""
        limit = self._quota_of(tenant).http
        if limit is None:
            return 0.0
        bucket = self._buckets.get(tenant)
        if bucket is None or bucket.limit != limit:
            bucket = self._buckets[tenant] = Bucket("http", limit, self._clock)
            if len(self._buckets) > TENANTS_MOST:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(tenant)
        wait = bucket.wait()
        if wait <= 0:
            bucket.take(1)
        return wait

    def forget(self, tenant: str) -> None:
        self._buckets.pop(tenant, None)
