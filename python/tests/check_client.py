"""Every call of the Python client against a live server: `check_client.py ADDRESS [leases] [direct]`.

`leases`: the server has them. `direct`: it is not a proxy, which would take routing prefixes off keys."""

import asyncio
import contextlib
import enum
import os
import pickle
import signal
import socket
import sys
import threading
import time

from checking import passed, refused, same
from holdall import AsyncClient, CacheError, Client, IllegalInputError, Markers, PickleSerde, Position
from holdall import TypedSerde, Waits

ADDRESS = sys.argv[1]
LEASES = "leases" in sys.argv
DIRECT = "direct" in sys.argv


def commands():
    c = Client(ADDRESS, timeout=10)
    same(c.flush_all(), True, "flush_all")
    same(c.get("a"), None, "get of nothing")
    same(c.get("a", "default"), "default", "get with a default")
    same(c.set("a", b"one", noreply=False), True, "set")
    same(c.get("a"), b"one", "get")
    same(c.set("text", "words"), True, "set without waiting")
    same(c.get("text"), b"words", "text is bytes without a serde")
    same(c.set("number", 17), True, "set of a number")
    same(c.get("number"), b"17", "a number is bytes without a serde")
    same(c.add("a", b"two", noreply=False), False, "add over a value")
    same(c.add("b", b"two", noreply=False), True, "add")
    same(c.replace("a", b"1", noreply=False), True, "replace")
    same(c.replace("none", b"1", noreply=False), False, "replace of nothing")
    same(c.append("a", b"2", noreply=False), True, "append")
    same(c.prepend("a", b"0", noreply=False), True, "prepend")
    same(c.append("none", b"2", noreply=False), False, "append to nothing")
    same(c.get_many(["a", "b", "none"]), {"a": b"012", "b": b"two"}, "get_many")
    value, unique = c.gets("a")
    same(value, b"012", "gets")
    same(c.gets("none", "no", 0), ("no", 0), "gets of nothing")
    same(c.cas("a", b"new", unique), True, "cas")
    same(c.cas("a", b"newer", str(unique).encode()), False, "cas with an old unique")
    same(c.cas("none", b"x", unique), None, "cas of nothing")
    same(sorted(c.gets_many(["a", "b"])), ["a", "b"], "gets_many")
    same(c.set("n", b"10", noreply=False), True, "set a number")
    same(c.incr("n", 5), 15, "incr")
    same(c.decr("n", 100), 0, "decr stops at zero")
    same(c.incr("none", 1), None, "incr of nothing")
    refused(CacheError, "incr of text", c.incr, "b", 1)
    same(c.touch("a", 100, noreply=False), True, "touch")
    same(c.touch("none", 100, noreply=False), False, "touch of nothing")
    same(c.gat("a", 100), b"new", "gat")
    same(c.gats("a", 100)[0], b"new", "gats")
    same(c.gat("none", 100, "no"), "no", "gat of nothing")
    same(c.delete("a", noreply=False), True, "delete")
    same(c.delete("a", noreply=False), False, "delete of nothing")
    many = {f"m{i}": str(i).encode() for i in range(500)}
    same(c.set_many(many, noreply=False), [], "set_many")
    same(c.get_many(many), many, "get_many of 500")
    same(c.delete_many(many), True, "delete_many")
    same(c.get_many(many), {}, "nothing is left")
    for key in ("s1", "s2", "s3"):
        c.set(key, b"quiet", noreply=True)
    c.delete("s1", noreply=True)
    same(c.get_many(["s1", "s2", "s3"]), {"s2": b"quiet", "s3": b"quiet"}, "calls stay in order")
    c["item"] = b"value"
    same(c["item"], b"value", "an item")
    del c["item"]
    refused(KeyError, "a missing item", c.__getitem__, "item")
    large = bytes(range(256)) * 2000
    same(c.set("large", large, noreply=False), True, "a large value")
    same(c.get("large") == large, True, "the large value again")
    refused(CacheError, "a value of 2 MB", c.set, "large", b"x" * (2 << 20), noreply=False)
    same(c.version().count(b"."), 2, "version")
    for key in ("k" * 251, "", "a b", "a\r\nflush_all", "\x7f", "ä"):
        refused(IllegalInputError, f"the key {key!r}", c.get, key)
    same(Client(ADDRESS, allow_unicode_keys=True).get("ä"), None, "a key in UTF-8")
    prefixed = Client(ADDRESS, key_prefix="prefix:")
    for key in (0, 7, False, None, "", b""):
        refused(IllegalInputError, f"the key {key!r} with a prefix", prefixed.set, key, b"v")
    same(c.get("prefix:"), None, "nothing is stored at the prefix")
    c.close()
    same(c.get("s2"), b"quiet", "a closed client begins anew")


class Colour(str, enum.Enum):
    RED = "red"


