"""What the checks of the Python client have in common: comparing, and counting what was compared."""

CHECKS = 0


def same(got, want, what):
    """Fails with both sides unless they are equal."""
    global CHECKS
    CHECKS += 1
    if got != want:
        raise SystemExit(f"{what}: got {got!r}, want {want!r}")


def refused(error, what, call, *arguments, **named):
    """Fails unless the call raises this, and returns what it says."""
    try:
        call(*arguments, **named)
    except error as raised:
        same(True, True, what)
        return str(raised)
    raise SystemExit(f"{what} was accepted")


def passed(what):
    """Tells how much was compared."""
    print(f"{what}: {CHECKS} checks passed")
