"""Every command of pylibmc (libmemcached in C, text and then binary protocol)."""

import pylibmc

from common import HOST, PORT, ROUTED, done, same


def refused(command, *words):
    """True if the command was refused: pylibmc returns False or raises, depending on protocol."""
    try:
        return command(*words) is False
    except (pylibmc.NotFound, pylibmc.DataExists):
        return True


def check(binary):
    kind = "binary" if binary else "text"
    c = pylibmc.Client([f"{HOST}:{PORT}"], binary=binary, behaviors={"cas": True, "tcp_nodelay": True})
    same(c.flush_all(), True, f"{kind} flush_all")
    same(c.get("a"), None, f"{kind} get of nothing")
    same(c.set("a", "one"), True, f"{kind} set")
    same(c.get("a"), "one", f"{kind} get")
    same(refused(c.add, "a", "two"), True, f"{kind} add over a value")
    same(c.add("b", "two"), True, f"{kind} add")
    same(c.replace("a", "three"), True, f"{kind} replace")
    same(refused(c.replace, "none", "x"), True, f"{kind} replace of nothing")
    same(c.append("b", "!"), True, f"{kind} append")
    same(c.prepend("b", "?"), True, f"{kind} prepend")
    same(c.get_multi(["a", "b", "none"]), {"a": "three", "b": "?two!"}, f"{kind} get_multi")
    same("b" in c, True, f"{kind} contains")
    value, unique = c.gets("a")
    same(value, "three", f"{kind} gets")
    same(c.cas("a", "four", unique), True, f"{kind} cas")
    same(refused(c.cas, "a", "five", unique), True, f"{kind} cas with an old unique")
    same(c.set("n", 10), True, f"{kind} set a number")
    same(c.incr("n"), 11, f"{kind} incr")
    same(c.incr("n", 9), 20, f"{kind} incr by nine")
    same(c.decr("n", 5), 15, f"{kind} decr")
    same(c.get("n"), 15, f"{kind} the number's flags stay")
    same(c.touch("a", 100), True, f"{kind} touch")
    same(refused(c.touch, "none", 100), True, f"{kind} touch of nothing")
    same(c.set_multi({str(i): i for i in range(200)}), [], f"{kind} set_multi")
    same(c.get_multi([str(i) for i in range(200)]), {str(i): i for i in range(200)}, f"{kind} 200 keys")
    same(c.set_multi({"x": 1, "y": 2}, key_prefix="pre:"), [], f"{kind} a prefix")
    same(c.get_multi(["x", "y"], key_prefix="pre:"), {"x": 1, "y": 2}, f"{kind} a prefix again")
    same(c.add_multi({"x": 1, "z": 2}, key_prefix="pre:"), ["x"], f"{kind} add_multi")
    same(c.incr_multi(["x", "y"], key_prefix="pre:", delta=5) is None, True, f"{kind} incr_multi")
    same(c.get("pre:x"), 6, f"{kind} after incr_multi")
    same(c.delete_multi([str(i) for i in range(200)]), True, f"{kind} delete_multi")
    same(c.delete("a"), True, f"{kind} delete")
    same(refused(c.delete, "a"), True, f"{kind} delete of nothing")
    large = "l" * 1_000_000
    same(c.set("large", large), True, f"{kind} a large value")
    same(c.get("large") == large, True, f"{kind} the large value again")
    try:
        c.set("large", "l" * (2 << 20))
        raise SystemExit(f"{kind}: a value of 2 MB was accepted")
    except pylibmc.Error as error:
        same(isinstance(error, pylibmc.TooBig) or "BIG" in repr(error).upper(), True, f"{kind} {error!r}")
    same(c.get("b"), "?two!", f"{kind} in step after a refusal")
    same(c.get_stats()[0][1]["version"].count(b"."), 2, f"{kind} stats")
    same(c.set("short", "x", time=1), True, f"{kind} a short life")
    c.disconnect_all()


check(binary=False)
if not ROUTED:
    check(binary=True)
done("pylibmc")