def values():
    typed = Client(ADDRESS, serde=TypedSerde(), key_prefix="p:", default_noreply=False)
    for value in (b"\x00\xff", "äöü", -5, 1 << 70):
        typed.set("v", value)
        same(typed.get("v"), value, f"{value!r}")
    same(Client(ADDRESS).get("p:v"), str(1 << 70).encode(), "the prefix is a part of the key")
    typed.set("v", bytearray(b"bytes"))
    same(typed.get("v"), b"bytes", "a bytearray is bytes without pickles")
    for value in ([], True, Colour.RED):
        refused(TypeError, f"{value!r} without pickles", typed.set, "v", value)
    pickled = Client(ADDRESS, serde=PickleSerde(), default_noreply=False)
    for value in (Colour.RED, bytearray(b"bytes"), True, b"bytes", "text", 17):
        pickled.set("v", value)
        got = pickled.get("v")
        same((got, type(got)), (value, type(value)), f"{value!r} with its type")
    pickled.set("object", {"a": [1, 2.5, None]})
    same(pickled.get("object"), {"a": [1, 2.5, None]}, "a pickle")
    plain = Client(ADDRESS, serde=TypedSerde())
    refused(ValueError, "a pickle that is not wanted", plain.get, "object")
    c = Client(ADDRESS, default_noreply=False)
    c.set("compressed", b"as by pymemcache's CompressedSerde", flags=8)
    refused(ValueError, "what pymemcache has compressed", plain.get, "compressed")
    for kind in ("zstd", "lz4"):
        packing = Client(ADDRESS, serde=TypedSerde(), compress=kind, compress_threshold=100)
        packing.set("packed", "the same words " * 1000, noreply=False)
        same(plain.get("packed"), "the same words " * 1000, kind)
        same(packing.append("packed", "tail", noreply=False), True, "append to a packed value")
        refused(CacheError, "a packed value with more behind it", plain.get, "packed")


