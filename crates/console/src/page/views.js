// Keys, invalidation, advice, and the findings of the host.
"use strict";

const hot = {
  begin() {
    this.table = new Table(at("hot"), "Most requests first", ["Key", "Server", ["Requests a second", "n"], ["Share of the server's", "n"], ["", "bar"]]);
  },

  take({ hot_keys: keys }) {
    this.table.fill(keys.slice(0, 32).map(({ key, address, requests_per_second: rate, share_ratio: share }) => [
      { text: decoded(key), kind: "key", href: `#keys=${encodeURIComponent(decoded(key))}` },
      address, shown("count", rate), shown("ratio", share), { bar: share },
    ]), "No server tells hot keys: it needs holdall and some thousand requests a second.");
  },
};

const prefixes = {
  begin() {
    this.table = new Table(at("prefixes"), "The part of keys before the first colon, on all servers",
      ["Prefix", ["Items, hour", "n"], ["Bytes, hour", "n"], ["Bytes, day", "n"], ["Bytes, week", "n"], ["", "bar"]]);
  },

  show(servers) {
    const sums = new Map();
    for (const server of servers) {
      for (const [name, fields] of Object.entries(server.prefixes)) {
        const sum = sums.get(name) ?? sums.set(name, {}).get(name);
        for (const [field, number] of Object.entries(fields)) sum[field] = (sum[field] ?? 0) + number;
      }
    }
    const rows = [...sums].sort(([, one], [, other]) => (other.day_mean_bytes ?? 0) - (one.day_mean_bytes ?? 0)).slice(0, 32);
    const most = rows[0]?.[1].day_mean_bytes ?? 0;
    this.table.fill(rows.map(([name, sum]) => [
      { text: decoded(name), kind: "key" }, shown("count", sum.hour_items),
      ...["hour", "day", "week"].map((time) => shown("bytes", sum[`${time}_mean_bytes`])),
      { bar: most > 0 ? (sum.day_mean_bytes ?? 0) / most : 0 },
    ]), "No server takes samples of prefixes.");
  },
};

/** The way of a key, and the items that servers hold by its name. */
const way = {
  begin() {
    this.table = new Table(at("way-held"), "Items by this name", ["Server", "Holds", ["Size", "n"], ["Time to live", "n"], ["Last read", "n"], ["Class", "n"]]);
    at("way-held").hidden = true;
    at("way").addEventListener("submit", (event) => {
      event.preventDefault();
      this.look();
    });
  },

  async look() {
    const [key, op] = [at("key").value, at("op").value];
    say(at("way-says"), "asking …");
    const found = await ask("/api/key", { key, op }).catch((error) => ({ error: error.message }));
    at("way-held").hidden = Boolean(found.error);
    at("way-text").hidden = !found.explained;
    if (found.error) {
      say(at("way-says"), found.error);
      return;
    }
    const isAnswerer = (address) => (found.answered_by ?? []).includes(address);
    const held = found.servers.filter(({ state }) => state === "held").length;
    const words = `${held} of ${found.servers.length} servers hold an item of this name`;
    say(at("way-says"), found.answered_by?.length ? `${words}; ${op} is answered by ${found.answered_by.join(", ")}.` : `${words}.`);
    const ttl = (time) => (time === -1 ? "for ever" : shown("seconds", time));
    const order = { held: 0, unknown: 1, absent: 2 };
    const rank = ({ address, state }) => (isAnswerer(address) ? -1 : order[state]);
    const sorted = found.servers.sort((one, other) => rank(one) - rank(other));
    this.table.fill(sorted.map((item) => [
      item.address + (isAnswerer(item.address) ? " (answers)" : ""),
      { text: { held: "yes", absent: "no" }[item.state] ?? item.reason, kind: { held: "good", unknown: "bad" }[item.state] },
      shown("bytes", item.size_bytes), item.state === "held" ? ttl(item.ttl_seconds) : NONE,
      item.state !== "held" ? NONE : item.was_read ? `${shown("seconds", item.since_read_seconds)} ago` : "never",
      item.class ?? NONE,
    ]), "There is no server.");
    say(at("way-text"), found.explained ?? "");
  },
};

