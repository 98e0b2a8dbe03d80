"""What the Python client checks share: the address, and a comparison that shows both sides."""

import os
import sys

HOST, PORT = sys.argv[1].rsplit(":", 1)
PORT = int(PORT)
CHECKS = 0

# There is a proxy in between: it speaks text, and has no items of its own to tell of.
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
    """The last line, which the runner asks for."""
    print(f"{client}: {CHECKS} checks passed")
