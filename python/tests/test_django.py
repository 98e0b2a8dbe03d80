"""Django's own tests of its memcached backends (`tests/cache` of its source), against ours."""

import asyncio
import threading

from cache import tests
from django.conf import settings
from django.core.cache import cache, caches
from django.db.models import IntegerChoices, TextChoices
from django.test import TestCase, override_settings
from django.utils.safestring import mark_safe
from holdall import CacheError
from holdall.django import HoldallCache

PARAMS = settings.CACHES["default"]
CACHES = tests.caches_setting_for_tests(base=PARAMS, exclude=tests.memcached_excluded_caches)


class Colour(TextChoices):
    RED = "red"


class Size(IntegerChoices):
    LARGE = 3


@override_settings(CACHES=CACHES)
class HoldallCacheTests(tests.BaseMemcachedTests, TestCase):
    base_params = PARAMS
    incr_decr_type_error = CacheError
    # Connections outlive requests.
    should_disconnect_on_close = False

    def test_get_or_load(self):
        calls = []

        def load():
            calls.append(1)
            return {"row": 17}

        self.assertEqual(cache.get_or_load("loaded", load), {"row": 17})
        self.assertEqual(cache.get_or_load("loaded", load), {"row": 17})
        self.assertEqual(len(calls), 1)
        self.assertEqual(cache.get("loaded"), {"row": 17})

    def test_values_keep_their_types(self):
        for value in (mark_safe("<b>x</b>"), Colour.RED, Size.LARGE, bytearray(b"ab"), True):
            cache.set("typed", value)
            got = cache.get("typed")
            self.assertEqual((got, type(got)), (value, type(value)))

    def test_threads_and_tasks_share_a_client(self):
        clients = [caches["default"]._cache]

        def work():
            clients.append(caches["default"]._cache)

        async def task():
            work()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(task())
        self.assertEqual(len(clients), 6)
        self.assertEqual(set(clients), {clients[0]})

    def test_options_have_clients_of_their_own(self):
        options = {"timeout": 1}
        made = [HoldallCache("127.0.0.1:1", {"OPTIONS": one}) for one in (options, options, {})]
        self.assertIs(made[0]._cache, made[1]._cache)
        self.assertIsNot(made[0]._cache, made[2]._cache)

    def test_a_source_keeps_its_commas(self):
        source = "etcd:10.0.0.1:2379,10.0.0.2:2379/cache/"
        self.assertEqual(HoldallCache(source, {})._servers, [source])
