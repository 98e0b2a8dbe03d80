"""Every command of pymemcache (classic text protocol, pure Python)."""

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

from common import HOST, PORT, ROUTED, done, same

c = Client((HOST, PORT), timeout=10, no_delay=True)

same(c.flush_all(noreply=False), True, "flush_all")
same(c.get("a"), None, "get of nothing")
same(c.set("a", b"one", noreply=False), True, "set")
same(c.get("a"), b"one", "get")
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
same(c.cas("a", b"new", unique, noreply=False), True, "cas")
same(c.cas("a", b"newer", unique, noreply=False), False, "cas with an old unique")
same(c.cas("none", b"x", unique, noreply=False), None, "cas of nothing")
same(sorted(c.gets_many(["a", "b"])), ["a", "b"], "gets_many")
same(c.set("n", b"10", noreply=False), True, "set a number")
same(c.incr("n", 5), 15, "incr")
same(c.decr("n", 100), 0, "decr stops at zero")
same(c.incr("none", 1), None, "incr of nothing")
try:
    c.incr("b", 1)
    raise SystemExit("incr of text was accepted")
except MemcacheClientError as error:
    same("non-numeric" in str(error), True, "the reason")
same(c.touch("a", 100, noreply=False), True, "touch")
same(c.touch("none", 100, noreply=False), False, "touch of nothing")
same(c.delete("a", noreply=False), True, "delete")
same(c.delete("a", noreply=False), False, "delete of nothing")
same(c.set_many({f"m{i}": str(i).encode() for i in range(500)}, noreply=False), [], "set_many")
same(len(c.get_many([f"m{i}" for i in range(500)])), 500, "get_many of 500")
same(c.delete_many([f"m{i}" for i in range(500)]), True, "delete_many")

for key in ("s1", "s2", "s3"):
    c.set(key, b"quiet", noreply=True)
c.delete("s1", noreply=True)
same(c.get_many(["s1", "s2", "s3"]), {"s2": b"quiet", "s3": b"quiet"}, "noreply commands")

large = bytes(range(256)) * 2000
same(c.set("large", large, noreply=False), True, "a large value")
same(c.get("large") == large, True, "the large value again")
try:
    c.set("large", b"x" * (2 << 20), noreply=False)
    raise SystemExit("a value of 2 MB was accepted")
except MemcacheServerError as error:
    same("too large" in str(error), True, "the reason")
same(c.get("large"), None, "a refused set leaves no old value")
try:
    c.get("k" * 251)
    raise SystemExit("a key of 251 bytes was sent")
except MemcacheClientError:
    pass

same(c.version().count(b"."), 2, "version")
if not ROUTED:
    same(c.stats()[b"curr_items"] > 0, True, "stats")
    same(b"maxbytes" in c.stats("settings"), True, "stats settings")
    same(c.cache_memlimit(64), True, "cache_memlimit")
same(c.raw_command("mn", "MN\r\n"), b"", "raw_command")
c.set("short", b"x", expire=-1, noreply=False)
same(c.get("short"), None, "an expired value")
c.quit()

pool = PooledClient((HOST, PORT), max_pool_size=4)
same(pool.set("p", b"x", noreply=False), True, "a pooled set")
same(pool.get("p"), b"x", "a pooled get")
ring = HashClient([(HOST, PORT)])
same(ring.set("h", b"x", noreply=False), True, "a hashed set")
same(ring.get_many(["h", "none"]), {"h": b"x"}, "a hashed get_many")
done("pymemcache")
