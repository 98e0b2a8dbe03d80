"""The client, after pymemcache's: the same names, arguments and answers."""

import atexit
import os
import threading
import weakref
from collections import namedtuple

from ._native import CacheError, IllegalInputError, Native
from .serde import RawSerde

#: Remote markers of a region whose database is a replica: keys that begin with `prefix`, which routes send to the regional pool, and
#: which stand for `ttl` seconds if nobody deletes them.
Markers = namedtuple("Markers", ["prefix", "ttl"])

#: What `Client.write_marked` returns: the result of the write, whether the marker stands, and whether the key was deleted.
Written = namedtuple("Written", ["result", "marked", "deleted"])

_SETTINGS = (
    "config",
    "config_file",
    "hash",
    "default_route",
    "timeout",
    "connect_timeout",
    "deadline",
    "threads",
    "max_value_bytes",
    "compress",
    "compress_threshold",
)

_clients = weakref.WeakSet()
# Clients of the parent process, whose threads a fork does not copy. They are kept: ending them would wait for those threads.
_parents = []


def _after_fork():
    for client in list(_clients):
        _parents.append(client._native)
        client._native = None
        client._lock = threading.Lock()


def _at_exit():
    for client in list(_clients):
        client.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def _address(server):
    if isinstance(server, (tuple, list)):
        host, port = server
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"unix:{server}" if server.startswith("/") else server


