// The map: regions, their clusters, and a tile for each member; the pools of the proxy's configuration.
"use strict";

const ROLES = ["server", "proxy", "invalidator"];

/** The place of a member: by group, role and address, 10.0.0.9 before 10.0.0.10. A collator of the browser takes long to begin. */
const order = ({ group, role, address }) =>
  [group, ROLES.indexOf(role), address.replace(/\d+/g, (digits) => digits.padStart(10, "0"))].join("\n");

/** A tile: a link to the member's charts whose texts change and whose nodes stay. */
class Tile {
  constructor(address) {
    this.name = make("b", {}, address);
    this.left = make("span", {}, "");
    this.right = make("span", {}, "");
    this.why = make("span", { className: "why" });
    this.bar = make("i");
    const numbers = make("span", {}, this.left, this.right);
    this.element = make("a", { className: "tile", href: `#charts=${encodeURIComponent(address)}`, title: address }, this.name, numbers, this.why, this.bar);
  }

  show(member, most) {
    const of = member.numbers;
    if (this.element.dataset.health !== member.health) this.element.dataset.health = member.health;
    const texts = {
      server: [`${shown("count", of.gets_per_second)} gets/s`, `${shown("ratio", of.hit_ratio)}`],
      proxy: [`proxy ${shown("count", of.gets_per_second)}/s`, shown("seconds", of.mean_seconds)],
      invalidator: [`deletes ${shown("count", of.delivered_per_second)}/s`, `lag ${shown("seconds", of.lag_seconds)}`],
    }[member.role];
    const isAway = member.health === "away" || member.health === "unknown";
    say(this.left, isAway ? (member.health === "away" ? "away" : "not asked yet") : texts[0]);
    say(this.right, isAway ? "" : texts[1]);
    say(this.why, member.reason);
    this.why.hidden = member.reason === "";
    const share = most > 0 ? (of.gets_per_second ?? 0) / most : 0;
    this.bar.style.setProperty("--share", share.toFixed(3));
  }
}

const map = {
  tiles: new Map(),
  groups: new Map(),
  layout: "",

  take(tick) {
    const ordered = tick.members.map((member) => [order(member), member]);
    const members = ordered.sort(([one], [other]) => (one < other ? -1 : Number(one > other))).map(([, member]) => member);
    const layout = members.map(({ group, address }) => `${group} ${address}`).join("\n");
    if (layout !== this.layout) {
      this.layout = layout;
      this.build(members);
    }
    const most = Math.max(0, ...members.map(({ numbers }) => numbers.gets_per_second ?? 0));
    members.forEach((member) => this.tiles.get(member.address).show(member, most));
    for (const [group, place] of this.groups) {
      const own = members.filter((member) => member.group === group);
      const servers = own.filter(({ role }) => role === "server");
      const away = own.filter(({ health }) => health === "away").length;
      const gets = servers.reduce((sum, { numbers }) => sum + (numbers.gets_per_second ?? 0), 0);
      say(place, `${counted(own.length, "member")}${away ? `, ${away} away` : ""} · ${shown("count", gets)} gets/s`);
    }
    this.sums(tick, members);
    routes.take(members);
  },

  /** Regions with their clusters; members without a group stand in one. */
  build(members) {
    const regions = new Map();
    this.tiles.clear();
    this.groups.clear();
    for (const { group, address } of members) {
      const [region, cluster] = group.includes("/") ? group.split(/\/(.*)/) : ["", group || "Tier"];
      const clusters = regions.get(region) ?? regions.set(region, new Map()).get(region);
      const tiles = clusters.get(cluster) ?? clusters.set(cluster, []).get(cluster);
      const tile = new Tile(address);
      this.tiles.set(address, tile);
      tiles.push([group, tile.element]);
    }
    const built = [...regions].map(([region, clusters]) => {
      const cards = [...clusters].map(([cluster, tiles]) => {
        const rate = make("span");
        this.groups.set(tiles[0][0], rate);
        const inner = make("div", { className: "tiles" }, ...tiles.map(([, element]) => element));
        return make("div", { className: "card cluster" }, make("h4", {}, cluster, rate), inner);
      });
      const frame = make("div", { className: cards.length === 1 ? "clusters one" : "clusters" }, ...cards);
      return make("div", { className: "region" }, region ? make("h3", {}, `Region ${region}`) : null, frame);
    });
    at("regions").replaceChildren(...built);
  },

  sums(tick, members) {
    const server = tick.totals.server ?? {};
    const ill = members.filter(({ health }) => health === "away" || health === "trouble").length;
    const all = [
      ["Members that are well", `${members.length - ill} of ${members.length}`],
      ["Gets a second", shown("count", server.gets_per_second)],
      ["Hit ratio", shown("ratio", server.hit_ratio)],
      ["Slowest 99 %", shown("seconds", server.get_p99_seconds)],
      ["Memory in use", shown("ratio", server.memory_ratio)],
      ["Evictions a second", shown("count", server.evictions_per_second)],
    ];
    const list = at("sums");
    if (list.childElementCount === 0) {
      list.append(...all.map(([name]) => make("div", {}, make("dt", {}, name), make("dd"))));
    }
    all.forEach(([, text], place) => say(list.children[place].lastElementChild, text));
  },
};

/** The pools of the proxy's configuration with the rates of their servers. */
const routes = {
  found: null,
  table: null,

  async begin() {
    this.found = await ask("/api/routes").catch((error) => ({ error: error.message }));
    if (this.found === null) return;
    const place = at("routes");
    if (this.found.error) {
      place.replaceChildren(make("div", { className: "card" }, make("h3", {}, "Routes"), make("pre", { tabIndex: 0 }, this.found.error)));
      return;
    }
    const [pools, prefixes] = [make("div"), make("div")];
    place.replaceChildren(make("div", { className: "card" }, make("h3", {}, "Routes"), prefixes, pools));
    new Table(prefixes, "Prefixes of keys", ["Prefix", "Route"]).fill(
      this.found.prefixes.map(({ listener, prefix, route, name }) => [
        { text: [listener, prefix].filter(Boolean).join(" ") || "every key", kind: "key" },
        name && name !== route ? `${route} ${name}` : route,
      ]), "There is no route.");
    this.table = new Table(pools, "Pools", ["Pool", ["Servers", "n"], ["Away", "n"], ["Gets a second", "n"], ["Share", "bar"]]);
    if (last !== null) this.take(last.members);
  },

  take(members) {
    if (this.table === null) return;
    const known = new Map(members.map((member) => [member.address, member]));
    const pools = this.found.pools.map(({ name, servers }) => {
      const own = servers.map((server) => known.get(server)).filter(Boolean);
      const gets = own.reduce((sum, { numbers }) => sum + (numbers.gets_per_second ?? 0), 0);
      return [name, servers.length, own.filter(({ health }) => health === "away").length, gets];
    });
    const all = pools.reduce((sum, [, , , gets]) => sum + gets, 0);
    this.table.fill(pools.map(([name, servers, away, gets]) => [
      name, servers, { text: away, kind: away > 0 ? "bad" : "" }, shown("count", gets), { bar: all > 0 ? gets / all : 0 },
    ]), "There is no pool.");
  },
};
