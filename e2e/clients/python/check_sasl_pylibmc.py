"""pylibmc, and with it libmemcached and libsasl, log in by the strongest mechanism that they know. Debian's build of it: that
from the package index lacks libsasl's modules."""

import sys

import pylibmc

checks = 0
for user in ("plain", "hashed"):
    client = pylibmc.Client([sys.argv[1]], binary=True, username=user, password="secret")
    if not client.set(f"p-{user}", "value") or client.get(f"p-{user}") != "value":
        raise SystemExit(f"{user} was not served")
    checks += 1
    client = pylibmc.Client([sys.argv[1]], binary=True, username=user, password="wrong")
    try:
        client.set(f"p-{user}", "other")
        raise SystemExit(f"{user} was let in by a wrong password")
    except pylibmc.Error:
        checks += 1
print(f"{checks} checks passed")
