// Runs the file of scenarios that HOLDALL_SCENARIOS names, at each of HOLDALL_TARGETS,
// "name=host:port" separated by blanks.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Position } from "./index.js";

const scenarios = readFileSync(process.env.HOLDALL_SCENARIOS, "utf8").trim().split("\n");

// Sends raw bytes; the reply, of as many lines as are expected.
function exchange(port, request, lines) {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(request));
    let got = "";
    socket.on("error", reject);
    socket.setTimeout(20_000, () => reject(new Error(`no reply to ${request}`)));
    socket.on("data", (chunk) => {
      got += chunk;
      if (got.split("\n").length > lines) {
        resolve(got);
        socket.destroy();
      }
    });
    socket.on("close", () => resolve(got));
  });
}

class Run {
  constructor(target, address, number) {
    this.target = target;
    this.client = new Client(address, { timeout: 60_000 });
    this.port = Number(address.split(":").at(-1));
    this.words = { k: `node:${target}:${number}` };
    this.results = [];
  }

  fill(text) {
    return text.replace(/\{(\w+)\}/g, (whole, word) => this.words[word] ?? whole);
  }

  async steps(steps) {
    for (const step of steps) {
      if (step.wire) await this.wire(step);
      else if (step.read) await this.read(step);
      else if (step.delete) await this.client.delete(this.fill(step.delete));
      else if (step.write) await this.write(step);
      else if (step.position !== undefined) this.position(step);
      else {
        for (let n = 0; n < step.repeat; n++) {
          this.words.n = String(n);
          await this.steps(step.steps);
        }
      }
    }
  }

  // A write under a marker; with places by a writer for each, none of which ends before all of them
  // have begun.
  async write({ write, error }) {
    const { key, markers: prefix, ttl, at, marked = true } = write;
    let begun = 0;
    let all;
    const haveBegun = new Promise((resolve) => (all = resolve));
    const writer = (text) => async () => {
      if (++begun === at.length) all();
      await haveBegun;
      await this.steps(write.during ?? []);
      if (write.fails) throw new Error(write.fails);
      return { place: Position.parse(text), result: "done" };
    };
    const markers = { prefix, ttl };
    const calls = at
      ? at.map((text) => this.client.writeMarkedAt(this.fill(key), writer(text), markers))
      : [this.client.writeMarked(this.fill(key), () => "done", markers)];
    for (const call of calls) {
      if (error) await assert.rejects(call, { message: error });
      else assert.deepEqual(await call, { result: "done", marked, deleted: marked });
    }
    this.results.push("written");
  }

  position({ position, text, query }) {
    if (text === undefined) {
      assert.throws(() => Position.parse(position), TypeError, position);
      this.results.push("none");
      return;
    }
    const place = Position.parse(position);
    assert.deepEqual([`${place}`, place.reachedQuery], [text, query]);
    this.results.push(`${place}`);
  }

  // The reply's {token} is any number above 1.
  async wire({ wire, reply, until }) {
    const lines = reply.split("\n").length - 1;
    for (let left = 4000; ; left--) {
      const got = await exchange(this.port, this.fill(wire), lines);
      const [before, after] = reply.split("{token}").map((part) => this.fill(part));
      if (after === undefined && got === before) return;
      const token = after === undefined ? "" : got.slice(before.length, got.length - after.length);
      if (/^\d+$/.test(token) && BigInt(token) > 1n && got === before + token + after) {
        this.words.token = token;
        return;
      }
      if (!until || left === 0) assert.fail(`${wire}: got ${got}, want ${reply}`);
      await sleep(5);
    }
  }

  async read(step) {
    const { read } = step;
    const controller = new AbortController();
    let loads = 0;
    let from;
    const load = async ({ source, place }) => {
      loads++;
      from = place ? `${source} ${place}` : source;
      await this.steps(read.during ?? []);
      await sleep(read.takes_ms ?? 0);
      if (read.cancelled) controller.abort(new Error("cancelled"));
      if (read.fails) throw new Error(read.fails);
      return read.returns ?? "";
    };
    const given = {
      exptime: read.exptime,
      takesStale: read.takes_stale,
      waitTotal: read.wait_total_ms,
      earlyRefresh: read.early_refresh,
      markers: read.markers && { prefix: read.markers, exact: read.exact },
      signal: controller.signal,
    };
    const options = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    const call = () =>
      this.client.getOrLoad(this.fill(read.key), load, options).then(
        (value) => ({ value: value.toString() }),
        (error) => ({ error: error.message }),
      );
    const others = read.then ? sleep(read.after_ms).then(() => this.steps(read.then)) : null;
    const results = await Promise.all(Array.from({ length: read.callers ?? 1 }, call));
    await others;
    const want = step.error === undefined ? { value: step.value } : { error: step.error };
    for (const result of results) assert.deepEqual(result, want);
    assert.deepEqual([loads, from], [step.loads, step.source]);
    this.results.push(`${loads} loads`);
  }
}

for (const target of process.env.HOLDALL_TARGETS.split(" ")) {
  const [name, address] = target.split("=");
  scenarios.forEach((line, number) => {
    const scenario = JSON.parse(line);
    if (!scenario.on.includes(name)) return;
    test(`${scenario.name} at ${name}`, async () => {
      const run = new Run(name, address, number);
      try {
        await run.steps(scenario.steps);
      } finally {
        run.client.close();
      }
      for (const result of run.results) {
        console.log(`result: ${scenario.name} at ${name}: ${result}`);
      }
    });
  });
}
