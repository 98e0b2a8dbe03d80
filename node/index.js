// Look-aside reads through a memcached tier: a value comes from the cache or else from a loader,
// and one caller of all programs loads a missing key. The protocol is described in
// docs/look-aside.md. Programs keep their usual memcached client for everything else.

import { Position } from "./position.js";
import { Connection, Refused, deleted, meta, retrieved, stored } from "./wire.js";

export { Position };

// For how long a key whose lease was refused is read without one, and how many are remembered.
const REFUSED_MS = 30_000;
const REFUSED_MAX = 1024;

const DEFAULTS = {
  exptime: 0,
  takesStale: true,
  waitFirst: 2,
  waitLongest: 500,
  waitTotal: 15_000,
  earlyRefresh: 0,
};

// Attempts to put a place into a marker that others change as well.
const PUT_ATTEMPTS = 16;

// The longest text of a place. Behind a longer one, of many writes to MySQL, the marker is without
// a place.
const PLACE_MAX = 1000;

// The longest time that a timer takes: 24 days.
const LONG_MS = 2 ** 31 - 1;

const GIVEN_UP = Symbol("given up");

const asked = (promise) => promise.then(() => true, () => false);

// A marker with a place or without: its flags and its value.
function marked(place) {
  const text = place?.toString() ?? "";
  const has = text !== "" && text.length <= PLACE_MAX;
  return has ? { flags: 0, value: Buffer.from(text) } : { flags: 2, value: Buffer.from("1") };
}

// The place in a marker, if it has one.
function placeIn(value) {
  try {
    return Position.parse(value.toString("latin1"));
  } catch {
    return undefined;
  }
}

function check(key) {
  if (typeof key !== "string" || !/^[!-~]{1,250}$/.test(key)) {
    throw new TypeError("a key is 1 to 250 characters of ASCII without blanks");
  }
}

// Waits for a promise, but no longer than a time in milliseconds or until the signal says so.
// Undefined when the time is over.
function within(promise, ms, signal) {
  return new Promise((resolve, reject) => {
    const end = (settle) => (outcome) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
      settle(outcome);
    };
    const aborted = () => end(reject)(signal.reason);
    const timer = setTimeout(end(resolve), ms);
    signal?.addEventListener("abort", aborted);
    if (signal?.aborted) aborted();
    promise?.then(end(resolve), end(reject));
  });
}

export class Client {
  #connection;
  // By key: { outcome, settle, leaders, loaders }: the load that goes on, or a wait for another
  // process's. Leaders ask the cache or load; the cache may give the lease to another caller than
  // the one that polls.
  #flights = new Map();
  #refused = new Map();
  #meanLoad = 0;

  // `address` is "host:port", "[::1]:port", or the path of a Unix socket. `timeout`, in
  // milliseconds, is for each request with its reply.
  constructor(address = "127.0.0.1:11211", { timeout = 1000 } = {}) {
    const [, name, port] = /^(.*):(\d+)$/.exec(address) ?? [];
    const host = /^\[(.*)\]$/.exec(name)?.[1] ?? name;
    const where = address.startsWith("/") ? { path: address } : { host, port: Number(port) };
    if (!where.path && !port) throw new TypeError(`no address: ${address}`);
    this.#connection = new Connection(where, timeout);
  }

  close() {
    this.#connection.close();
  }

  // Deletes a key. Call it when a write is committed.
  async delete(key) {
    check(key);
    this.#flights.delete(key);
    const { word } = await this.#connection.ask(`delete ${key}\r\n`, deleted);
    return word === "DELETED";
  }

  // A buffer: the value of a key, from the cache or else from `load({ signal, source, place })`,
  // which gives a string or a buffer and is called once at the most. It rejects with what `load`
  // rejects with, with the signal's reason, or because the key is none; that the cache fails is no
  // error.
  //
  // One caller of all processes loads a missing key. If `load` fails or the signal aborts, another
  // process loads at once. Callers of one client share one load and its error, so `load` must not
  // ask for the same key. A value that a delete has overtaken is not stored.
  async getOrLoad(key, load, options = {}) {
    check(key);
    const { signal, markers } = options;
    const call = { key, ...DEFAULTS, ...options, begun: performance.now(), leader: null, loads: false };
    call.wait = call.waitFirst;
    try {
      const { value, fill } = await this.#next(call);
      if (!fill) return value;
      if (call.leader) {
        call.loads = true;
        call.leader.loaders++;
      }
      return await this.#load(call, fill, load, markers, signal);
    } finally {
      // Without effect if the flight has ended.
      this.#finish(call, GIVEN_UP);
    }
  }

