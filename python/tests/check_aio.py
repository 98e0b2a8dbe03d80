"""The client for asyncio against a real server: every call, cancelled ones, and a thousand at once."""

import asyncio
import contextvars
import functools
import socket
import sys
import threading

from checking import passed, same
from holdall import AsyncClient, CacheError, IllegalInputError, Markers, PickleSerde, TypedSerde


async def commands(address):
    async with AsyncClient(address, serde=TypedSerde(), timeout=60) as client:
        await client.flush_all()
        same(await client.set("k", "v", expire=100), True, "set")
        same(await client.get("k"), "v", "get")
        same(await client.get("absent", "none"), "none", "a miss")
        same(await client.add("k", "w"), False, "add")
        same(await client.replace("k", "w"), True, "replace")
        value, cas = await client.gets("k")
        same(value, "w", "gets")
        same(await client.cas("k", "x", cas), True, "cas")
        same(await client.cas("k", "y", cas), False, "cas that is too late")
        same(await client.cas("absent", "y", cas), None, "cas of nothing")
        same(await client.append("k", b"!"), True, "append")
        same(await client.prepend("k", b"?"), True, "prepend")
        same(await client.gat("k", 100), "?x!", "gat")
        same((await client.gats("k", 100))[0], "?x!", "gats")
        same(await client.set("n", 41), True, "set of a number")
        same((await client.incr("n"), await client.decr("n", 2)), (42, 40), "counting")
        same(await client.incr("absent"), None, "counting nothing")
        same(await client.touch("n", 100), True, "touch")
        same(await client.set_many({"a": "1", "b": "2"}), [], "set_many")
        same(await client.get_many(["a", "b", "c"]), {"a": "1", "b": "2"}, "get_many")
        same(await client.multi_get("a", "c", "b"), ("1", None, "2"), "multi_get")
        same(await client.delete("a"), True, "delete")
        same(await client.delete_many(["a", "b"]), True, "delete_many")

        paths = {key: key for key in ("k", "/././k", "/*/*/k", "/shop/shoes/17")}
        same(await client.set_many(paths), [], "set_many of paths")
        same(await client.get_many(paths), paths, "paths are keys as others")

        async def load():
            return "loaded"

        same(await client.get_or_load("row", load, 100), "loaded", "get_or_load")
        same(await client.get_or_load("row", load, 100), "loaded", "get_or_load of a hit")
        try:
            await client.get("a b")
            raise SystemExit("a key with a space was asked")
        except IllegalInputError:
            same(True, True, "a bad key")
        stats = client.stats()
        same([row["connects"] for row in stats.values()], [1], "one connection")
        same(isinstance(await client.version(), bytes), True, "version")


async def many(address):
    async with AsyncClient(address, timeout=60) as client:
        await asyncio.gather(*(client.set(f"k{n}", b"%d" % n) for n in range(1000)))
        calls = [asyncio.ensure_future(client.get(f"k{n}")) for n in range(1000)]
        await asyncio.sleep(0)
        for call in calls[::10]:
            call.cancel()
        got = await asyncio.gather(*calls, return_exceptions=True)
        for n, value in enumerate(got):
            if not isinstance(value, asyncio.CancelledError) and value != b"%d" % n:
                raise SystemExit(f"k{n}: {value!r}")
        same(all(not isinstance(one, Exception) for one in got if one is not None), True, "a thousand")
        same(threading.active_count(), 1, "threads of Python's")


USER = contextvars.ContextVar("USER")


async def look_aside(address):
    async with AsyncClient(address, serde=TypedSerde(), timeout=60) as client:
        region = Markers("remote:", 60)
        USER.set("me")

        async def load(source):
            await asyncio.sleep(0.001)
            return f"{source} by {USER.get()}"

        await client.delete_many(["marked", "remote:marked", "slow", "failing"])
        same(await client.get_or_load("marked", load, markers=region), "local by me", "no marker")

        async def write(marker):
            await asyncio.sleep(0.001)
            return bytes(marker)

        written = await client.write_marked("marked", write, region)
        same(tuple(written), (b"remote:marked", True, True), "a marked write")
        # What was deleted may be given out for a while.
        got = await client.get_or_load("marked", load, takes_stale=False, markers=region)
        same(got, "master by me", "a marker")

        async def failing():
            raise KeyError("the database is down")

        try:
            await client.get_or_load("failing", failing)
            raise SystemExit("a failing load was no failure")
        except KeyError as error:
            same(error.args, ("the database is down",), "a failing load")
        begun, ended = asyncio.Event(), asyncio.Event()

        async def slow():
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        call = asyncio.ensure_future(client.get_or_load("slow", slow))
        await begun.wait()
        call.cancel()
        got = await asyncio.gather(call, return_exceptions=True)
        same(type(got[0]), asyncio.CancelledError, "a call that was cancelled")
        await asyncio.wait_for(ended.wait(), 60)
        same(ended.is_set(), True, "the load of a call that was cancelled ends")

        # Whoever shares a load that is cancelled loads next; whoever shares one that ends has its value.
        loads = []

        async def counted(number):
            loads.append(number)
            begun.set()
            await asyncio.sleep(0.05)
            return "row"

        begun.clear()
        calls = [
            asyncio.ensure_future(client.get_or_load("slow", functools.partial(counted, number)))
            for number in range(20)
        ]
        await begun.wait()
        # Any of them may be the first whose miss is answered.
        calls[loads[0]].cancel()
        got = await asyncio.gather(*calls, return_exceptions=True)
        cancelled = got.pop(loads[0])
        same(set(got), {"row"}, "the others have the value")
        same((type(cancelled), len(loads)), (asyncio.CancelledError, 2), "loads when one is cancelled")


