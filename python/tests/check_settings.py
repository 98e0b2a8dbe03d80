"""Settings of the Python client against live servers: `check_settings.py WHAT ARGUMENT..`."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import time

from checking import passed, refused, same
from holdall import TLS, AsyncClient, CacheError, Client, IllegalInputError


def until(is_so, what):
    """Fails if it is never so."""
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within a minute")
        time.sleep(0.01)


def works(client, what):
    same(client.set("k", what, noreply=False), True, what)
    same(client.get("k"), what.encode(), what)


def tls_and_logins(address, ca, cert, key, foreign_cert, foreign_key):
    """A server that wants TLS, a certificate and a login."""
    login = {"username": "me", "password": "secret"}
    shown = TLS(ca_cert=ca, cert=cert, key=key)
    # A handshake and a login take long where other tests fill the processors.
    patient = {"timeout": 30, "connect_timeout": 30}
    works(Client(address, tls=shown, **login, **patient), "all that is wanted")
    unverified = TLS(cert=cert, key=key, verify=False)
    works(Client(address, tls=unverified, **login, **patient), "nothing verified")
    of_dict = {"ca_cert": ca, "cert": cert, "key": key}
    works(Client([address], tls=of_dict, **login, **patient), "a dict")
    by_django(address, {"tls": of_dict, **login})
    named = {**of_dict, "server_name": "localhost"}
    works(Client(address, tls=named, **login, **patient), "a certificate's other name")
    works(Client(address, tls=shown, window=4, **login, **patient), "a fixed window")

    async def awaited():
        async with AsyncClient(address, tls=shown, **login, **patient) as client:
            same(await client.get("k"), b"a fixed window", "by asyncio")

    asyncio.run(awaited())
    for what, settings in {
        "no certificate": {"tls": TLS(ca_cert=ca), **login},
        "another's certificate": {"tls": TLS(ca, foreign_cert, foreign_key), **login},
        "the system's authorities": {"tls": True, **login},
        "another's name": {"tls": TLS(ca, cert, key, server_name="elsewhere"), **login},
        "no login": {"tls": shown},
        "a wrong password": {"tls": shown, "username": "me", "password": "guess"},
        "no TLS": login,
    }.items():
        refused(CacheError, what, Client(address, timeout=5, **settings).get, "k")


def wrong():
    """What makes no sense is said when the client is made."""
    for error, word, settings in [
        (TypeError, "TLS(", {"tls_context": ssl.create_default_context()}),
        (TypeError, "TLS(", {"tls": ssl.create_default_context()}),
        (TypeError, "colour", {"colour": "red"}),
        (TypeError, "threads", {"threads": 4}),
        (TypeError, "colour", {"tls": {"colour": "red"}}),
        (IllegalInputError, "go together", {"tls": TLS(cert="c")}),
        (IllegalInputError, "verify", {"tls": TLS(ca_cert="c", verify=False)}),
        (IllegalInputError, "/nowhere/ca", {"tls": TLS(ca_cert="/nowhere/ca")}),
        (IllegalInputError, "go together", {"username": "me"}),
        (IllegalInputError, "adaptive", {"window": "narrow"}),
        (IllegalInputError, "UDP", {"udp_gets": 1, "tls": True}),
        (IllegalInputError, "UDP", {"udp_gets": 1, "tls": {}}),
        (IllegalInputError, "/dev/null", {"keep_deletes": "/dev/null/spool"}),
        (TypeError, "", {"discovery_period": "often"}),
    ]:
        said = refused(error, repr(settings), Client, "127.0.0.1:1", **settings)
        same(word in said, True, f"{settings!r}: {said}")
    same("secret" in repr(Client("127.0.0.1:1", username="u", password="secret")), False, "repr")


@contextlib.contextmanager
def running(address, server):
    """A server while it is needed, and a client that it answers."""
    process = subprocess.Popen(server, stderr=subprocess.DEVNULL)
    try:
        plain = Client(address, ignore_exc=True, default_noreply=False, timeouts_until_tko=0)
        until(lambda: plain.set("d7", b"old"), "the server is there")
        yield plain
    finally:
        process.kill()
        process.wait()


def by_django(address, options):
    """Django's cache before the same server."""
    from django.conf import settings
    from django.core.cache import cache

    backend = "holdall.django.HoldallCache"
    default = {"BACKEND": backend, "LOCATION": address, "OPTIONS": options}
    settings.configure(CACHES={"default": default})
    cache.set("by-django", {"a": [1, 2]}, timeout=60)
    same(cache.get("by-django"), {"a": [1, 2]}, "by Django")
    same(Client(address, timeout=5, **options).get(":1:by-django") is None, False, "its key")


def udp(address, *server):
    """Gets by UDP, stores by TCP."""
    with running(address, server):
        by_udp(Client(address, udp_gets=30, window="adaptive", default_noreply=False))


def by_udp(client):
    for length in (1, 5000):
        client.set("k", b"x" * length)
        same(client.get("k"), b"x" * length, f"{length} bytes by UDP")
    same(client.get("absent"), None, "a miss by UDP")
    client.set_many({f"m{n}": str(n) for n in range(50)})
    found = {f"m{n}": str(n).encode() for n in range(50)}
    same(client.get_many([f"m{n}" for n in range(60)]), found, "many by UDP")


def deletes(folder, address, *server):
    """Deletes while the server is away are executed when it is back."""
    client = Client(address, keep_deletes=folder, connect_timeout=5, default_noreply=False)
    same(client.kept_deletes()["kept"], 0, "nothing is kept yet")
    same(client.delete_many([f"d{n}" for n in range(20)]), True, "deletes are taken")
    counts = client.kept_deletes()
    same((counts["kept"], counts["pending"]), (20, 20), "they are kept")
    same(len(os.listdir(folder)) > 0, True, "on the disk")
    client.close()
    same(Client(address).kept_deletes(), None, "nothing is kept unless it is wanted")
    with running(address, server) as plain:
        # Another client begins where the one before has ended.
        client = Client(address, keep_deletes=folder)
        until(lambda: client.kept_deletes()["pending"] == 0, "the deletes are executed")
        same(client.kept_deletes()["replayed"], 20, "all of them")
        same(plain.get("d7"), None, "what was deleted is gone")
        client.close()


def sources(source, folder, *addresses):
    """Servers that a source names."""
    client = Client(source, discovery_period=0.1, discovery_dir=folder, default_noreply=False)
    for n in range(40):
        client.set(f"k{n}", b"v")
    asked = {row[0]: row[2] for row in client.servers()}
    same(sorted(asked), sorted(addresses), "the servers of the source")
    same(all(count > 0 for count in asked.values()), True, "keys are on all of them")
    client.close()
    # What was found last is used when nobody answers.
    gone = source.rsplit(":", 1)[0] + ":1"
    refused(IllegalInputError, "a source that is away", Client, gone)


what, arguments = sys.argv[1], sys.argv[2:]
{"tls_and_logins": tls_and_logins, "wrong": wrong, "udp": udp, "deletes": deletes, "sources": sources}[what](*arguments)
passed(f"holdall for Python, {what}")
