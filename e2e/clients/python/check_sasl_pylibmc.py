"""pylibmc, with libmemcached and libsasl, logs in with the strongest mechanism that it knows. This is Debian's build: the one
from the package index lacks libsasl's modules."""

import pylibmc
from common import HOST, PORT, done, fails, same

for user in ("plain", "hashed"):
    client = pylibmc.Client([f"{HOST}:{PORT}"], binary=True, username=user, password="secret")
    same(client.set(f"p-{user}", "value"), True, f"{user} sets")
    same(client.get(f"p-{user}"), "value", f"{user} gets")
    client = pylibmc.Client([f"{HOST}:{PORT}"], binary=True, username=user, password="wrong")
    fails(lambda: client.set(f"p-{user}", "other"), pylibmc.Error, f"{user} with a wrong password")
done("sasl")
