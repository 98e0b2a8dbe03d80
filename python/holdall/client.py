"""The client, after pymemcache's: the same names, arguments and answers."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, Union

from ._native import CacheError, IllegalInputError, Native, Position, Stepped
from ._native import after_fork, await_dropped, begin_exit
from .serde import RawSerde
from .settings import Address, address, native

Key = Union[str, bytes]
AnyKey = TypeVar("AnyKey", str, bytes)


class Serde(Protocol):
    """pymemcache's: values to bytes and client flags, and back."""

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]: ...

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any: ...


class Markers(NamedTuple):
    """Remote markers of a region whose database is a replica: keys that begin with `prefix`, which routes send to the regional pool,
    and which stand for `ttl` seconds if nobody deletes them."""

    prefix: Key
    ttl: int


class Waits(NamedTuple):
    """How `get_or_load` waits for another process that loads: the first and the longest pause between two questions, and all of them
    together, in seconds. After `total` the value is loaded in spite of the other, and not stored."""

    first: float = 0.002
    longest: float = 0.5
    total: float = 15.0


class Snapshot(NamedTuple):
    """A transaction in which values are loaded: when its snapshot was taken (`time.monotonic()`), and the seconds after which the
    invalidator repeats a delete (its `repeat_after_ms`). What is loaded is stored until then, and not where the key was deleted a
    short time ago."""

    began: float
    repeat_after: float

    def _native(self) -> tuple[float, float]:
        return time.monotonic() - self.began, self.repeat_after


class Written(NamedTuple):
    """What `write_marked` returns: the result of the write, whether the marker stands, and whether the key was deleted."""

    result: Any
    marked: bool
    deleted: bool


# The time between two attempts to make a native client anew.
_RETRY_SECS = 1.0

_MISSING = object()

_clients: weakref.WeakSet[Client] = weakref.WeakSet()
# Clients of the parent process, whose threads a fork does not copy. They are kept: ending them would wait for those threads.
_parents: list[Native | None] = []


def _after_fork() -> None:
    after_fork()
    for client in list(_clients):
        _parents.append(client._native)
        client._native = None
        client._lock = threading.Lock()


# From then on nobody closes clients, and what no caller waits for is not sent.
_is_ending = False


def _close_all() -> None:
    global _is_ending
    _is_ending = True
    for client in list(_clients):
        client.close()
    await_dropped()


def _at_exit() -> None:
    begin_exit()
    _close_all()


def _at_exit_of_child(_: object = None) -> None:
    """Has the clients closed by a process of multiprocessing. Its threads go on after its finalizers, so this is no `_at_exit`; if it
    unwinds threads afterwards, it calls `atexit`'s functions, too."""
    sys.modules["multiprocessing.util"].Finalize(None, _close_all, exitpriority=10)


_is_registered = False


def _native(settings: dict[str, Any]) -> Native:
    """A native client. Processes of multiprocessing end without what `atexit` has; they call finalizers, and forget those from before
    their start."""
    global _is_registered
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_registered:
        _is_registered = True
        util.register_after_fork(_at_exit_of_child, _at_exit_of_child)
        if sys.modules["multiprocessing.process"].parent_process() is not None:
            _at_exit_of_child()
    return Native(settings)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


