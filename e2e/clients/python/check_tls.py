"""pymemcache over TLS: it checks the server's name, and values of every size come back."""

import ssl
import sys

from common import PORT, done, fails, same
from pymemcache.client.base import Client, PooledClient

context = ssl.create_default_context(cafile=sys.argv[2])

c = Client(("localhost", PORT), timeout=20, no_delay=True, tls_context=context)
same(c.set("a", b"one", noreply=False), True, "set")
same(c.get("a"), b"one", "get")
for size in (0, 1, 1000, 16384, 100_000, 900_000):
    value = bytes(i % 251 for i in range(size))
    same(c.set("v", value, noreply=False), True, f"set of {size}")
    same(c.get("v") == value, True, f"get of {size}")
many = {f"k{i}": b"x" * i for i in range(500)}
same(c.set_many(many, noreply=False), [], "set_many")
same(c.get_many(many), many, "get_many")
c.close()
pool = PooledClient(("localhost", PORT), tls_context=context)
same(pool.get("a"), b"one", "a second connection")

untrusting = Client(("localhost", PORT), tls_context=ssl.create_default_context())
what = "a certificate of an unknown issuer"
fails(lambda: untrusting.get("a"), ssl.SSLCertVerificationError, what)
done("tls")
