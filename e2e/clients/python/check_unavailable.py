"""python-binary-memcached through a proxy, one of whose two servers is unavailable: each key has its own value or none."""

import bmemcached
from bmemcached.exceptions import MemcachedException
from common import HOST, PORT, done, same

KEYS = [f"k{number}" for number in range(40)]
c = bmemcached.Client((f"{HOST}:{PORT}",))


def attempt(call, *words):
    """The result, or None if the server is unavailable."""
    try:
        return call(*words)
    except MemcachedException:
        return None


stored = {key: f"value of {key}" for key in KEYS if attempt(c.set, key, f"value of {key}")}
same(0 < len(stored) < len(KEYS), True, "one server is available")
same(c.get_multi(KEYS), stored, "get_multi")
for key in KEYS:
    same(attempt(c.get, key), stored.get(key), f"get {key}")
same(c.get_multi(KEYS), stored, "get_multi again")
done("python-binary-memcached")
