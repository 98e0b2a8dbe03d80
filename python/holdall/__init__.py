"""Client of the holdall memory-cache tier: memcached servers behind mcrouter's routes.

    from holdall import Client

    client = Client(["127.0.0.1:11211", "127.0.0.1:11212"])
    client.set("greeting", b"hello", expire=60)
    client.get_or_load("user:17", lambda: query(17), expire=300)
"""

from ._native import CacheError, CacheTimeout, IllegalInputError, Position, __version__
from .aio import AsyncClient
from .client import Client, Markers, Snapshot, Waits, Written
from .serde import PickleSerde, TypedSerde
from .settings import TLS

__all__ = [
    "AsyncClient",
    "CacheError",
    "CacheTimeout",
    "Client",
    "IllegalInputError",
    "Markers",
    "PickleSerde",
    "Position",
    "Snapshot",
    "TLS",
    "TypedSerde",
    "Waits",
    "Written",
    "__version__",
]
