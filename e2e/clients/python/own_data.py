"""Readers get only their own data, whatever the server refuses: pylibmc, pymemcache, bmemcached.

Clients match replies to requests by order, so an extra reply would return another key's value. A
library may give up a server for seconds after a refusal, so a reader retries until it has a value.
"""

import time

import common
from common import HOST, PORT, done

USERS = ["alice", "bob", "carol", "dave"]


def own(got, name, what):
    """Fails if a reader of `name`'s data got other data."""
    common.CHECKS += 1
    if isinstance(got, bytes):
        got = got.decode()
    if got not in (None, False, f"data-{name}"):
        raise SystemExit(f"{what}: asked for {name}, got {got!r:.80}")


def attempt(command, *words):
    """Returns the result of the command, or None if the server refuses it."""
    try:
        return command(*words)
    except Exception:  # Each library has classes of its own.
        return None


def read(client, name, what):
    """Reads until there is a value, which must belong to this user."""
    end = time.monotonic() + 20
    while (got := attempt(client.get, f"user:{name}")) in (None, False):
        if time.monotonic() > end:
            raise SystemExit(f"{what}: {name} reads nothing")
        time.sleep(0.1)
    own(got, name, what)


def check(client, get_many, kind):
    def read_all(what):
        for name in USERS:
            read(client, name, f"{kind} {what}")

    for name in USERS:
        if not attempt(client.set, f"user:{name}", f"data-{name}"):
            raise SystemExit(f"{kind}: user:{name} could not be stored")
    attempt(client.get, "large")
    read_all("after a large value")
    many = attempt(get_many, ["user:alice", "large", "user:bob"]) or {}
    for name in ("alice", "bob"):
        own(many.get(f"user:{name}"), name, f"{kind} many keys")
    read_all("after many keys with a refused one")
    attempt(client.set, "user:alice-photo", "x" * (2 << 20))
    read_all("after a value that is too large")
    attempt(client.incr, "user:alice", 1)
    read_all("after a count of what is no number")


def main():
    import bmemcached
    import pylibmc
    from pymemcache.client.base import Client

    for binary in (False, True):
        behaviors = {"tcp_nodelay": True, "retry_timeout": 1, "dead_timeout": 1}
        client = pylibmc.Client([f"{HOST}:{PORT}"], binary=binary, behaviors=behaviors)
        check(client, client.get_multi, f"pylibmc, binary {binary}")
    client = Client((HOST, PORT), timeout=20)
    check(client, client.get_many, "pymemcache")
    client = bmemcached.Client([f"{HOST}:{PORT}"], socket_timeout=20)
    check(client, client.get_multi, "bmemcached")
    done("python")


main()
