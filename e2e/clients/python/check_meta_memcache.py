"""Every command of meta-memcache (meta protocol), whose registry ships no tests."""

from meta_memcache import CacheClient, Key, ServerAddress, SetMode, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, RecachePolicy, StalePolicy

from common import HOST, PORT, done, same

pools = connection_pool_factory_builder(connection_timeout=10, recv_timeout=10)
c = CacheClient.cache_client_from_servers([ServerAddress(HOST, PORT)], pools)

same(c.get(Key("a")), None, "get of nothing")
same(c.set(Key("a"), "one", ttl=100), True, "set")
same(c.get(Key("a")), "one", "get")
for value in (b"bytes", 7, {"a": [1, 2]}, "\u00e9\u00df", "x" * 500_000):
    same(c.set(Key("kinds"), value, ttl=100), True, "set of a kind of value")
    same(c.get(Key("kinds")), value, "get of a kind of value")
same(c.set(Key("a"), "two", ttl=100, set_mode=SetMode.ADD), False, "add over a value")
same(c.set(Key("b"), "two", ttl=100, set_mode=SetMode.ADD), True, "add")
same(c.set(Key("a"), "1", ttl=100, set_mode=SetMode.REPLACE), True, "replace")
same(c.set(Key("none"), "1", ttl=100, set_mode=SetMode.REPLACE), False, "replace of nothing")
same(c.set(Key("a"), b"2", ttl=100, set_mode=SetMode.APPEND), True, "append")
same(c.set(Key("a"), b"0", ttl=100, set_mode=SetMode.PREPEND), True, "prepend")
same(c.set(Key("none"), b"2", ttl=100, set_mode=SetMode.APPEND), False, "append to nothing")
same(c.get(Key("a")), "012", "what was added")
many = c.multi_get([Key("a"), Key("b"), Key("none")])
same([many[Key(name)] for name in ("a", "b", "none")], ["012", "two", None], "multi_get")

value, unique = c.get_cas(Key("a"))
same(c.set(Key("a"), "new", ttl=100, cas_token=unique), True, "cas")
same(c.set(Key("a"), "newer", ttl=100, cas_token=unique), False, "cas with an old unique")

same(c.delta_initialize(Key("n"), 1, initial_value=10, initial_ttl=100), True, "a new count")
same(c.delta_and_get(Key("n"), 5), 15, "delta_and_get")
same(c.delta_and_get(Key("n"), -100), 0, "a count stops at zero")
same(c.delta(Key("none"), 1), False, "delta of nothing")
same(c.delta_initialize_and_get(Key("n"), 3, initial_value=1, initial_ttl=9), 3, "a count goes on")

same(c.touch(Key("a"), 100), True, "touch")
same(c.touch(Key("none"), 100), False, "touch of nothing")
same(c.get(Key("a"), touch_ttl=200), "new", "get and touch")

policy = LeasePolicy(ttl=30)
found, unique = c.get_or_lease_cas(Key("leased"), lease_policy=policy)
same((found, unique is not None), (None, True), "the first reader of a miss may fill it")
same(c.set(Key("leased"), "filled", ttl=100, cas_token=unique), True, "and does")
same(c.get_or_lease(Key("leased"), lease_policy=policy), "filled", "others read it")

same(c.invalidate(Key("leased"), stale_policy=None), True, "invalidate")
same(c.get(Key("leased")), None, "what was invalidated is gone")
fresh = RecachePolicy(ttl=1000)
same(c.set(Key("old"), "v", ttl=100), True, "set of what is to be renewed")
same(c.get(Key("old"), recache_policy=fresh), None, "one reader is told to renew it")
same(c.get(Key("old"), recache_policy=fresh), "v", "others read it meanwhile")
stale = StalePolicy(mark_stale_on_deletion_ttl=30, mark_stale_on_cas_mismatch=True)
same(c.invalidate(Key("old"), stale_policy=stale), True, "invalidate, and keep the stale value")
same(c.get(Key("old")), None, "one reader of a stale value renews it")
same(c.get(Key("old")), "v", "others read it meanwhile")

for key in (Key("a key with spaces"), Key("k" * 300), Key("\u00e4\u00df")):
    same(c.set(key, "odd", ttl=100), True, "set by an odd key")
    same(c.get(key), "odd", "get by an odd key")
same(c.delete(Key("a")), True, "delete")
same(c.delete(Key("a")), False, "delete of nothing")
same(c.set(Key("quiet"), "q", ttl=100, no_reply=True), True, "a set without a reply")
same(c.delete(Key("b"), no_reply=True), True, "a delete without a reply")
same((c.get(Key("quiet")), c.get(Key("b"))), ("q", None), "what came of them")
done("meta-memcache")
