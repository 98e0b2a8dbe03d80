"""Limits of namespaces, with unchanged pymemcache and python-binary-memcached: refusals are errors
of the call, and the connection stays in sync afterwards. The file gives quota: 1000 bytes, short: a
lifetime of a minute, and rate: two requests per second."""

import time

import bmemcached
from bmemcached.exceptions import MemcachedException
from common import HOST, PORT, done, fails, same
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheServerError

text = Client((HOST, PORT))
binary = bmemcached.Client((f"{HOST}:{PORT}",))

value = "x" * 800


def set_text():
    return text.set("quota:b", value, noreply=False)


def set_binary():
    return binary.set("quota:b", value, compress_level=0)


same(text.set("quota:a", value, noreply=False), True, "pymemcache fills the namespace")
fails(set_text, MemcacheServerError, "pymemcache's quota")
same(text.get("quota:a"), value.encode(), "pymemcache is in step behind a refusal")
text.set("quota:b", value, noreply=True)
found = text.get_many(["quota:a", "quota:b"])
same(found, {"quota:a": value.encode()}, "a refused set without a reply")
fails(set_binary, MemcachedException, "bmemcached's quota")
same(binary.get("quota:b"), None, "bmemcached is in step behind a refusal")
same(text.delete("quota:a", noreply=False), True, "a delete makes room")
same(set_binary(), True, "bmemcached sets what fits")

for expire in (0, 3600):
    same(text.set("short:a", b"1", expire=expire, noreply=False), True, "a set under max-ttl")
    left = int(text.raw_command(b"mg short:a t").removeprefix(b"HD t"))
    same(0 < left <= 60, True, f"{left} seconds left of 60, asked for {expire}")

# The requests use up a second's tokens long before it is over.
time.sleep(1.1)
refused = 0
for _ in range(50):
    try:
        same(text.get("rate:a"), None, "a get within the limit")
    except MemcacheServerError as error:
        same(str(error), "b'max-requests-per-second of the namespace reached'", "the refusal")
        refused += 1
same(refused > 0, True, "some of fifty gets are refused")
fails(lambda: [binary.get("rate:a") for _ in range(50)], MemcachedException, "bmemcached's gets")
found = binary.get_multi(["rate:a", "rate:b", "quota:b"])
same(found, {"quota:b": value}, "quiet gets over the limit miss")
same(text.delete("rate:a", noreply=False), False, "a delete is not refused")
same(text.get("other"), None, "another namespace is not limited")
done("namespaces")
