"""The client for asyncio: calls to be awaited, of any event loop that can watch a descriptor (asyncio's own on Linux, uvloop).

    from holdall import AsyncClient

    async with AsyncClient(["127.0.0.1:11211"]) as client:
        await client.set("greeting", b"hello", expire=60)
        first, second = await asyncio.gather(client.get("greeting"), client.get("other"))

No thread waits for a call: the client's own threads ring a bell that the loop watches, and the loop gives out all the answers that have
come. A call that is cancelled has been asked, and its answer is nobody's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from ._native import Bridge, CacheError, IllegalInputError, Position, Stepped
from .client import (
    MASTER,
    AnyKey,
    Client,
    Key,
    Markers,
    Origin,
    Snapshot,
    Waits,
    Written,
    load_settings,
    region,
    stales,
    told,
    unique,
)
from .settings import Address

# One for each loop, whatever clients it has.
_bridges: dict[asyncio.AbstractEventLoop, Bridge] = {}
os.register_at_fork(after_in_child=_bridges.clear)


def _bridge() -> Bridge:
    loop = asyncio.get_running_loop()
    return _bridges.get(loop) or _bridge_of(loop)


def _bridge_of(loop: asyncio.AbstractEventLoop) -> Bridge:
    for other in [other for other in list(_bridges) if other.is_closed()]:
        _bridges.pop(other, None)
    bridge = Bridge()
    loop.add_reader(bridge.fileno(), _turn, bridge)
    _bridges[loop] = bridge
    return bridge


def _turn(bridge: Bridge) -> None:
    """Settles the futures of the calls that have ended."""
    for future, result, error in bridge.turn():
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future refuses it; a coroutine that raises it raises this.
            raised = RuntimeError("a coroutine function raised StopIteration")
            raised.__cause__ = error
            future.set_exception(raised)
        else:
            future.set_exception(error)


async def _outcome(call: Callable[..., int], *arguments: Any) -> Any:
    """Awaits a native call."""
    bridge, future = _bridge(), asyncio.get_running_loop().create_future()
    place = call(*arguments, (bridge, future))
    try:
        return await future
    except asyncio.CancelledError:
        bridge.forget(place, future)
        raise


async def _run(call: Stepped, step: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """The outcome of a call, whose step is awaited in between."""
    try:
        while True:
            later, outcome = await _outcome(call.next)
            if later is None:
                return outcome
            try:
                result = await step(outcome)
            except Exception as error:
                later.fail(error)
            else:
                later.bring(result)
    finally:
        call.give_up()


class AsyncClient:
    """As `Client`, with the same settings; every call waits for its answer, so there is no `noreply`."""

    def __init__(self, servers: Address | list[Address] | None = None, **settings: Any) -> None:
        self._client = Client(servers, default_noreply=False, **settings)

    async def _ask(self, failed: Any, name: str, *arguments: Any) -> Any:
        try:
            return await _outcome(getattr(self._client._core(), name), *arguments)
        except IllegalInputError:
            raise
        except CacheError:
            if self._client.ignore_exc:
                return failed
            raise

    async def get(self, key: Key, default: Any = None) -> Any:
        client = self._client
        return client._read(key, await self._ask(None, "get", client._key(key)), default)[0]

    async def gets(self, key: Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """The value and its cas unique."""
        found = await self._ask(None, "gets", self._client._key(key))
        return self._client._read(key, found, default, cas_default)

    async def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        found = await self._ask(None, "gat", self._client._key(key), expire)
        return self._client._read(key, found, default)[0]

    async def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: Any = None
    ) -> tuple[Any, Any]:
        found = await self._ask(None, "gats", self._client._key(key), expire)
        return self._client._read(key, found, default, cas_default)

    async def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        """A dict of the keys that there are."""
        client, keys = self._client, list(keys)
        asked = [client._key(key) for key in keys]
        found, failed = await self._ask(([], None), "get_many", asked, False)
        if failed is not None and not client.ignore_exc:
            raise failed
        return {key: value for key, value, _ in client._read_many(zip(keys, found))}

    async def multi_get(self, *keys: AnyKey) -> tuple[Any, ...]:
        """A tuple with the value of each key, or None: aiomcache's."""
        found = await self.get_many(keys)
        return tuple(found.get(key) for key in keys)

    async def _store(
        self, command: str, key: Key, value: Any, expire: int, flags: int | None
    ) -> bool:
        client = self._client
        data, own = client._pack(key, value, flags)
        arguments = (command, client._key(key), data, own, expire, False)
        stored: bool = await self._ask(False, "store", *arguments)
        return stored

    async def set(self, key: Key, value: Any, expire: int = 0, flags: int | None = None) -> bool:
        return await self._store("set", key, value, expire, flags)

    async def add(self, key: Key, value: Any, expire: int = 0, flags: int | None = None) -> bool:
        return await self._store("add", key, value, expire, flags)

    async def replace(
        self, key: Key, value: Any, expire: int = 0, flags: int | None = None
    ) -> bool:
        return await self._store("replace", key, value, expire, flags)

    async def append(self, key: Key, value: Any, expire: int = 0, flags: int | None = None) -> bool:
        return await self._store("append", key, value, expire, flags)

    async def prepend(
        self, key: Key, value: Any, expire: int = 0, flags: int | None = None
    ) -> bool:
        return await self._store("prepend", key, value, expire, flags)

    async def set_many(
        self, values: Mapping[AnyKey, Any], expire: int = 0, flags: int | None = None
    ) -> list[AnyKey]:
        """Stores a dict; the keys that were not stored."""
        client, keys = self._client, list(values)
        items = [client._item(key, value, flags) for key, value in values.items()]
        places = await self._ask(range(len(keys)), "set_many", items, expire, False)
        return [keys[place] for place in places]

    async def cas(
        self,
        key: Key,
        value: Any,
        cas: int | str | bytes,
        expire: int = 0,
        flags: int | None = None,
    ) -> bool | None:
        """True: stored; False: changed since `gets`; None: there is no such item."""
        client = self._client
        data, own = client._pack(key, value, flags)
        arguments = (client._key(key), data, own, expire, unique(cas))
        stored: bool | None = await self._ask(False, "cas", *arguments)
        return stored

    async def delete(self, key: Key, hold_off: int = 0) -> bool:
        """True when it was there."""
        keys = [self._client._key(key)]
        deleted: bool = await self._ask(False, "delete_many", keys, hold_off, False)
        return deleted

    async def delete_many(self, keys: Iterable[Key]) -> bool:
        asked = [self._client._key(key) for key in keys]
        return await self._ask(None, "delete_many", asked, 0, False) is not None

    async def incr(self, key: Key, value: int = 1) -> int | None:
        """The new number, or None when there is no such item."""
        return await self._count(key, value, False)

    async def decr(self, key: Key, value: int = 1) -> int | None:
        """The new number, 0 at the least, or None when there is no such item."""
        return await self._count(key, value, True)

    async def _count(self, key: Key, value: int, down: bool) -> int | None:
        arguments = (self._client._key(key), value, down, False)
        number: int | None = await self._ask(None, "count", *arguments)
        return number

    async def touch(self, key: Key, expire: int = 0) -> bool:
        touched: bool = await self._ask(False, "touch", self._client._key(key), expire, False)
        return touched

    async def get_or_load(
        self,
        key: Key,
        load: Callable[..., Coroutine[Any, Any, Any]],
        expire: int = 0,
        *,
        takes_stale: bool = True,
        waits: Waits = Waits(),
        early_refresh: float = 0.0,
        as_of: Snapshot | None = None,
        markers: Markers | None = None,
        exact: bool = False,
    ) -> Any:
        """As `Client.get_or_load`; `load` is a coroutine function, which this loop runs."""
        client = self._client
        fresh: list[Any] = []

        async def packed(origin: Origin) -> tuple[bytes, int]:
            value, data, flags = client._loaded(key, await load(*told(origin, markers, exact)))
            fresh.append(value)
            return data, flags

        asked = client._key(key)
        for stale in stales(takes_stale):
            core = client._core_or_none()
            if core is None:
                await packed(MASTER)
                return fresh[0]
            settings = load_settings(expire, stale, waits, early_refresh, as_of, markers, exact)
            data, flags = await _run(core.get_or_load(asked, *settings), packed)
            if fresh:
                return fresh[0]
            try:
                return client.serde.deserialize(key, data, flags)
            except Exception:
                continue
        client._forget(key)
        return await load(*told(MASTER, markers, exact))

    async def write_marked(
        self, key: Key, write: Callable[[bytes], Coroutine[Any, Any, Any]], markers: Markers
    ) -> Written:
        """As `Client.write_marked`; `write` is a coroutine function, which this loop runs."""
        client = self._client
        asked, marked, core = client._key(key), region(markers), client._core_or_none()
        if core is None:
            return Written(await write(marked[0] + asked), False, False)
        return Written(*await _run(core.write_marked(asked, marked, False), write))

    async def write_marked_at(
        self,
        key: Key,
        write: Callable[[], Coroutine[Any, Any, tuple[Any, Position]]],
        markers: Markers,
    ) -> Written:
        """As `Client.write_marked_at`; `write` is a coroutine function, which this loop runs."""
        client = self._client
        asked, marked, core = client._key(key), region(markers), client._core_or_none()
        if core is None:
            return Written((await write())[0], False, False)
        return Written(*await _run(core.write_marked(asked, marked, True), lambda _: write()))

    async def flush_all(self, delay: int = 0) -> bool:
        return await self._ask(False, "flush_all", delay) is None

    async def version(self) -> bytes:
        version: str = await _outcome(self._client._core().version)
        return version.encode("ascii")

    def stats(self) -> dict[str, dict[str, Any]]:
        """As `Client.stats`."""
        return self._client.stats()

    def look_aside_totals(self) -> dict[str, int]:
        """As `Client.look_aside_totals`."""
        return self._client.look_aside_totals()

    def kept_deletes(self) -> dict[str, int] | None:
        """As `Client.kept_deletes`."""
        return self._client.kept_deletes()

    async def close(self) -> None:
        """Waits until what was asked has been answered. A later call begins anew."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
