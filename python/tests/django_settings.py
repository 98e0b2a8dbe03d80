"""A Django with our cache, and Django's own tests of caches beside it."""

import os

SECRET_KEY = "of no use"
INSTALLED_APPS = ["cache"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
CACHES = {
    "default": {
        "BACKEND": "holdall.django.HoldallCache",
        "LOCATION": os.environ["CACHE_ADDRESS"],
    }
}