const invalidation = {
  begin() {
    this.clusters = new Table(at("clusters"), "By invalidator", ["Cluster", "Invalidator", "Connected", ["Lag", "n"], ["Canary", "n"], ["Log checked", "n"], ["Waiting", "n"], ["On disk", "n"], "Last error"]);
    this.stale = new Table(at("stale"), "Since each server's start", ["Server", ["Stale hits", "n"], ["Stale items", "n"], ["Leases", "n"], ["Waits", "n"],
      ["Refused sets", "n"], ["Hold-offs", "n"], ["Flushed prefixes", "n"]]);
    this.migrations = new Table(at("migrations"), "From the proxy's configuration", ["From", "To", "Begins", "Ends", ["Done", "n"], ["", "bar"]]);
  },

  async refresh() {
    const found = await ask("/api/invalidation").catch((failed) => ({ error: failed.message }));
    if (found.error === undefined) {
      this.showClusters(found);
      this.showServers(found.servers);
    } else {
      // What was true before may not be any more.
      this.clusters.fill([], unanswered(found.error));
      this.stale.fill([], unanswered(found.error));
    }
    this.showMigrations();
  },

  showClusters({ invalidators, unknown }) {
    const of = (fields, name) => Number(fields[name] ?? NaN);
    const connected = [{ text: "no", kind: "bad" }, { text: "yes", kind: "good" }];
    const away = (address, error, clusters) => (clusters.length > 0 ? clusters : [NONE]).map((name) =>
      [name, address, { text: "away", kind: "bad" }, NONE, { text: NONE }, { text: NONE }, NONE, NONE, error]);
    const none = unknown > 0
      ? `No invalidator is among the members that answer. ${counted(unknown, "member")} never did.`
      : "No invalidator is among the members: name the address of its status.";
    const checked = (age, late) => (age === null ? { text: NONE } : { text: `${shown("seconds", age / 1e3)} ago`, kind: late > 0 ? "bad" : "" });
    this.clusters.fill(invalidators.flatMap(({ address, error, clusters, check_age_ms: age, check_late: late }) => (error ? away(address, error, Object.keys(clusters)) : Object.entries(clusters).map(([name, fields]) => [
      name, address, connected[of(fields, "connected")] ?? { text: NONE },
      shown("seconds", of(fields, "lag_ms") / 1e3),
      { text: shown("seconds", of(fields, "canary_ms") / 1e3), kind: of(fields, "canary_late") > 0 ? "bad" : "" },
      checked(age, late),
      shown("count", of(fields, "waiting")), shown("bytes", of(fields, "spool_bytes")), fields.last_error ?? NONE,
    ]))), none);
  },

  showServers(servers) {
    const names = ["stale_hits", "stale_items", "lease_issued", "lease_waits", "lease_set_rejected", "holdoffs", "prefixes_invalidated"];
    const told = servers.filter(({ stats }) => Object.keys(stats).length > 0);
    const sum = (name) => told.reduce((all, { stats }) => all + (stats[name] ?? 0), 0);
    const all = told.length > 1 ? [[`all ${told.length}`, ...names.map((name) => shown("count", sum(name)))]] : [];
    this.stale.fill([...all, ...told.map(({ address, stats }) => [address, ...names.map((name) => shown("count", stats[name]))])],
      "No server tells them.");
  },

  showMigrations() {
    const now = Date.now() / 1000;
    const date = (time) => new Date(time * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    this.migrations.fill((routes.found?.migrations ?? []).map(({ from, to, start_seconds: start, interval_seconds: interval }) => {
      const done = Math.max(0, Math.min(1, interval > 0 ? (now - start) / interval : Number(now >= start)));
      return [from, to, date(start), date(start + interval), shown("ratio", done), { bar: done }];
    }), routes.found?.error ? unanswered(routes.found.error) : routes.found === null ? "They stand in the proxy's configuration: give --config." : "The configuration has none.");
  },
};

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** What stands in place of an answer that failed: no answer is not a good one. */
const unanswered = (error) => `This could not be asked: ${error || "the console gave no reason"}`;

/** An entry of a list: its weight, a title, and lines. */
function item([weight, kind], title, lines, command) {
  return make("article", { className: "card item" },
    make("h3", {}, make("span", { className: `rank ${kind}` }, weight), title),
    ...lines.map((line) => make("p", {}, line)),
    command ? make("pre", { tabIndex: 0 }, command) : null);
}

const advice = {
  async refresh() {
    const { advice: list, waiting, error } = await ask("/api/advice").catch((failed) => ({ advice: [], error: failed.message }));
    const begun = waiting > 0 ? `Waiting for the second answer of ${waiting} members. ` : "";
    const found = list.length === 0 ? "Nothing to change." : `${counted(list.length, "thing")} to change, the most urgent first.`;
    say(at("advice-says"), error === undefined ? begun + found : unanswered(error));
    const kinds = { now: "bad", "worth it": "warn", note: "note" };
    fillOnce(at("advice-list"), list, (one) =>
      item([one.rank, kinds[one.rank]], one.finding, [one.members.join(", "), one.evidence], one.command));
  },
};

const host = {
  async refresh() {
    const answer = await ask("/api/doctor").catch((failed) => ({ error: failed.message }));
    const list = answer.error === undefined ? answer : [];
    const warnings = list.filter(({ level }) => level === "warning");
    const notes = list.filter(({ level }) => level !== "warning");
    const found = list.length === 0 ? "Nothing found." : `${counted(warnings.length, "warning")}, ${counted(notes.length, "note")}.`;
    say(at("host-says"), answer.error === undefined ? found : unanswered(answer.error));
    fillOnce(at("host-list"), [...warnings, ...notes], (one) =>
      item([one.level, one.level === "warning" ? "warn" : "note"], `${one.check}: ${one.found}`, [one.why], one.command));
  },
};

/** Builds a list anew if what it shows has changed. */
function fillOnce(place, list, build) {
  const text = JSON.stringify(list);
  if (place.dataset.shown === text) return;
  place.dataset.shown = text;
  place.replaceChildren(...list.map(build));
}
