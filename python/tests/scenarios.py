"""Runs the file of scenarios that HOLDALL_SCENARIOS names, at each of HOLDALL_TARGETS, "name=host:port" separated by blanks.

Every second scenario is that of asyncio, the others are those of threads."""

import asyncio
import json
import os
import socket
import threading
import time

from holdall import AsyncClient, Client, IllegalInputError, Markers, Position, Waits


class Run:
    def __init__(self, name, target, address, number, loop):
        self.name, self.address = f"{name} at {target}", address
        self.words = {"{k}": f"python:{target}:{number}"}
        self.client = Client(address, timeout=60, default_noreply=False)
        self.aio, self.loop = AsyncClient(address, timeout=60), loop
        self.by_loop = number % 2 == 0

    def same(self, got, want, what):
        if got != want:
            raise SystemExit(f"{self.name}: {what}: got {got!r}, want {want!r}")

    def fill(self, text):
        for word, meaning in self.words.items():
            text = text.replace(word, meaning)
        return text

    def steps(self, steps):
        for step in steps:
            if "wire" in step:
                self.wire(**step)
            elif "read" in step:
                self.read(step)
            elif "delete" in step:
                self.client.delete(self.fill(step["delete"]))
            elif "write" in step:
                self.write(step["write"], step.get("error"))
            elif "position" in step:
                self.position(**step)
            else:
                for n in range(step["repeat"]):
                    self.words["{n}"] = str(n)
                    self.steps(step["steps"])

    def write(self, write, error):
        """A write under a marker; with places by a writer for each, none of which ends before all of them have begun."""
        key, markers = self.fill(write["key"]), Markers(write["markers"], write["ttl"])
        is_marked, places = write.get("marked", True), write.get("at", [])
        want = ("done", is_marked, is_marked) if error is None else error
        begun, outcomes = threading.Barrier(max(len(places), 1)), []

        def end(place):
            self.steps(write.get("during", []))
            if "fails" in write:
                raise RuntimeError(write["fails"])
            return "done", Position(place)

        def call(place):
            def written():
                begun.wait(20)
                return end(place)

            try:
                outcomes.append(tuple(self.client.write_marked_at(key, written, markers)))
            except RuntimeError as error:
                outcomes.append(str(error))

        async def calls():
            begun = asyncio.Barrier(len(places))

            def writer(place):
                async def written():
                    await begun.wait()
                    return end(place)

                return written

            made = [self.aio.write_marked_at(key, writer(place), markers) for place in places]
            for got in await asyncio.gather(*made, return_exceptions=True):
                outcomes.append(str(got) if isinstance(got, Exception) else tuple(got))

        if not places:
            outcomes.append(tuple(self.client.write_marked(key, lambda marker: "done", markers)))
        elif self.by_loop:
            self.loop.run_until_complete(calls())
        else:
            writers = [threading.Thread(target=call, args=(place,)) for place in places]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
        self.same(outcomes, [want] * max(len(places), 1), "a marked write")
        print(f"result: {self.name}: written")

    def position(self, position, text=None, query=None):
        try:
            place = Position(position)
            got = str(place), place.reached_query
        except IllegalInputError:
            got = None, None
        self.same(got, (text, query), position)
        print(f"result: {self.name}: {got[0] or 'none'}")

    def wire(self, wire, reply, until=False):
        """The reply's {token} is any number above 1."""
        end = time.monotonic() + 20
        while True:
            host, port = self.address.split(":")
            with socket.create_connection((host, int(port)), timeout=20) as stream:
                stream.sendall(self.fill(wire).encode())
                lines = stream.makefile("rb")
                got = b"".join(lines.readline() for _ in range(reply.count("\n"))).decode()
            before, *after = (self.fill(part) for part in reply.split("{token}"))
            if not after and got == before:
                return
            token = got[len(before) : len(got) - len(after[0])] if after else ""
            if token.isdigit() and int(token) > 1 and got == before + token + after[0]:
                self.words["{token}"] = token
                return
            if not until or time.monotonic() > end:
                self.same(got, reply, wire)
            time.sleep(0.005)

    def read(self, step):
        read, loads, sources = step["read"], [], []
        key, is_cancelled = self.fill(read["key"]), "cancelled" in read
        options = {
            "expire": read.get("exptime", 0),
            "takes_stale": read.get("takes_stale", True),
            "waits": Waits(total=read.get("wait_total_ms", 15000) / 1000),
            "early_refresh": read.get("early_refresh", 0.0),
            "markers": Markers(read["markers"], 300) if "markers" in read else None,
            "exact": read.get("exact", False),
        }

        def begin(source):
            loads.append(1)
            sources.extend([" ".join(str(word) for word in source if word is not None)] if source else [])
            self.steps(read.get("during", []))

        def end():
            if "fails" in read:
                raise RuntimeError(read["fails"])
            return read["returns"].encode()

        def load(*source):
            begin(source)
            time.sleep(read.get("takes_ms", 0) / 1000)
            return end()

        async def load_later(*source):
            begin(source)
            if is_cancelled:
                tasks[0].cancel()
            await asyncio.sleep(read.get("takes_ms", 0) / 1000)
            return end()

        def call():
            try:
                got = {"value": self.client.get_or_load(key, load, **options).decode()}
            except RuntimeError as error:
                got = {"error": str(error)}
            outcomes.append(got)

        tasks, outcomes, callers = [], [], read.get("callers", 1)
        by_loop = is_cancelled or self.by_loop

        async def calls():
            made = [self.aio.get_or_load(key, load_later, **options) for _ in range(callers)]
            tasks.extend(asyncio.ensure_future(one) for one in made)
            for got in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(got, asyncio.CancelledError):
                    outcomes.append({"error": "cancelled"})
                else:
                    outcomes.append({"value": got.decode()} if isinstance(got, bytes) else {"error": str(got)})

        def then():
            time.sleep(read["after_ms"] / 1000)
            self.steps(read["then"])

        others = [threading.Thread(target=then)] if "then" in read else []
        others += [] if by_loop else [threading.Thread(target=call) for _ in range(callers)]
        for other in others:
            other.start()
        if by_loop:
            self.loop.run_until_complete(calls())
        for other in others:
            other.join()
        want = {name: step[name] for name in ("value", "error") if name in step}
        self.same(outcomes, [want] * callers, "a read")
        self.same((len(loads), sources), (step["loads"], [step["source"]] if "source" in step else []), "loads")
        print(f"result: {self.name}: {len(loads)} loads")


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
with open(os.environ["HOLDALL_SCENARIOS"]) as file:
    scenarios = [json.loads(line) for line in file]
for target in os.environ["HOLDALL_TARGETS"].split():
    target, address = target.split("=")
    for number, scenario in enumerate(scenarios):
        if target in scenario["on"]:
            run = Run(scenario["name"], target, address, number, loop)
            run.steps(scenario["steps"])
            run.client.close()
            loop.run_until_complete(run.aio.close())