  // Writes what a key shows, in a region whose database is a replica: sets the marker, calls
  // `write(marker)`, which has key and marker invalidated with the write, and deletes the key.
  // Rejects only with what `write` rejects with; `marked` and `deleted` tell of the cache.
  async writeMarked(key, write, { prefix, ttl }) {
    const marker = prefix + key;
    check(marker);
    const isMarked = await asked(this.#send("set", marker, ttl, marked()));
    const result = await write(marker);
    return { result, marked: isMarked, deleted: await asked(this.delete(key)) };
  }

  // As `writeMarked` with an exact marker: `write()` gives `{ place, result }`, the place of its
  // commit in the master's log as a `Position`. Nothing but time ends such markers, so what follows
  // the replica's log deletes the key alone, and readers have `markers: { prefix, exact: true }`.
  async writeMarkedAt(key, write, { prefix, ttl }) {
    const marker = prefix + key;
    check(marker);
    // That it fails does not matter: the marker is written once more below, or that fails.
    await asked(this.#send("set", marker, ttl, marked()));
    const { place, result } = await write();
    if (!(place instanceof Position)) throw new TypeError("the place of a write is a Position");
    const isMarked = await asked(this.#put(marker, ttl, place));
    return { result, marked: isMarked, deleted: await asked(this.delete(key)) };
  }

  // Puts the place of a write into a marker, behind the place that it has.
  async #put(marker, ttl, own) {
    for (let left = PUT_ATTEMPTS; left > 0; left--) {
      const there = await this.#connection.ask(`gets ${marker}\r\n`, retrieved(marker));
      // Without a place somebody's write is under way, or nobody's: ours says enough for us.
      const other = there.found ? placeIn(there.value) : undefined;
      const item = marked(other ? own.behindBoth(other) : own);
      const word = await this.#send(there.found ? "cas" : "add", marker, ttl, item, there.cas);
      if (word === "STORED") return;
    }
    await this.#send("set", marker, ttl, marked());
  }

  // Asks and waits until there is a value, or this call is to load and may fill.
  async #next(call) {
    const { key, signal } = call;
    for (;;) {
      const { reply, isRefused, error } = await this.#ask(call);
      if (signal?.aborted) {
        if (reply?.token > 1n) this.#giveBack(key, { command: "lease-set", number: reply.token });
        throw signal.reason;
      }
      let fill;
      if (error) {
        fill = {};
      } else if (reply.found) {
        this.#finish(call, { value: reply.value, isCurrent: true });
        if (!reply.won) return reply;
        return { fill: { command: "cas", number: reply.cas, old: reply.value } };
      } else if (isRefused) {
        fill = { command: "add" };
      } else if (reply.token > 1n) {
        call.leader ??= this.#lead(key);
        return { fill: { command: "lease-set", number: reply.token } };
      } else if (reply.stale && call.takesStale) {
        this.#finish(call, { value: reply.value, isCurrent: false });
        return reply;
      } else if (this.#left(call) <= 0) {
        return { fill: {} };
      }
      // What was begun before may be older than a delete, and nothing could tell.
      if (error && !call.takesStale) return { fill };
      if (!call.leader) {
        const present = this.#flights.get(key);
        if (present) {
          const outcome = await this.#follow(call, present);
          if (outcome) return outcome;
          continue;
        }
        call.leader = this.#begin(key);
      }
      if (fill) return { fill };
      // Another caller of this process may have the lease.
      const wait = Math.min(call.wait, this.#left(call));
      const outcome = await within(call.leader.outcome, wait, signal);
      call.wait = Math.min(call.wait * 2, call.waitLongest);
      if (!outcome) continue;
      this.#finish(call, GIVEN_UP);
      const shared = this.#shared(call, outcome);
      if (shared) return shared;
    }
  }

  // What the cache says; `isRefused` if leases are not for this key, `error` if it says nothing.
  // It is not given up on the way: the reply may be a lease.
  async #ask({ key, earlyRefresh }) {
    const ask = (request, read) => this.#connection.ask(request, read);
    try {
      if (!(this.#refused.get(key) > performance.now())) {
        // So many seconds before its end this caller would load a value anew.
        const early = (this.#meanLoad / 1000) * earlyRefresh * -Math.log(1 - Math.random());
        const secs = Math.min(Math.floor(early + 1), 2 ** 32 - 1);
        try {
          const reply = earlyRefresh > 0
            ? await ask(`mg ${key} k v c G R${secs}\r\n`, meta(key))
            : await ask(`lease-get ${key}\r\n`, retrieved(key));
          return { reply };
        } catch (error) {
          if (!(error instanceof Refused)) throw error;
          this.#refused.delete(key);
          const [oldest] = this.#refused.keys();
          if (this.#refused.size >= REFUSED_MAX) this.#refused.delete(oldest);
          this.#refused.set(key, performance.now() + REFUSED_MS);
        }
      }
      return { reply: await ask(`get ${key}\r\n`, retrieved(key)), isRefused: true };
    } catch (error) {
      return { error };
    }
  }

  // Waits for another caller's outcome; undefined if it is none for this one. Whoever has waited
  // as long as one may for the same flight begins the next: its leader may be stuck.
  async #follow(call, present) {
    for (;;) {
      const outcome = await within(present.outcome, call.waitTotal, call.signal);
      if (outcome) return this.#shared(call, outcome);
      const next = this.#flights.get(call.key);
      if (!next || next === present) {
        call.leader = this.#begin(call.key);
        return undefined;
      }
      present = next;
    }
  }

  // What another caller's outcome is for this one; undefined if it is none.
  #shared({ takesStale }, outcome) {
    if (outcome === GIVEN_UP) return undefined;
    if (outcome.error) throw outcome.error.thrown;
    return outcome.isCurrent || takesStale ? { value: Buffer.from(outcome.value) } : undefined;
  }

  // Calls the loader, stores its value, and gives it to those who wait.
  async #load(call, fill, load, markers, signal) {
    const { key, exptime } = call;
    let from = {};
    let value;
    try {
      if (markers) from = await this.#from(markers.prefix + key, markers.exact);
      const begun = performance.now();
      const loading = Promise.resolve(load({ signal, ...from }));
      value = Buffer.from(await within(loading, LONG_MS, signal));
      const took = performance.now() - begun;
      this.#meanLoad += (took - this.#meanLoad) / (this.#meanLoad === 0 ? 1 : 8);
    } catch (thrown) {
      this.#giveBack(key, fill);
      if (signal?.aborted) throw thrown;
      if (fill.old) return fill.old;
      this.#finish(call, { error: { thrown } });
      throw thrown;
    }
    let word;
    if (fill.command) {
      word = await this.#store(fill.command, key, exptime, value, fill.number);
      if (!word) this.#giveBack(key, fill);
    }
    const isCurrent = word === "STORED" && fill.command === "lease-set";
    this.#finish(call, { value, isCurrent });
    return value;
  }

  // Looked up behind the token: a write in between takes the token away.
  async #from(marker, isExact) {
    try {
      const reply = await this.#connection.ask(`get ${marker}\r\n`, retrieved(marker));
      if (!reply.found) return { source: "local" };
      const place = isExact ? placeIn(reply.value) : undefined;
      return place ? { source: "local", place } : { source: "master" };
    } catch {
      return { source: "master" };
    }
  }

