"""Helpers of the Python client checks: the address, and a comparison that shows both sides."""

import os
import sys

HOST, PORT = sys.argv[1].rsplit(":", 1)
PORT = int(PORT)
CHECKS = 0

# Between client and servers is a proxy, which uses text and has no items to list.
ROUTED = "E2E_ROUTED" in os.environ


def same(got, want, what):
    """Fails with both sides unless they are equal."""
    global CHECKS
    CHECKS += 1
    if got != want:
        raise SystemExit(f"{what}: got {got!r}, want {want!r}")


def fails(call, kind, what):
    """Fails unless the call raises an exception of this kind."""
    global CHECKS
    CHECKS += 1
    try:
        got = call()
    except kind:
        return
    raise SystemExit(f"{what}: got {got!r}, want an error")


def done(client):
    """Prints the last line, which the runner expects."""
    print(f"{client}: {CHECKS} checks passed")
