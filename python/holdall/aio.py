"""The client for asyncio: calls to be awaited, of any event loop.

    from holdall import AsyncClient

    async with AsyncClient(["127.0.0.1:11211"]) as client:
        await client.set("greeting", b"hello", expire=60)
        first, second = await asyncio.gather(client.get("greeting"), client.get("other"))

A call waits on a thread of the client's own, without the interpreter's lock, so the loop is never blocked; what many wait for shares
connections. A call that is cancelled has been asked or will be, and its answer is nobody's.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from .client import Client


class AsyncClient:
    """As `Client`, with the same settings; every call waits for its answer, so there is no `noreply`.

    `concurrency` is how many calls wait at a time; more wait for their turn.
    """

    def __init__(self, servers=None, *, concurrency=64, **settings):
        self._client = Client(servers, default_noreply=False, **settings)
        self._concurrency = concurrency
        self._threads = None

    async def _run(self, call, *arguments, **more):
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, "holdall-async")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*arguments, **more))

    async def get(self, key, default=None):
        return await self._run(self._client.get, key, default)

    async def gets(self, key, default=None, cas_default=None):
        """The value and its cas unique."""
        return await self._run(self._client.gets, key, default, cas_default)

    async def gat(self, key, expire=0, default=None):
        return await self._run(self._client.gat, key, expire, default)

    async def gats(self, key, expire=0, default=None, cas_default=None):
        return await self._run(self._client.gats, key, expire, default, cas_default)

    async def get_many(self, keys):
        """A dict of the keys that there are."""
        return await self._run(self._client.get_many, list(keys))

    async def multi_get(self, *keys):
        """A tuple with the value of each key, or None: aiomcache's."""
        found = await self.get_many(keys)
        return tuple(found.get(key) for key in keys)

    async def set(self, key, value, expire=0, flags=None):
        return await self._run(self._client.set, key, value, expire, flags=flags)

    async def add(self, key, value, expire=0, flags=None):
        return await self._run(self._client.add, key, value, expire, flags=flags)

    async def replace(self, key, value, expire=0, flags=None):
        return await self._run(self._client.replace, key, value, expire, flags=flags)

    async def append(self, key, value, expire=0, flags=None):
        return await self._run(self._client.append, key, value, expire, flags=flags)

    async def prepend(self, key, value, expire=0, flags=None):
        return await self._run(self._client.prepend, key, value, expire, flags=flags)

    async def set_many(self, values, expire=0, flags=None):
        """Stores a dict; the keys that were not stored."""
        return await self._run(self._client.set_many, values, expire, flags=flags)

    async def cas(self, key, value, cas, expire=0, flags=None):
        """True: stored; False: changed since `gets`; None: there is no such item."""
        return await self._run(self._client.cas, key, value, cas, expire, flags=flags)

    async def delete(self, key, hold_off=0):
        """True when it was there."""
        return await self._run(self._client.delete, key, hold_off=hold_off)

    async def delete_many(self, keys):
        return await self._run(self._client.delete_many, list(keys))

    async def incr(self, key, value=1):
        """The new number, or None when there is no such item."""
        return await self._run(self._client.incr, key, value)

    async def decr(self, key, value=1):
        """The new number, 0 at the least, or None when there is no such item."""
        return await self._run(self._client.decr, key, value)

    async def touch(self, key, expire=0):
        return await self._run(self._client.touch, key, expire)

    async def get_or_load(self, key, load, expire=0, **options):
        """As `Client.get_or_load`; `load` is a coroutine function, which this loop runs."""
        loop = asyncio.get_running_loop()

        def run(*source):
            return asyncio.run_coroutine_threadsafe(load(*source), loop).result()

        return await self._run(self._client.get_or_load, key, run, expire, **options)

    async def flush_all(self, delay=0):
        return await self._run(self._client.flush_all, delay)

    async def version(self):
        return await self._run(self._client.version)

    def stats(self):
        """As `Client.stats`."""
        return self._client.stats()

    async def close(self):
        """Waits until what was asked has been answered. A later call begins anew."""
        threads, self._threads = self._threads, None
        await asyncio.to_thread(self._client.close)
        if threads is not None:
            threads.shutdown(wait=False)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()