class Client:
    """A client of one or many servers, for all threads of a program; their requests share connections.

    `servers` is an address, or a list of them: "host:port", ("host", port), "/path/of/a/socket". With `config` (text) or `config_file`
    (mcrouter's JSON or twemproxy's YAML) requests take the configuration's routes instead.

    As in pymemcache, `set` and whatever else has `noreply` does not wait for the server's answer unless told to
    (`noreply=False`, or `default_noreply=False` for all): it returns True, and what becomes of it is not known. Unlike there the
    answer is read, so that an error cannot be taken for another request's answer. Requests of one client leave in the order of
    the calls.

    With `ignore_exc` a failure of the cache is a miss, and a store that failed is False. `get_or_load` needs no such thing: it never
    fails because of the cache, and stores nothing after a failure.

    `serde` has pymemcache's `serialize(key, value) -> (bytes, flags)` and `deserialize(key, bytes, flags)`. `compress` ("zstd" or
    "lz4") packs values of `compress_threshold` bytes and more; values packed in either way are always read.

    Times to live (`expire`) are memcached's: 0 is for ever, up to 30 days are seconds, more is Unix time.
    """

    def __init__(
        self,
        servers=None,
        *,
        serde=None,
        key_prefix=b"",
        default_noreply=True,
        ignore_exc=False,
        allow_unicode_keys=False,
        **settings,
    ):
        unknown = [name for name in settings if name not in _SETTINGS]
        if unknown:
            raise TypeError(f"no setting {unknown[0]!r}")
        self._settings = {name: value for name, value in settings.items() if value is not None}
        if servers is not None:
            many = isinstance(servers, list)
            self._settings["servers"] = [_address(one) for one in (servers if many else [servers])]
        self.serde = serde or RawSerde()
        self.key_prefix = key_prefix.encode("ascii") if isinstance(key_prefix, str) else key_prefix
        self.default_noreply = default_noreply
        self.ignore_exc = ignore_exc
        self.allow_unicode_keys = allow_unicode_keys
        self._lock = threading.Lock()
        self._native = Native(self._settings)
        _clients.add(self)

    def _core(self):
        native = self._native
        if native is None:
            with self._lock:
                if self._native is None:
                    self._native = Native(self._settings)
                native = self._native
        return native

    def _key(self, key):
        if isinstance(key, str):
            try:
                key = key.encode("utf-8" if self.allow_unicode_keys else "ascii")
            except UnicodeEncodeError as error:
                raise IllegalInputError(f"a key is not ASCII: {key!r}") from error
        return self.key_prefix + bytes(key)

    def _pack(self, key, value, flags=None):
        data, own = self.serde.serialize(key, value)
        if not isinstance(data, bytes):
            data = str(data).encode("ascii")
        return data, own if flags is None else flags

    def _waits(self, noreply):
        return not (self.default_noreply if noreply is None else noreply)

    def _try(self, failed, call, *arguments):
        try:
            return call(*arguments)
        except IllegalInputError:
            raise
        except CacheError:
            if self.ignore_exc:
                return failed
            raise

    def _fetched(self, key, found, default):
        return default if found is None else self.serde.deserialize(key, found[0], found[1])

    # Retrieval

    def get(self, key, default=None):
        """The value of a key, or `default` when there is none."""
        return self._fetched(key, self._try(None, self._core().get, self._key(key)), default)

    def gets(self, key, default=None, cas_default=None):
        """The value and its cas unique."""
        found = self._try(None, self._core().gets, self._key(key))
        return (self._fetched(key, found, default), cas_default if found is None else found[2])

    def gat(self, key, expire=0, default=None):
        """The value, whose time to live begins anew."""
        found = self._try(None, self._core().gat, self._key(key), expire)
        return self._fetched(key, found, default)

    def gats(self, key, expire=0, default=None, cas_default=None):
        """As `gat`, with the cas unique."""
        found = self._try(None, self._core().gats, self._key(key), expire)
        return (self._fetched(key, found, default), cas_default if found is None else found[2])

    def _get_many(self, keys, with_cas):
        keys = list(keys)
        asked = [self._key(key) for key in keys]
        found, failed = self._try(([], None), self._core().get_many, asked, with_cas)
        if failed is not None and not self.ignore_exc:
            raise failed
        return ((key, one) for key, one in zip(keys, found) if one is not None)

    def get_many(self, keys):
        """The values that there are, by key. Each server is asked once."""
        return {key: self._fetched(key, one, None) for key, one in self._get_many(keys, False)}

    def gets_many(self, keys):
        """As `get_many`, with cas uniques."""
        found = self._get_many(keys, True)
        return {key: (self._fetched(key, one, None), one[2]) for key, one in found}

    # Stores

    def _store(self, command, key, value, expire, noreply, flags):
        data, flags = self._pack(key, value, flags)
        noreply = not self._waits(noreply)
        store = self._core().store
        return self._try(False, store, command, self._key(key), data, flags, expire, noreply)

    def set(self, key, value, expire=0, noreply=None, flags=None):
        return self._store("set", key, value, expire, noreply, flags)

    def add(self, key, value, expire=0, noreply=None, flags=None):
        return self._store("add", key, value, expire, noreply, flags)

    def replace(self, key, value, expire=0, noreply=None, flags=None):
        return self._store("replace", key, value, expire, noreply, flags)

    def append(self, key, value, expire=0, noreply=None, flags=None):
        return self._store("append", key, value, expire, noreply, flags)

    def prepend(self, key, value, expire=0, noreply=None, flags=None):
        return self._store("prepend", key, value, expire, noreply, flags)

    def set_many(self, values, expire=0, noreply=None, flags=None):
        """Stores a dict; the keys that were not stored."""
        keys = list(values)
        items = [(self._key(key), *self._pack(key, value, flags)) for key, value in values.items()]
        everything = range(len(keys))
        noreply = not self._waits(noreply)
        places = self._try(everything, self._core().set_many, items, expire, noreply)
        return [keys[place] for place in places]

    def cas(self, key, value, cas, expire=0, noreply=False, flags=None):
        """True: stored; False: changed since `gets`; None: there is no such item. It always waits."""
        data, flags = self._pack(key, value, flags)
        try:
            cas = int(cas)
        except ValueError as error:
            raise IllegalInputError(f"a cas unique is a number, not {cas!r}") from error
        return self._try(False, self._core().cas, self._key(key), data, flags, expire, cas)

    # The rest

    def delete(self, key, noreply=None, hold_off=0):
        """True when it was there, or nobody waits. `hold_off`: seconds for which `add` is refused (holdall's servers)."""
        noreply = not self._waits(noreply)
        return self._try(False, self._core().delete_many, [self._key(key)], hold_off, noreply)

    def delete_many(self, keys, noreply=None):
        """True, as in pymemcache: it does not tell which keys there were."""
        asked = [self._key(key) for key in keys]
        deleted = self._try(None, self._core().delete_many, asked, 0, not self._waits(noreply))
        return deleted is not None

    def incr(self, key, value, noreply=False):
        """The new number, or None when there is no such item."""
        return self._try(None, self._core().count, self._key(key), value, False, bool(noreply))

    def decr(self, key, value, noreply=False):
        """The new number, 0 at the least, or None when there is no such item."""
        return self._try(None, self._core().count, self._key(key), value, True, bool(noreply))

    def touch(self, key, expire=0, noreply=None):
        """Begins the time to live anew; False when there is no such item."""
        noreply = not self._waits(noreply)
        return self._try(False, self._core().touch, self._key(key), expire, noreply)

    def flush_all(self, delay=0, noreply=None):
        """Drops everything on every server; it always waits."""
        self._try(None, self._core().flush_all, delay)
        return True

    def version(self):
        """The version of one of the servers; fails unless all of them answer."""
        return self._core().version().encode("ascii")

    def close(self):
        """Waits until what was asked has been answered. A later call begins anew."""
        with self._lock:
            native, self._native = self._native, None
        if native is not None:
            native.close()

    quit = close
    disconnect_all = close

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __getitem__(self, key):
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key, value):
        self.set(key, value, noreply=True)

    def __delitem__(self, key):
        self.delete(key, noreply=True)

    get_multi = get_many
    set_multi = set_many
    delete_multi = delete_many

    # Beyond pymemcache

    def get_or_load(self, key, load, expire=0, *, takes_stale=True, markers=None):
        """The value of a key, from the cache or else from `load()`, which is called once at the most.

        One caller of all clients loads a missing key; the others wait a short time, or get the value that was deleted before
        (`takes_stale`). Nothing is stored after a failure of the cache or of `load`, nor over a delete that came in between.
        With `markers`, `load` is told "local" or "master".
        """
        fresh = []

        def packed(source):
            fresh.append(load(source) if markers is not None else load())
            return self._pack(key, fresh[0])

        settings = None if markers is None else (_bytes(markers.prefix), markers.ttl)
        core = self._core().get_or_load
        data, flags = core(self._key(key), packed, expire, takes_stale, settings)
        return fresh[0] if fresh else self.serde.deserialize(key, data, flags)

    def write_marked(self, key, write, markers):
        """A write in a region whose database is a replica: sets the marker, calls `write(marker)`, deletes the key.

        `write` writes to the master, and has both keys, this one and `marker`, invalidated by the replication stream.
        """
        core = self._core().write_marked
        return Written(*core(self._key(key), write, (_bytes(markers.prefix), markers.ttl)))

    def replace_routes(self, *, config=None, config_file=None, servers=None):
        """Takes another configuration, or other servers; requests that run end in the old one."""
        given = {"config": config, "config_file": config_file}
        if servers is not None:
            given["servers"] = [_address(server) for server in servers]
        given = {name: value for name, value in given.items() if value is not None}
        rest = {name: self._settings[name] for name in self._settings if name not in _ROUTES}
        self._core().replace_routes({**rest, **given})
        self._settings = {**rest, **given}

    def servers(self):
        """How each server stands: address, state, requests asked, answered, failed, timed out, and connections made."""
        return self._core().servers()

    def stats(self):
        """What this client has seen of each server, by its address: state, asked, answered, failed, timeouts, connects."""
        names = ("state", "asked", "answered", "failed", "timeouts", "connects")
        return {row[0]: dict(zip(names, row[1:])) for row in self._core().servers()}

    def look_aside_totals(self):
        """How `get_or_load` went: hits, stale, waits, loads, fills, refused, unfilled."""
        return self._core().look_aside_totals()


_ROUTES = ("config", "config_file", "servers")


def _bytes(text):
    return text.encode("ascii") if isinstance(text, str) else bytes(text)
