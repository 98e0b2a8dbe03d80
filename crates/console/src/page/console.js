// The frame: views by the address's fragment, the stream of ticks, keys, and the scheme.
"use strict";

/** The views in order: id, name, what is done each time it is shown, and how often again, in seconds. */
const VIEWS = [
  ["map", "Map", () => {}, 0],
  ["charts", "Charts", () => charts.askMember(), 10],
  ["memory", "Memory", () => memory.refresh(), 10],
  ["keys", "Keys", () => memory.refresh(), 10],
  ["invalidation", "Invalidation", () => invalidation.refresh(), 2],
  ["advice", "Advice", () => advice.refresh(), 10],
  ["host", "Host", () => host.refresh(), 60],
];

let view = "map";

/** What the page was sent with: the last tick, the token of actions, and whether there is a configuration. */
const state = JSON.parse(at("state").textContent);
let last = state.tick;

const isShown = (id) => view === id;

/** Fills a select, and keeps what is chosen. */
function fillChoice(place, names) {
  const text = JSON.stringify(names);
  if (place.dataset.names === text) return;
  const chosen = place.value;
  place.dataset.names = text;
  place.replaceChildren(...names.map(([value, name]) => make("option", { value }, name)));
  if (names.some(([value]) => value === chosen)) place.value = chosen;
}

/** Shows the view of the fragment: `#charts`, or `#charts=ADDRESS`. */
function go() {
  const [, id, of] = /^#?([^=]*)=?(.*)$/.exec(location.hash);
  const found = VIEWS.find(([known]) => known === id) ?? VIEWS[0];
  view = found[0];
  for (const [known] of VIEWS) at(known).hidden = known !== view;
  for (const link of at("views").querySelectorAll("a")) {
    if (link.hash === `#${view}`) {
      link.setAttribute("aria-current", "page");
      // With the next frame, in which the view is laid out anyway.
      requestAnimationFrame(() => link.scrollIntoView({ block: "nearest", inline: "nearest" }));
    } else {
      link.removeAttribute("aria-current");
    }
  }
  document.title = `${found[1]} – holdall console`;
  if (view === "charts") {
    const subject = decoded(of) || (charts.role === null ? "server" : charts.subject);
    at("subject").value = subject;
    if (subject !== charts.subject || charts.role === null) charts.choose(subject);
    else charts.redraw();
  }
  if (view === "memory") memory.redraw();
  if (view === "keys" && of) {
    at("key").value = decoded(of);
    way.look();
  }
  found[2]();
  if (last !== null) take(last);
}

/** Takes a tick. */
function take(tick) {
  last = tick;
  charts.take(tick);
  if (isShown("map")) map.take(tick);
  if (isShown("keys")) hot.take(tick);
  const roles = Object.keys(tick.totals).map((role) => [role, `all ${role === "proxy" ? "proxies" : `${role}s`}`]);
  fillChoice(at("subject"), [...roles, ...tick.members.map(({ address }) => [address, address])]);
  if (at("subject").value !== charts.subject) at("subject").value = charts.subject;
  const away = tick.members.filter(({ health }) => health === "away").length;
  tell(away === 0 ? "live" : `live, ${away} of ${tick.members.length} away`, false);
}

function tell(words, isLost) {
  say(at("pulse"), words);
  at("pulse").classList.toggle("lost", isLost);
}

let events = null;

/** Follows the ticks while the page can be seen: browsers have few connections to a host. */
function listen() {
  events?.close();
  events = null;
  if (document.hidden) return;
  events = new EventSource("/events");
  events.addEventListener("message", ({ data }) => take(JSON.parse(data)));
  // The browser connects again by itself.
  events.addEventListener("error", () => tell("the console does not answer", true));
}

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function redraw() {
  say(at("theme"), isDark() ? "Light" : "Dark");
  charts.redraw();
  memory.redraw();
}

function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // A browser that keeps nothing asks the system each time.
  }
  redraw();
}

const KEYS = [
  ...VIEWS.map(([id, name], place) => [String(place + 1), name, () => { location.hash = id; }]),
  ["/", "Look for a key", () => { location.hash = "keys"; setTimeout(() => at("key").focus()); }],
  ["t", "Light or dark", toggleTheme],
  ["?", "These keys", () => at("help").showModal()],
];

function press(event) {
  const isTyping = event.target.closest?.("input:not([type=range], [type=checkbox]), select, textarea, dialog");
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey || !at("shortcuts").checked) return;
  const key = KEYS.find(([name]) => name === event.key);
  if (key) {
    event.preventDefault();
    key[2]();
  }
}

function begin() {
  const [theme] = [(() => { try { return localStorage.getItem("theme"); } catch { return null; } })()];
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  at("views").append(...VIEWS.map(([id, name]) => make("li", {}, make("a", { href: `#${id}` }, name))));
  for (const [name, words] of KEYS) at("help-keys").append(make("dt", {}, make("kbd", {}, name)), make("dd", {}, words));
  [hot, prefixes, way, memory, invalidation].forEach((part) => part.begin());
  at("subject").addEventListener("change", () => { location.hash = `charts=${encodeURIComponent(at("subject").value)}`; });
  at("theme").addEventListener("click", toggleTheme);
  at("help-open").addEventListener("click", () => at("help").showModal());
  addEventListener("keydown", press);
  document.addEventListener("visibilitychange", () => {
    listen();
    if (!document.hidden && charts.role !== null) charts.choose(charts.subject);
  });
  addEventListener("hashchange", () => { go(); at("main").focus({ preventScroll: true }); scrollTo(0, 0); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => { charts.figures.forEach((figure) => figure.resize()); memory.redraw(); }).observe(at("main"));
  setInterval(() => {
    const [, , refresh, every] = VIEWS.find(([id]) => id === view);
    seconds_open += 1;
    if (every > 0 && seconds_open % every === 0 && !document.hidden) refresh();
  }, 1000);
  redraw();
  go();
  listen();
  flush.begin(state.token);
  const routesKnown = state.has_config ? routes.begin() : Promise.resolve();
  routesKnown.then(() => servers.begin(state.token));
}

let seconds_open = 0;
begin();