def look_aside():
    c = Client(ADDRESS, serde=PickleSerde())
    c.delete("row", noreply=False)
    loads = []

    def load():
        loads.append(1)
        time.sleep(0.05)
        return {"row": 17}

    def read():
        same(c.get_or_load("row", load, expire=60), {"row": 17}, "get_or_load")

    readers = [threading.Thread(target=read) for _ in range(30)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    if LEASES:
        same(len(loads), 1, "loads of 30 readers")
    same(c.get_or_load("row", None), {"row": 17}, "a hit loads nothing")

    def failing():
        raise KeyError("the database is down")

    refused(KeyError, "a failing load", c.get_or_load, "failing", failing)
    if LEASES:
        again = lambda: c.get_or_load("failing", lambda: "row", waits=Waits(total=0.0))
        same((again(), c.get("failing")), ("row", "row"), "a failed load gives its lease back")
        c.delete("failing", noreply=False)
    same(c.get("failing"), None, "nothing is stored after a failure")
    same(c.look_aside_totals()["fills"] >= 1, True, "fills are counted")
    c.set("early", "old", expire=1000, noreply=False)
    got = c.get_or_load("early", lambda: "new", expire=1000, early_refresh=1e9)
    same((got, c.get("early")), ("new", "new") if LEASES else ("old", "old"), "an early refresh")


def unreadable():
    """A value that cannot be deserialized is as good as none."""
    raw, loads = Client(ADDRESS, default_noreply=False), []

    def load(*source):
        loads.append(source)
        return {"row": len(loads)}

    c = Client(ADDRESS, serde=PickleSerde())
    raw.set("unreadable", b"no pickle", flags=1)
    got = [c.get_or_load("unreadable", load) for _ in range(3)]
    same(got, [{"row": 1}, {"row": 2}, {"row": 2}], "loaded, filled, read")
    raw.set("unreadable", b"no pickle", flags=1)
    refused(pickle.UnpicklingError, "a get", c.get, "unreadable")
    refused(pickle.UnpicklingError, "a get_many", c.get_many, ["unreadable"])
    raw.set("readable", b"text", flags=16)
    keys, lenient = ["unreadable", "readable"], Client(ADDRESS, serde=PickleSerde(), ignore_exc=True)
    for read in (lenient.get, lenient.gat):
        same(read("unreadable", default="none"), "none", "a miss by ignore_exc")
    for read in (lenient.gets, lenient.gats):
        same(read("unreadable", default="none", cas_default=0), ("none", 0), "a miss with a cas")
    same(lenient.get_many(keys), {"readable": "text"}, "one of them is a miss")
    same(list(lenient.gets_many(keys)), ["readable"], "one of them is a miss with a cas")
    c.get_or_load("unreadable", load, markers=Markers("remote:", 60))
    same(loads, [(), (), ("master",)], "the master has every write")
    if LEASES:
        # What was deleted before is given out, and cannot be read, either.
        raw.set("unreadable", b"no pickle", flags=1)
        raw.delete("unreadable")
        got = [c.get_or_load("unreadable", load) for _ in range(2)]
        same(got, [{"row": 4}, {"row": 4}], "a deleted value")


def loads_without_a_serde():
    """What is loaded is what later callers read."""
    c = Client(ADDRESS, default_noreply=False)
    for loaded, want in ((b"row", b"row"), (bytearray(b"row"), b"row"), ("row", b"row")):
        c.delete("raw")
        got = [c.get_or_load("raw", lambda: loaded, takes_stale=False) for _ in range(2)]
        same(got, [want, want], f"{loaded!r} without a serde")
    for loaded in ({"id": 1}, None, 17):
        c.delete("raw")
        call = lambda: c.get_or_load("raw", lambda: loaded, takes_stale=False)
        said = refused(TypeError, f"{loaded!r} without a serde", call)
        same("serde" in said, True, said)
        same(c.get("raw"), None, "nothing is stored")


def markers():
    c = Client(ADDRESS, serde=TypedSerde())
    region = Markers("remote:", 60)
    same(c.get_or_load("unmarked", str.upper, markers=region), "LOCAL", "no marker")
    asked = []
    written = c.write_marked("m", lambda marker: asked.append(bytes(marker)) or "done", region)
    same((written, asked), (("done", True, True), [b"remote:m"]), "a marked write")
    same(c.get_or_load("m", str.upper, markers=region), "MASTER", "a marker stands")


def failures():
    dead = Client("127.0.0.1:1", timeout=0.2, connect_timeout=0.2)
    refused(CacheError, "a get of a dead server", dead.get, "k")
    same(dead.get_or_load("k", lambda: b"row"), b"row", "get_or_load beside a dead cache")
    same(dead.look_aside_totals()["unfilled"], 1, "nothing is filled then")
    lenient = Client("127.0.0.1:1", ignore_exc=True, default_noreply=False)
    same(lenient.get("k", "default"), "default", "a failure is a miss")
    same(lenient.get_many(["k", "l"]), {}, "failures are misses")
    same(lenient.set("k", b"v"), False, "a failed set")
    same(lenient.set_many({"k": b"v"}), ["k"], "a failed set_many")
    same(lenient.flush_all(), False, "a failed flush_all")
    refused(IllegalInputError, "no servers", Client, [])
    refused(IllegalInputError, "a broken configuration", Client, config="{")
    refused(TypeError, "an unknown setting", Client, ADDRESS, colour="red")


def routes():
    config = """{"pools": {"A": {"servers": ["%s"]}}, "route": {"type": "ModifyKeyRoute",
        "ensure_key_prefix": "routed:", "target": "PoolRoute|A"}}""" % ADDRESS
    c = Client(config=config, default_noreply=False)
    c.set("k", b"v")
    same(Client(ADDRESS).get("routed:k"), b"v", "a route of the configuration")
    c.replace_routes(servers=[ADDRESS])
    same((c.get("k"), c.get("routed:k")), (None, b"v"), "routes replaced")
    same(c.servers()[-1][:2], (ADDRESS, "up"), "the state of the server")


def paths():
    """Keys that begin as if with a routing prefix, next to the key that would be left of them."""
    keys = ["k", "/././k", "/*/*/k", "/shop/shoes/17"]
    c = Client(ADDRESS, default_noreply=False)
    same(c.set_many({key: key for key in keys}), [], "set_many of paths")
    same(c.get_many(keys), {key: key.encode() for key in keys}, "get_many of paths")
    prefixed = Client(ADDRESS, key_prefix="/shop/shoes/")
    same(prefixed.get("17"), b"/shop/shoes/17", "a path as the key's prefix")
    for key in keys:
        same(c.delete(key), True, f"delete of {key}")
        same(c.get_or_load(key, lambda: f"loaded {key}"), f"loaded {key}".encode(), "get_or_load")
        same(c.get(key), f"loaded {key}".encode(), f"{key} is cached")
    config = '{"pools": {"A": {"servers": ["%s"]}}, "route": "PoolRoute|A"}' % ADDRESS
    same(Client(config=config).get("/././k"), b"loaded k", "a configuration has routing prefixes")


def forks():
    c = Client(ADDRESS, default_noreply=False)
    c.set("fork", b"parent")
    child = os.fork()
    if child == 0:
        ok = c.get("fork") == b"parent" and c.set("fork", b"child")
        os._exit(0 if ok else 1)
    same(os.waitpid(child, 0)[1], 0, "the client in a forked process")
    same(c.get("fork"), b"child", "the client in the parent")


def threads():
    c = Client(ADDRESS, default_noreply=False)
    wrong = []

    def work(number):
        for turn in range(200):
            key = f"t{number}.{turn}"
            c.set(key, key)
            if c.get(key) != key.encode():
                wrong.append(key)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    same(wrong, [], "values of other threads")
    same(c.servers()[0][6], 1, "connections of 8 threads")


class Interrupted(Exception):
    pass


def signals():
    """A handler of a signal runs while a call waits, and ends it by an exception."""

    def interrupt(*_):
        raise Interrupted

    signal.signal(signal.SIGUSR1, interrupt)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        c = Client("%s:%d" % silent.getsockname(), timeout=3600)
        for what, call in {
            "a get": lambda: c.get("k"),
            "get_or_load": lambda: c.get_or_load("k", lambda: b"row"),
            # It waits for the silent server, too.
            "close": c.close,
        }.items():
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            refused(Interrupted, what, call)


def interrupted_loads():
    """What ends one thread's load, and is no failure of it, ends no other's."""
    c, begun, outcomes = Client(ADDRESS, timeout=60), threading.Event(), []
    c.delete("interrupted", noreply=False)

    def load():
        begun.set()
        # The other misses the key, and waits for this load.
        while c.servers()[0][3] < 3:
            time.sleep(0.001)
        time.sleep(0.05)
        raise KeyboardInterrupt

    def other():
        begun.wait()
        outcomes.append(c.get_or_load("interrupted", lambda: b"row", takes_stale=False))

    thread = threading.Thread(target=other)
    thread.start()
    refused(KeyboardInterrupt, "its own caller", c.get_or_load, "interrupted", load)
    thread.join()
    same(outcomes, [b"row"], "another thread's load")


@contextlib.contextmanager
def running_source(port=0):
    """A source that names the server: a thread of this program. Its port."""
    host, server = ADDRESS.split(":")
    nodes = f"1\n{host}|{host}|{server}".encode()
    reply = b"CONFIG cluster 0 %d\r\n%s\r\nEND\r\n" % (len(nodes), nodes)

    def serve(listening):
        while True:
            try:
                stream = listening.accept()[0]
            except OSError:
                return
            with stream:
                while stream.recv(4096):
                    stream.sendall(reply)

    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def source():
    """A source of servers may be a thread of the same program."""
    with running_source() as port:
        same(Client(f"elasticache:127.0.0.1:{port}").servers()[0][0], ADDRESS, "the source's server")


def lost_source():
    """A client that begins anew while its source is away has a cache that fails."""
    region = Markers("remote:", 60)

    async def loaded(*_):
        return b"row"

    async def placed():
        return "done", Position("mariadb-gtid:0-1-1")

    with running_source() as port:
        settings = {"servers": f"elasticache:127.0.0.1:{port}", "discovery_period": 3600, "timeout": 60}
        strict, aio = Client(**settings), AsyncClient(ignore_exc=True, **settings)
        lenient = Client(ignore_exc=True, default_noreply=False, **settings)
        lenient.set("lost", b"v")
    for client in (strict, lenient, aio._client):
        client.close()
    for _ in range(2):
        said = refused(CacheError, "a get without a source", strict.get, "lost")
        same(str(port) in said, True, said)
    refused(IllegalInputError, "a bad key", strict.get_or_load, "", lambda: b"row")
    same(lenient.get("lost", "default"), "default", "a miss")
    same(lenient.get_many(["lost"]), {}, "misses")
    same((lenient.set("lost", b"v"), lenient.delete("lost")), (False, False), "a failed store")
    for client in (strict, lenient):
        same(client.get_or_load("lost", lambda: "row"), b"row", "a load")
        same(client.get_or_load("lost", str.encode, markers=region), b"master", "a load there")
        same(tuple(client.write_marked("lost", bytes, region)), (b"remote:lost", False, False), "a write")
        written = client.write_marked_at("lost", lambda: ("done", None), region)
        same(tuple(written), ("done", False, False), "a write with a place")

    async def awaited():
        same(await aio.get("lost", "default"), "default", "a miss by asyncio")
        same(await aio.get_or_load("lost", loaded), b"row", "a load by asyncio")
        written = await aio.write_marked("lost", loaded, region)
        same(tuple(written), (b"row", False, False), "a write by asyncio")
        written = await aio.write_marked_at("lost", placed, region)
        same(tuple(written), ("done", False, False), "a write with a place by asyncio")

    asyncio.run(awaited())
    with running_source(port):
        end = time.monotonic() + 60
        while lenient.get("lost") is None and time.monotonic() < end:
            time.sleep(0.01)
        same(lenient.get("lost"), b"v", "the source is back")


commands()
values()
look_aside()
unreadable()
loads_without_a_serde()
markers()
failures()
routes()
if DIRECT:
    paths()
forks()
threads()
signals()
interrupted_loads()
source()
lost_source()
passed("holdall for Python")
