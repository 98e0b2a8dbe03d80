"""Django's cache in memcached servers.

    CACHES = {
        "default": {
            "BACKEND": "holdall.django.HoldallCache",
            "LOCATION": ["127.0.0.1:11211", "127.0.0.1:11212"],
            "OPTIONS": {"compress": "zstd"},
        }
    }

`OPTIONS` are the settings of `holdall.Client`; with `config_file` there, `LOCATION` may be missing. Values are pickled, as in Django's own
backends. A process has one client for each cache, which all of its threads, tasks and requests share.
"""

import os
import re
import threading
import time

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, InvalidCacheKey
from django.core.cache.backends.base import memcache_key_warnings
from django.utils.functional import cached_property

from .client import Client
from .serde import PickleSerde

# A source of servers, which may have commas of its own.
_SOURCE = re.compile(r"(dns|elasticache|etcd|srv)(\+tls)?:")

# Django makes a backend for each thread and each request; those of one configuration share a client.
_clients = {}
_lock = threading.Lock()


def _after_fork():
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

# Longer times to live are Unix times to memcached.
_RELATIVE_SECS_MAX = 30 * 24 * 60 * 60


class HoldallCache(BaseCache):
    _class = Client

    def __init__(self, server, params):
        super().__init__(params)
        if isinstance(server, str) and _SOURCE.match(server):
            server = [server]
        elif isinstance(server, str):
            server = [one for one in re.split("[;,]", server) if one]
        self._servers = list(server) or None
        options = dict(params.get("OPTIONS", {}))
        # Those that are the base class's.
        for name in ("MAX_ENTRIES", "CULL_FREQUENCY"):
            options.pop(name, None)
        self._options = {"allow_unicode_keys": True, **options}

    @cached_property
    def _cache(self):
        options = tuple((name, repr(self._options[name])) for name in sorted(self._options))
        key = (self._class, repr(self._servers), options)
        with _lock:
            if key not in _clients:
                serde = {} if "serde" in self._options else {"serde": PickleSerde()}
                made = self._class(self._servers, default_noreply=False, **serde, **self._options)
                # The options are kept, so that no other object has the name of one of them.
                _clients[key] = made, self._options
            return _clients[key][0]

    def get_backend_timeout(self, timeout=DEFAULT_TIMEOUT):
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return 0
        if int(timeout) <= 0:
            return -1
        if timeout > _RELATIVE_SECS_MAX:
            timeout += int(time.time())
        return int(timeout)

    def validate_key(self, key):
        for warning in memcache_key_warnings(key):
            raise InvalidCacheKey(warning)

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        return self._cache.add(key, value, self.get_backend_timeout(timeout))

    def get(self, key, default=None, version=None):
        key = self.make_and_validate_key(key, version=version)
        return self._cache.get(key, default)

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        try:
            self._cache.set(key, value, self.get_backend_timeout(timeout))
        except Exception:
            # What is refused (too large, say) must not leave the older value behind.
            self._cache.delete(key, noreply=True)
            raise

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        return self._cache.touch(key, self.get_backend_timeout(timeout))

    def delete(self, key, version=None):
        key = self.make_and_validate_key(key, version=version)
        return self._cache.delete(key)

    def get_many(self, keys, version=None):
        asked = {self.make_and_validate_key(key, version=version): key for key in keys}
        found = self._cache.get_many(asked)
        return {asked[key]: value for key, value in found.items()}

    def incr(self, key, delta=1, version=None):
        key = self.make_and_validate_key(key, version=version)
        count = self._cache.decr if delta < 0 else self._cache.incr
        value = count(key, abs(delta))
        if value is None:
            raise ValueError(f"Key '{key}' not found")
        return value

    def set_many(self, data, timeout=DEFAULT_TIMEOUT, version=None):
        named = {self.make_and_validate_key(key, version=version): key for key in data}
        values = {safe: data[key] for safe, key in named.items()}
        failed = self._cache.set_multi(values, self.get_backend_timeout(timeout))
        return [named[key] for key in failed]

    def delete_many(self, keys, version=None):
        self._cache.delete_many([self.make_and_validate_key(key, version=version) for key in keys])

    def clear(self):
        self._cache.flush_all()

    def close(self, **kwargs):
        """Django calls this at the end of every request; connections outlive requests."""

    def get_or_load(self, key, load, timeout=DEFAULT_TIMEOUT, version=None, **options):
        """As `get_or_set`, but one process of all calls `load` for a missing key, and nothing is stored over a later delete."""
        key = self.make_and_validate_key(key, version=version)
        return self._cache.get_or_load(key, load, self.get_backend_timeout(timeout), **options)
