"""Rights by prefix, with python-binary-memcached after SASL and with pymemcache after a token login: user app may only read
and write keys under app:."""

import bmemcached
from bmemcached.exceptions import MemcachedException
from common import HOST, PORT, done, fails, same
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheError

address = f"{HOST}:{PORT}"

binary = bmemcached.Client((address,), "app", "secret")
same(binary.set("app:b", "value"), True, "bmemcached sets its key")
same(binary.get("app:b"), "value", "bmemcached gets its key")
fails(lambda: binary.get("other"), MemcachedException, "bmemcached gets another's key")
fails(lambda: binary.set("other", "x"), MemcachedException, "bmemcached sets another's key")
same(binary.get("app:b"), "value", "bmemcached is in step behind a refusal")
same(binary.set("app:c", "another"), True, "bmemcached sets a second key")
both = {"app:b": "value", "app:c": "another"}
same(binary.get_multi(["app:b", "other", "app:c"]), both, "a multiget with another's key")
for key, value in both.items():
    same(binary.get(key), value, "bmemcached is in step behind a multiget")
fails(lambda: bmemcached.Client((address,), "app", "wrong").get("app:b"), MemcachedException, "a wrong password")

text = Client(address)
fails(lambda: text.get("app:b"), MemcacheError, "pymemcache gets without a login")
text = Client(address)
same(text.raw_command(b"set login 0 0 10\r\napp secret", b"\r\n"), b"STORED", "pymemcache logs in")
same(text.get("app:b"), b"value", "pymemcache gets what bmemcached has set")
same(text.set("app:t", "x", noreply=False), True, "pymemcache sets its key")
fails(lambda: text.get_many(["app:t", "other"]), MemcacheClientError, "pymemcache gets another's key")
text = Client(address)
fails(lambda: text.raw_command(b"set login 0 0 9\r\napp wrong", b"\r\n"), MemcacheClientError, "a wrong password")
done("rights")
