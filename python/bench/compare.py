"""Gets a second of this library beside others from PyPI: `compare.py ADDRESS [SECONDS] [ROUNDS]`.

Blocking clients: one key, 24 keys, and one key by eight threads. asyncio: one key by 1, 64 and 1,000 tasks. The rounds of all go round in
turn; the table has the medians.
"""

import asyncio
import resource
import statistics
import sys
import threading
import time

import aiomcache
import emcache
import holdall
import pymemcache
from pymemcache.client.base import PooledClient

KEYS = [f"key:{n}" for n in range(1000)]
MANY = 24
VALUE = b"x" * 100


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Clock:
    """How many requests in how many seconds, with how much of a processor's time."""

    def __init__(self, seconds):
        self.begun, self.cpu = time.perf_counter(), cpu()
        self.end = self.begun + seconds

    def runs(self):
        return time.perf_counter() < self.end

    def result(self, count):
        elapsed = time.perf_counter() - self.begun
        return count / elapsed, (cpu() - self.cpu) / max(count, 1) * 1e6


def one(client, seconds):
    clock, count = Clock(seconds), 0
    while clock.runs():
        for key in KEYS[count % 900 :][:100]:
            if client.get(key) != VALUE:
                raise SystemExit("a wrong value")
        count += 100
    return clock.result(count)


def many(client, seconds):
    clock, count = Clock(seconds), 0
    while clock.runs():
        for _ in range(20):
            begin = count % (len(KEYS) - MANY)
            if len(client.get_many(KEYS[begin : begin + MANY])) != MANY:
                raise SystemExit("a missing value")
            count += 1
    return clock.result(count)


def threads(client, seconds):
    clock, counts = Clock(seconds), []

    def work():
        count = 0
        while clock.runs():
            for key in KEYS[:50]:
                client.get(key)
            count += 50
        counts.append(count)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return clock.result(sum(counts))


async def tasks(get, how_many, seconds):
    clock, count = Clock(seconds), 0

    async def work(number):
        nonlocal count
        turn = number
        while clock.runs():
            if await get(KEYS[turn % len(KEYS)]) != VALUE:
                raise SystemExit("a wrong value")
            count += 1
            turn += 7

    await asyncio.gather(*(work(number) for number in range(how_many)))
    return clock.result(count)


async def by_holdall(address, how_many, seconds):
    async with holdall.AsyncClient(address) as client:
        return await tasks(client.get, how_many, seconds)


async def by_aiomcache(address, how_many, seconds):
    host, port = address.rsplit(":", 1)
    client = aiomcache.Client(host, int(port), pool_size=16)

    async def get(key):
        return await client.get(key.encode())

    result = await tasks(get, how_many, seconds)
    await client.close()
    return result


async def by_emcache(address, how_many, seconds):
    host, port = address.rsplit(":", 1)
    node = emcache.MemcachedHostAddress(host, int(port))
    client = await emcache.create_client([node], max_connections=16, timeout=None)

    async def get(key):
        item = await client.get(key.encode())
        return item and item.value

    result = await tasks(get, how_many, seconds)
    await client.close()
    return result


def measurements(address, seconds):
    ours = holdall.Client(address)
    ours.set_many(dict.fromkeys(KEYS, VALUE), noreply=False)
    host, port = address.rsplit(":", 1)
    theirs = pymemcache.Client((host, int(port)), no_delay=True)
    pool = PooledClient((host, int(port)), no_delay=True, max_pool_size=16)
    for what, measure, other in [
        ("one key", one, theirs),
        (f"{MANY} keys", many, theirs),
        ("one key, 8 threads", threads, pool),
    ]:
        yield what, "holdall", lambda measure=measure: measure(ours, seconds)
        yield what, "pymemcache", lambda measure=measure, other=other: measure(other, seconds)
    for how_many in (1, 64, 1000):
        what = f"asyncio, {how_many} task{'s' if how_many > 1 else ''}"
        for name, by in [
            ("holdall", by_holdall),
            ("aiomcache", by_aiomcache),
            ("emcache", by_emcache),
        ]:
            yield what, name, lambda by=by, n=how_many: asyncio.run(by(address, n, seconds))


def main(address, seconds=1.0, rounds=3):
    rows = {}
    for _ in range(int(rounds)):
        for what, name, measure in measurements(address, float(seconds)):
            rows.setdefault((what, name), []).append(measure())
    print("| what | client | requests a second | CPU us a request |")
    print("| --- | --- | ---: | ---: |")
    for (what, name), results in rows.items():
        rate, used = (statistics.median(column) for column in zip(*results))
        print(f"| {what} | {name} | {rate:,.0f} | {used:.1f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
