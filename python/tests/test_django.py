"""Django's own tests of its memcached backends (`tests/cache` of its source), against ours."""

from cache import tests
from django.conf import settings
from django.core.cache import cache
from django.test import TestCase, override_settings
from holdall import CacheError

PARAMS = settings.CACHES["default"]
CACHES = tests.caches_setting_for_tests(base=PARAMS, exclude=tests.memcached_excluded_caches)


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
