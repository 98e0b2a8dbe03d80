"""pymemcache over TLS: the server's name is checked, values of every size come back."""

import ssl
import sys

from pymemcache.client.base import Client, PooledClient

host, port = sys.argv[1].rsplit(":", 1)
context = ssl.create_default_context(cafile=sys.argv[2])
checks = 0


def same(got, want, what):
    global checks
    if got != want:
        raise SystemExit(f"{what}: {got!r}, not {want!r}")
    checks += 1


c = Client(("localhost", int(port)), timeout=20, no_delay=True, tls_context=context)
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
pool = PooledClient(("localhost", int(port)), tls_context=context)
same(pool.get("a"), b"one", "a second connection")

untrusting = Client(("localhost", int(port)), tls_context=ssl.create_default_context())
try:
    untrusting.get("a")
    raise SystemExit("a certificate of an unknown issuer was accepted")
except ssl.SSLCertVerificationError:
    checks += 1
print(f"{checks} checks passed")