class Client:
    """A client of one or many servers, for all threads of a program; their requests share connections.

    `servers` is an address, or a list of them: "host", "host:port", ("host", port), "/path/of/a/socket"; the default port is 11211. Or one source that names them, such as
    "srv:_memcache._tcp.example.net" or "etcd:10.0.0.1:2379/cache/". With `config` (text) or `config_file` (mcrouter's JSON or
    twemproxy's YAML) requests take the configuration's routes instead.

    As in pymemcache, `set` and whatever else has `noreply` does not wait for the server's answer unless told to
    (`noreply=False`, or `default_noreply=False` for all): it returns True, and what becomes of it is not known. Unlike there the
    answer is read, so that an error cannot be taken for another request's answer. Requests of one client leave in the order of
    the calls.

    With `ignore_exc` a failure of the cache is a miss, as is a value that cannot be deserialized, and a store that failed is False.
    `get_or_load` needs no such thing: it never fails because of the cache, and stores nothing after a failure.

    `serde` has pymemcache's `serialize(key, value) -> (bytes, flags)` and `deserialize(key, bytes, flags)`. `compress` ("zstd" or
    "lz4") packs values of `compress_threshold` bytes and more; values packed in either way are always read. `append` and `prepend` to
    a packed value make it unreadable, so do not use them with `compress`.

    `tls` is a `TLS`, True for one without files, or a dict of what it holds; `username` and `password` are what connections begin with.

    Times to live (`expire`) are memcached's: 0 is for ever, up to 30 days are seconds, more is Unix time.
    """

    def __init__(
        self,
        servers: Address | list[Address] | None = None,
        *,
        serde: Serde | None = None,
        key_prefix: Key = b"",
        default_noreply: bool = True,
        ignore_exc: bool = False,
        allow_unicode_keys: bool = False,
        **settings: Any,
    ) -> None:
        self._settings = native(servers, settings)
        self.serde: Serde = serde or RawSerde()
        self.key_prefix = key_prefix.encode("ascii") if isinstance(key_prefix, str) else key_prefix
        self.default_noreply = default_noreply
        self.ignore_exc = ignore_exc
        self.allow_unicode_keys = allow_unicode_keys
        self._lock = threading.Lock()
        self._native: Native | None = _native(self._settings)
        # Until when calls fail, and why: the last attempt to make a native client anew has failed.
        self._failure = 0.0, ""
        _clients.add(self)

    def _core(self) -> Native:
        """The native client, made anew after a fork or `close`. Its settings were accepted before, so a failure is one of a source of
        servers or of a file."""
        native = self._native
        if native is None:
            with self._lock:
                if self._native is None:
                    self._native = self._anew()
                native = self._native
        return native

    def _anew(self) -> Native:
        # A silent source takes seconds, and other threads wait for the lock meanwhile.
        retry_at, text = self._failure
        if time.monotonic() < retry_at:
            raise CacheError(text)
        try:
            return _native(self._settings)
        except IllegalInputError as error:
            self._failure = time.monotonic() + _RETRY_SECS, str(error)
            raise CacheError(str(error)) from error

    def _core_or_none(self) -> Native | None:
        """As `_core`, for calls that go on without the cache."""
        try:
            return self._core()
        except CacheError:
            return None

    def _key(self, key: Key) -> bytes:
        if isinstance(key, str):
            try:
                key = key.encode("utf-8" if self.allow_unicode_keys else "ascii")
            except UnicodeEncodeError as error:
                raise IllegalInputError(f"a key is not ASCII: {key!r}") from error
        if not isinstance(key, bytes):
            raise IllegalInputError(f"a key is str or bytes, not {type(key).__name__}: {key!r}")
        # With a prefix the servers would take it.
        if not key:
            raise IllegalInputError("a key is empty")
        return self.key_prefix + key

    def _pack(self, key: Any, value: Any, flags: int | None = None) -> tuple[bytes, int]:
        data, own = self.serde.serialize(key, value)
        if not isinstance(data, bytes):
            data = str(data).encode("ascii")
        return data, own if flags is None else flags

    def _item(self, key: Key, value: Any, flags: int | None) -> tuple[bytes, bytes, int]:
        data, own = self._pack(key, value, flags)
        return self._key(key), data, own

    def _waits(self, noreply: bool | None) -> bool:
        return not (self.default_noreply if noreply is None else noreply)

    def _try(self, failed: Any, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._core(), name)(*arguments)
        except IllegalInputError:
            raise
        except CacheError:
            if self.ignore_exc:
                return failed
            raise

    def _change(
        self, noreply: bool | None, told: Any, failed: Any, name: str, *arguments: Any
    ) -> Any:
        """A call that waits, or else returns `told`."""
        if self._waits(noreply):
            return self._try(failed, name, *arguments, False)
        if not _is_ending:
            return self._try(failed, name, *arguments, True)
        try:
            getattr(self._core(), name)(*arguments, False)
        except IllegalInputError:
            raise
        except CacheError:
            pass
        return told

    def _read(self, key: Any, found: Any, default: Any, cas_default: Any = None) -> tuple[Any, Any]:
        """The value and the cas unique of what was found."""
        if found is None:
            return default, cas_default
        try:
            return self.serde.deserialize(key, found[0], found[1]), found[2]
        except Exception:
            if self.ignore_exc:
                return default, cas_default
            raise

    def _read_many(self, found: Iterable[tuple[AnyKey, Any]]) -> Iterator[tuple[AnyKey, Any, Any]]:
        """As `_read` for many, without those that were not found."""
        for key, one in found:
            value, cas = self._read(key, one, _MISSING)
            if value is not _MISSING:
                yield key, value, cas

    # Retrieval

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key, or `default` when there is none."""
        return self._read(key, self._try(None, "get", self._key(key)), default)[0]

    def gets(self, key: Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """The value and its cas unique."""
        found = self._try(None, "gets", self._key(key))
        return self._read(key, found, default, cas_default)

    def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        """The value, whose time to live begins anew."""
        found = self._try(None, "gat", self._key(key), expire)
        return self._read(key, found, default)[0]

    def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: Any = None
    ) -> tuple[Any, Any]:
        """As `gat`, with the cas unique."""
        found = self._try(None, "gats", self._key(key), expire)
        return self._read(key, found, default, cas_default)

    def _get_many(self, keys: list[AnyKey], with_cas: bool) -> Iterator[tuple[AnyKey, Any, Any]]:
        asked = [self._key(key) for key in keys]
        found, failed = self._try(([], None), "get_many", asked, with_cas)
        if failed is not None and not self.ignore_exc:
            raise failed
        return self._read_many(zip(keys, found))

    def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        """The values that there are, by key. Each server is asked once."""
        return {key: value for key, value, _ in self._get_many(list(keys), False)}

    def gets_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, tuple[Any, int]]:
        """As `get_many`, with cas uniques."""
        return {key: (value, cas) for key, value, cas in self._get_many(list(keys), True)}

    # Stores

    def _store(
        self,
        command: str,
        key: Key,
        value: Any,
        expire: int,
        noreply: bool | None,
        flags: int | None,
    ) -> bool:
        data, own = self._pack(key, value, flags)
        arguments = (command, self._key(key), data, own, expire)
        done: bool = self._change(noreply, True, False, "store", *arguments)
        return done

    def set(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        return self._store("set", key, value, expire, noreply, flags)

    def add(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        return self._store("add", key, value, expire, noreply, flags)

    def replace(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        return self._store("replace", key, value, expire, noreply, flags)

    def append(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        return self._store("append", key, value, expire, noreply, flags)

    def prepend(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        return self._store("prepend", key, value, expire, noreply, flags)

    def set_many(
        self,
        values: Mapping[AnyKey, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[AnyKey]:
        """Stores a dict; the keys that were not stored."""
        keys = list(values)
        items = [self._item(key, value, flags) for key, value in values.items()]
        everything = range(len(keys))
        places = self._change(noreply, (), everything, "set_many", items, expire)
        return [keys[place] for place in places]

    def cas(
        self,
        key: Key,
        value: Any,
        cas: int | str | bytes,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """True: stored; False: changed since `gets`; None: there is no such item. It always waits."""
        data, own = self._pack(key, value, flags)
        arguments = (self._key(key), data, own, expire, unique(cas))
        stored: bool | None = self._try(False, "cas", *arguments)
        return stored

    # The rest

    def delete(self, key: Key, noreply: bool | None = None, hold_off: int = 0) -> bool:
        """True when it was there, or nobody waits. `hold_off`: seconds for which `add` is refused (holdall's servers)."""
        arguments = ([self._key(key)], hold_off)
        deleted: bool = self._change(noreply, True, False, "delete_many", *arguments)
        return deleted

    def delete_many(self, keys: Iterable[Key], noreply: bool | None = None) -> bool:
        """True, as in pymemcache: it does not tell which keys there were."""
        asked = [self._key(key) for key in keys]
        deleted = self._change(noreply, True, None, "delete_many", asked, 0)
        return deleted is not None

    def incr(self, key: Key, value: int = 1, noreply: bool = False) -> int | None:
        """The new number, or None when there is no such item."""
        arguments = (self._key(key), value, False)
        number: int | None = self._change(bool(noreply), None, None, "count", *arguments)
        return number

    def decr(self, key: Key, value: int = 1, noreply: bool = False) -> int | None:
        """The new number, 0 at the least, or None when there is no such item."""
        arguments = (self._key(key), value, True)
        number: int | None = self._change(bool(noreply), None, None, "count", *arguments)
        return number

    def touch(self, key: Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Begins the time to live anew; False when there is no such item."""
        touched: bool = self._change(noreply, True, False, "touch", self._key(key), expire)
        return touched

    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Drops everything on every server; it always waits."""
        return self._try(False, "flush_all", delay) is None

    def version(self) -> bytes:
        """The version of one of the servers; fails unless all of them answer."""
        version: str = self._core().version()
        return version.encode("ascii")

    def close(self) -> None:
        """Waits until what was asked has been answered. A later call begins anew."""
        with self._lock:
            native, self._native = self._native, None
        if native is not None:
            native.close()

    quit = close
    disconnect_all = close

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any) -> None:
        self.set(key, value, noreply=True)

    def __delitem__(self, key: Key) -> None:
        self.delete(key, noreply=True)

    get_multi = get_many
    set_multi = set_many
    delete_multi = delete_many

    # Beyond pymemcache

    def get_or_load(
        self,
        key: Key,
        load: Callable[..., Any],
        expire: int = 0,
        *,
        takes_stale: bool = True,
        waits: Waits = Waits(),
        early_refresh: float = 0.0,
        as_of: Snapshot | None = None,
        markers: Markers | None = None,
        exact: bool = False,
    ) -> Any:
        """The value of a key, from the cache or else from `load()`, which is called once at the most.

        One caller of all clients loads a missing key; the others wait for it, or get the value that was deleted before (`takes_stale`).
        So do readers of a key that was loaded and then deleted within the servers' `lease_interval`, for the rest of that time.
        If `load` fails or the caller is cancelled, another client loads at once. Callers of one client share one load and its exception,
        so `load` must not ask for the same key. Nothing is stored after a failure of the cache or of `load`, nor over a delete that came
        in between.

        With `early_refresh` (1 is usual, 0 is off) one reader loads a value anew shortly before it expires, sooner the longer loads
        take. `as_of` is for loads in a transaction with a snapshot. With `markers`, `load` receives "local" or "master". With `exact`,
        where writers use `write_marked_at`, it also receives a `Position` or None: it reads from the local database if that has reached
        the place, and else from the master.
        """
        fresh: list[Any] = []

        def packed(origin: Origin) -> tuple[bytes, int]:
            value, data, flags = self._loaded(key, load(*told(origin, markers, exact)))
            fresh.append(value)
            return data, flags

        asked = self._key(key)
        for stale in stales(takes_stale):
            core = self._core_or_none()
            if core is None:
                packed(MASTER)
                return fresh[0]
            settings = load_settings(expire, stale, waits, early_refresh, as_of, markers, exact)
            data, flags = _run(core.get_or_load(asked, *settings), packed)
            if fresh:
                return fresh[0]
            try:
                return self.serde.deserialize(key, data, flags)
            except Exception:
                continue
        self._forget(key)
        return load(*told(MASTER, markers, exact))

    def _loaded(self, key: Key, value: Any) -> tuple[Any, bytes, int]:
        """A value that was loaded, as later callers read it, and its bytes and flags."""
        if not isinstance(self.serde, RawSerde):
            return value, *self._pack(key, value)
        if not isinstance(value, (bytes, bytearray, memoryview, str)):
            kind = type(value).__name__
            raise TypeError(f"load returns {kind}, and later callers read bytes: set a serde")
        data, flags = self._pack(key, value)
        return data, data, flags

    def _forget(self, key: Key) -> None:
        """Deletes what cannot be read, so that the next caller fills the key."""
        try:
            self._change(True, True, False, "delete_many", [self._key(key)], 0)
        except CacheError:
            # It stays until it expires.
            pass

    def write_marked(self, key: Key, write: Callable[[bytes], Any], markers: Markers) -> Written:
        """A write in a region whose database is a replica: sets the marker, calls `write(marker)`, deletes the key.

        `write` writes to the master, and has both keys, this one and `marker`, invalidated by the replication stream.
        """
        asked, marked, core = self._key(key), region(markers), self._core_or_none()
        if core is None:
            return Written(write(marked[0] + asked), False, False)
        return Written(*_run(core.write_marked(asked, marked, False), write))

    def write_marked_at(
        self, key: Key, write: Callable[[], tuple[Any, Position]], markers: Markers
    ) -> Written:
        """As `write_marked` with an exact marker: `write()` returns its result and the place of its commit in the master's log.

        Nothing but time ends such markers, so what follows the replica's log deletes the key alone. Readers use `exact=True`.
        """
        asked, marked, core = self._key(key), region(markers), self._core_or_none()
        if core is None:
            return Written(write()[0], False, False)
        return Written(*_run(core.write_marked(asked, marked, True), lambda _: write()))

    def replace_routes(
        self,
        *,
        config: str | None = None,
        config_file: Any = None,
        servers: list[Address] | None = None,
    ) -> None:
        """Takes another configuration, or other servers; requests that run end in the old one."""
        given = {"config": config, "config_file": config_file}
        if servers is not None:
            given["servers"] = [address(server) for server in servers]
        given = {name: value for name, value in given.items() if value is not None}
        rest = {name: self._settings[name] for name in self._settings if name not in _ROUTES}
        self._core().replace_routes({**rest, **given})
        self._settings = {**rest, **given}

    def servers(self) -> list[tuple[str, str, int, int, int, int, int]]:
        """How each server stands: address, state, requests asked, answered, failed, timed out, and connections made."""
        return self._core().servers()

    def stats(self) -> dict[str, dict[str, Any]]:
        """What this client has seen of each server, by its address: state, asked, answered, failed, timeouts, connects."""
        names = ("state", "asked", "answered", "failed", "timeouts", "connects")
        return {row[0]: dict(zip(names, row[1:])) for row in self._core().servers()}

    def look_aside_totals(self) -> dict[str, int]:
        """How `get_or_load` went: hits, stale, waits, loads, fills, refused, unfilled."""
        return self._core().look_aside_totals()

    def kept_deletes(self) -> dict[str, int] | None:
        """What became of deletes that failed, where `keep_deletes` keeps them: pending, bytes, kept, failed, replayed, refused, expired,
        lost."""
        return self._core().kept_deletes()


def _run(call: Stepped, step: Callable[[Any], Any]) -> Any:
    """The outcome of a call, whose step is run in between."""
    try:
        while True:
            later, outcome = call.next()
            if later is None:
                return outcome
            try:
                result = step(outcome)
            except Exception as error:
                later.fail(error)
            else:
                later.bring(result)
    finally:
        call.give_up()


_ROUTES = ("config", "config_file", "servers")

# The database to load from, and the place that it must have reached.
Origin = tuple[str, Union[Position, None]]
MASTER: Origin = ("master", None)


def stales(takes_stale: bool) -> tuple[bool, ...]:
    """How `get_or_load` asks: once more where what it got cannot be read, which may be a deleted value."""
    return (True, False) if takes_stale else (False,)


def told(origin: Origin, markers: Markers | None, exact: bool) -> tuple[Any, ...]:
    """What a loader receives of it."""
    if markers is None:
        return ()
    return origin if exact else origin[:1]


def region(markers: Markers) -> tuple[bytes, int]:
    prefix = markers.prefix
    return prefix.encode("ascii") if isinstance(prefix, str) else bytes(prefix), markers.ttl


def load_settings(
    expire: int,
    takes_stale: bool,
    waits: Waits,
    early_refresh: float,
    as_of: Snapshot | None,
    markers: Markers | None,
    exact: bool,
) -> tuple[Any, ...]:
    """What the native `get_or_load` takes behind key and loader."""
    snapshot = None if as_of is None else as_of._native()
    marked = None if markers is None else region(markers)
    return expire, takes_stale, tuple(waits), early_refresh, snapshot, marked, exact


def unique(cas: int | str | bytes) -> int:
    try:
        return int(cas)
    except ValueError as error:
        raise IllegalInputError(f"a cas unique is a number, not {cas!r}") from error
