"""Sends requests until stdin ends, like an application whose servers are restarted.

pymemcache's RetryingClient retries over a new connection. pylibmc reports a closed connection to
its caller, which retries once, after disconnect_all(): otherwise libmemcached would not use the
server for a second. Any other error, or a wrong reply, ends the program.
"""

import os
import sys
import threading
import traceback

from common import HOST, PORT

LIBRARY = sys.argv[2]
USERS = 2
VALUE = b"v" * 20_000
# A line on stdout stands for this many requests.
LINE = 50

is_over = threading.Event()
lock = threading.Lock()
counts = {"requests": 0, "repeated": 0}


def count(name):
    with lock:
        counts[name] += 1
        if name == "requests" and counts[name] % LINE == 0:
            print(LINE, flush=True)


def pymemcache():
    """Returns get and set of a new client."""
    from pymemcache.client.base import Client
    from pymemcache.client.retrying import RetryingClient
    from pymemcache.exceptions import MemcacheUnexpectedCloseError

    class Counted(Client):
        """Counts connections, including the first, which is no retry."""

        def _connect(self):
            super()._connect()
            count("repeated")

    closed = (MemcacheUnexpectedCloseError, ConnectionResetError, BrokenPipeError)
    client = Counted((HOST, PORT), timeout=20, connect_timeout=20, no_delay=True)
    client = RetryingClient(client, attempts=2, retry_for=closed)
    return client.get, lambda key, value: client.set(key, value, noreply=False)


def pylibmc():
    """The same over libmemcached."""
    import pylibmc

    # libmemcached treats a reply that takes longer than five seconds as a miss.
    behaviors = {"tcp_nodelay": True, "connect_timeout": 20_000, "_poll_timeout": 20_000}
    client = pylibmc.Client([f"{HOST}:{PORT}"], behaviors=behaviors)

    def again(call):
        def attempt(*words):
            try:
                return call(*words)
            except (pylibmc.ConnectionError, pylibmc.ReadError, pylibmc.WriteError):
                count("repeated")
                client.disconnect_all()
                return call(*words)

        return attempt

    return again(client.get), again(client.set)


def use():
    get, put = {"pymemcache": pymemcache, "pylibmc": pylibmc}[LIBRARY]()
    while not is_over.is_set():
        if (got := get("k")) != VALUE:
            raise ValueError(f"get: {got!r:.80}")
        count("requests")
        if not put(LIBRARY, VALUE):
            raise ValueError("set: not stored")
        count("requests")


def user():
    try:
        use()
    except Exception:
        traceback.print_exc()
        os._exit(1)


users = [threading.Thread(target=user) for _ in range(USERS)]
for thread in users:
    thread.start()
sys.stdin.read()
is_over.set()
for thread in users:
    thread.join()
print(f"{LIBRARY}: {counts['requests']} requests, {counts['repeated']} repeated")
