// What changes something: each says what it will do, and waits for an assent.
"use strict";

/** Asks for an assent; false without one. */
function assent(title, says, verb) {
  say(at("confirm-h"), title);
  say(at("confirm-says"), says);
  say(at("confirm-do"), verb);
  at("confirm").returnValue = "no";
  at("confirm").showModal();
  return new Promise((done) => {
    at("confirm").addEventListener("close", () => done(at("confirm").returnValue === "yes"), { once: true });
  });
}

/** Does it, by the token that this page alone has; the answer, or an error with the reason. */
async function act(token, action, body) {
  const answer = await fetch(`/api/${action}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-console-token": token },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

const flush = {
  begin(token) {
    at("flush-card").hidden = !token;
    this.table = new Table(at("flush-says"), "Done", ["Server", "Answer"]);
    at("flush-says").hidden = true;
    at("flush").addEventListener("submit", async (event) => {
      event.preventDefault();
      const prefix = at("prefix").value;
      const says = `Everything stored until now under keys that begin with “${prefix}” becomes a miss on every server ` +
        `of this tier (${map.tiles.size} members are known). Databases get the reads. This cannot be undone.`;
      if (await assent("Flush this prefix?", says, "Flush")) this.act(token, prefix);
    });
  },

  async act(token, prefix) {
    const rows = await act(token, "flush", { prefix }).then(
      ({ servers }) => servers.map(({ address, error }) => [address, { text: error ?? "flushed", kind: error ? "bad" : "good" }]),
      (error) => [["the console", { text: error.message, kind: "bad" }]]);
    at("flush-says").hidden = false;
    this.table.fill(rows);
  },
};

/** Servers that leave the pools of the proxy's configuration, and servers that come. */
const servers = {
  begin(token) {
    at("servers-card").hidden = !token || !routes.found?.pools;
    this.fill();
    at("drain").addEventListener("submit", (event) => {
      event.preventDefault();
      this.change(token, "drain", { server: at("drained").value });
    });
    at("add").addEventListener("submit", (event) => {
      event.preventDefault();
      this.change(token, "add", { server: at("added").value.trim(), pool: at("pool").value });
    });
  },

  fill() {
    const pools = routes.found?.pools ?? [];
    const all = [...new Set(pools.flatMap(({ servers: own }) => own))];
    fillChoice(at("drained"), all.map((server) => [server, server]));
    fillChoice(at("pool"), pools.map(({ name }) => [name, name]));
  },

  async change(token, action, wish) {
    const place = at("servers-says");
    const tell = (error) => say(place, error.message);
    say(place, "looking what it would do …");
    const found = await ask("/api/change", { action, ...wish }).catch(tell);
    if (!found) return;
    const pools = found.pools.map(({ name, servers_before: before, servers_after: after }) => `${name} (from ${before} servers to ${after})`);
    const what = action === "drain"
      ? `${wish.server} leaves the pools: ${pools.join(", ")}. Requests under way end there; it goes on running until somebody ends it.`
      : `${wish.server} joins the pool ${pools.join(", ")}.`;
    const says = `${what} ${shown("ratio", found.moved_ratio)} of keys without a prefix move to another server, where they are misses at first: ` +
      `databases get these reads. It is written into ${found.file}, and the old text into ${found.file}.before. Proxies that read this file ` +
      "take it within a second; copies on other hosts are yours to change.";
    say(place, "");
    if (!await assent(action === "drain" ? "Drain this server?" : "Add this server?", says, action === "drain" ? "Drain" : "Add")) return;
    const done = await act(token, action, wish).catch(tell);
    if (!done) return;
    await routes.begin();
    this.fill();
    if (last !== null) take(last);
    say(place, action === "drain" ? `${wish.server} was drained.` : `${wish.server} was added.`);
  },
};