  // The server's word, or undefined after a failure.
  async #store(command, key, exptime, value, number) {
    try {
      return await this.#send(command, key, exptime, { flags: 0, value }, number);
    } catch {
      return undefined;
    }
  }

  // Sends a storage command; `number` is the token of lease-set or the unique of cas.
  async #send(command, key, exptime, { flags, value }, number) {
    const token = command === "lease-set" ? `${number} ` : "";
    const unique = command === "cas" ? ` ${number}` : "";
    const head = `${command} ${key} ${token}${flags} ${exptime} ${value.length}${unique}\r\n`;
    const request = Buffer.concat([Buffer.from(head), value, Buffer.from("\r\n")]);
    return (await this.#connection.ask(request, stored)).word;
  }

  // Gives a lease back, so that the next reader gets one at once. If it does not arrive, the lease
  // ends by its own time.
  #giveBack(key, { command, number }) {
    if (command === "lease-set") this.#store(command, key, -1, Buffer.alloc(0), number);
  }

  // Leads the key's flight, or begins one: the cache has chosen this caller to load.
  #lead(key) {
    const present = this.#flights.get(key);
    if (!present) return this.#begin(key);
    present.leaders++;
    return present;
  }

  #begin(key) {
    const flight = { leaders: 1, loaders: 0 };
    flight.outcome = new Promise((resolve) => (flight.settle = resolve));
    this.#flights.set(key, flight);
    return flight;
  }

  // Ends the call's part in the flight that it leads, and the flight: with a value; with an error,
  // unless another one loads; given up, if it was the last. The first outcome counts.
  #finish(call, outcome) {
    const { key, leader, loads } = call;
    if (!leader) return;
    call.leader = null;
    leader.leaders--;
    if (loads) leader.loaders--;
    if (outcome === GIVEN_UP ? leader.leaders > 0 : outcome.error && leader.loaders > 0) return;
    if (this.#flights.get(key) === leader) this.#flights.delete(key);
    leader.settle(outcome);
  }

  #left({ begun, waitTotal }) {
    return waitTotal - (performance.now() - begun);
  }
}