async def cancelled_loads():
    """A load that ends by the cancellation of another task cancels its own caller alone."""
    async with AsyncClient(address, timeout=60) as client:
        await client.delete("inner")
        inner = asyncio.ensure_future(asyncio.sleep(3600))
        begun = asyncio.Event()

        async def load():
            begun.set()
            return await inner

        async def other():
            return b"row"

        first = asyncio.ensure_future(client.get_or_load("inner", load))
        await begun.wait()
        second = asyncio.ensure_future(client.get_or_load("inner", other, takes_stale=False))
        # It has missed, and waits for the first.
        while client.stats()[address]["answered"] < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        inner.cancel()
        got = await asyncio.gather(first, second, return_exceptions=True)
        same((type(got[0]), got[1]), (asyncio.CancelledError, b"row"), "a task that was cancelled")


async def silence():
    """Calls to a server that never answers are given up at once, and leave nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "%s:%d" % server.getsockname()
        client = AsyncClient(address, timeout=3600)
        for _ in range(3):
            calls = [asyncio.ensure_future(client.get(f"k{n}")) for n in range(100)]
            await asyncio.sleep(0.01)
            for call in calls:
                call.cancel()
            got = await asyncio.gather(*calls, return_exceptions=True)
            same({type(one) for one in got}, {asyncio.CancelledError}, "all are cancelled")
        late = asyncio.ensure_future(client.get("k"))
        try:
            await asyncio.wait_for(late, 0.01)
            raise SystemExit("a silent server has answered")
        except asyncio.TimeoutError:
            same(late.cancelled(), True, "a call that ran out of time")
    await client.close()


async def failures():
    async with AsyncClient("127.0.0.1:1") as client:
        try:
            await client.get("k")
            raise SystemExit("nobody answered")
        except CacheError:
            same(True, True, "an error")
    async with AsyncClient("127.0.0.1:1", ignore_exc=True) as client:
        same(await client.get("k", "default"), "default", "a failure that is ignored")
        same(await client.set("k", b"v"), False, "a store that failed")
        same(await client.flush_all(), False, "a flush_all that failed")
        try:
            await client.version()
            raise SystemExit("a dead server has a version")
        except CacheError:
            same(True, True, "the version of a dead server")
    async with AsyncClient(address, ignore_exc=True, timeout=60) as client:

        async def failing(*_):
            raise CacheError("the loader's own")

        for what, call in {
            "a load": client.get_or_load("failing", failing),
            "a write": client.write_marked("failing", failing, Markers("remote:", 60)),
        }.items():
            try:
                await call
                raise SystemExit(f"{what} has not failed")
            except CacheError as error:
                same(error.args, ("the loader's own",), what)


async def exhausted():
    """A writer that raises StopIteration, which no future takes, ends its call, and those that are answered with it."""
    async with AsyncClient(address, timeout=60) as client:
        region = Markers("remote:", 60)
        calls = [
            client.write_marked("exhausted", lambda _: next(iter(())), region),
            client.write_marked_at("exhausted", lambda: next(iter(())), region),
        ]
        others = [client.get(f"k{n}") for n in range(20)]
        got = await asyncio.wait_for(asyncio.gather(*calls, *others, return_exceptions=True), 60)
        same([type(one) for one in got[:2]], [RuntimeError] * 2, "a writer that has no more")
        same([one for one in got[2:] if isinstance(one, Exception)], [], "the other calls")


async def unreadable():
    """A value that cannot be deserialized is as good as none."""
    async with AsyncClient(address, serde=PickleSerde(), timeout=60) as client:
        loads = []

        async def load():
            loads.append(1)
            return {"row": len(loads)}

        await AsyncClient(address).set("unreadable", b"no pickle", flags=1)
        async with AsyncClient(address, serde=PickleSerde(), ignore_exc=True, timeout=60) as lenient:
            same(await lenient.get("unreadable", "none"), "none", "a miss by ignore_exc")
            same(await lenient.gets("unreadable", "none", 0), ("none", 0), "a miss with a cas")
            same(await lenient.get_many(["unreadable"]), {}, "a miss of get_many")
        got = [await client.get_or_load("unreadable", load) for _ in range(3)]
        same(got, [{"row": 1}, {"row": 2}, {"row": 2}], "loaded, filled, read")


address = sys.argv[1]
# Each has a loop of its own.
asyncio.run(commands(address))
asyncio.run(many(address))
asyncio.run(look_aside(address))
asyncio.run(cancelled_loads())
asyncio.run(silence())
asyncio.run(failures())
asyncio.run(exhausted())
asyncio.run(unreadable())
passed("holdall for Python, asyncio")
