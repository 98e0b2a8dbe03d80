"""Every command of python-binary-memcached (binary protocol, pure Python)."""

import bmemcached

from common import HOST, PORT, ROUTED, done, same

c = bmemcached.Client((f"{HOST}:{PORT}",))

same(c.flush_all(), True, "flush_all")
same(c.get("a"), None, "get of nothing")
same(c.set("a", "one"), True, "set")
same(c.get("a"), "one", "get")
same(c.add("a", "two"), False, "add over a value")
same(c.add("b", "two"), True, "add")
same(c.replace("a", "three"), True, "replace")
same(c.replace("none", "x"), False, "replace of nothing")
same(c.get_multi(["a", "b", "none"]), {"a": "three", "b": "two"}, "get_multi")
value, unique = c.gets("a")
same(value, "three", "gets")
same(c.cas("a", "four", unique), True, "cas")
same(c.cas("a", "five", unique), False, "cas with an old unique")
same(c.delete("a", cas=unique), False, "delete with an old unique")
same(c.incr("n", 5, default=7), 7, "incr creates")
same(c.incr("n", 5), 12, "incr")
same(c.decr("n", 20), 0, "decr stops at zero")
same(c.set_multi({f"m{i}": i for i in range(300)}), [], "set_multi")
same(c.get_multi([f"m{i}" for i in range(300)]), {f"m{i}": i for i in range(300)}, "get_multi of 300")
same(c.delete_multi([f"m{i}" for i in range(300)]), True, "delete_multi")
same(c.delete("a"), True, "delete")
same(c.get("a"), None, "get after delete")
large = "l" * 900_000
same(c.set("large", large, compress_level=0), True, "a large value")
same(c.get("large") == large, True, "the large value again")
same(c.set("o", {"x": [1, 2]}), True, "an object")
same(c.get("o"), {"x": [1, 2]}, "the object again")
if not ROUTED:  # A proxy has no items to tell of.
    same(any(b"curr_items" in key.encode() if isinstance(key, str) else b"curr_items" in key
             for stats in c.stats().values() for key in stats), True, "stats")
c.disconnect_all()
done("python-binary-memcached")
