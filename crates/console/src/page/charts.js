// Charts of the last minutes: of all members of a role, or of one member.
"use strict";

/** Points that are kept: a quarter of an hour at one a second. */
const POINTS_MAX = 900;

/** Steps of an axis of bytes. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

const FIGURES = {
  server: [
    ["Requests a second", "count", [["gets_per_second", "gets"], ["sets_per_second", "sets"], ["deletes_per_second", "deletes"]]],
    ["Hit ratio", "ratio", [["hit_ratio", "hits"]]],
    ["Time of a get in the server", "seconds", [["get_p50_seconds", "50 %"], ["get_p99_seconds", "99 %"], ["get_p999_seconds", "99.9 %"]]],
    ["Memory in use", "ratio", [["memory_ratio", "of -m"]]],
    ["Evictions a second", "count", [["evictions_per_second", "evictions"]]],
    ["Network, a second", "bytes", [["sent_bytes_per_second", "sent"], ["received_bytes_per_second", "received"]]],
  ],
  proxy: [
    ["Requests a second", "count", [["gets_per_second", "gets"], ["sets_per_second", "sets"], ["deletes_per_second", "deletes"]]],
    ["Errors a second", "count", [["errors_per_second", "errors"]]],
    ["Time of a server's answer", "seconds", [["p50_seconds", "50 %"], ["p99_seconds", "99 %"], ["p999_seconds", "99.9 %"]]],
    ["Mean time of an answer", "seconds", [["mean_seconds", "mean"]]],
    ["Servers away", "count", [["servers_away", "away"]]],
    ["Connections", "count", [["connections", "clients"]]],
    ["Network, a second", "bytes", [["sent_bytes_per_second", "sent"], ["received_bytes_per_second", "received"]]],
  ],
  invalidator: [
    ["Keys a second", "count", [["keys_per_second", "found"], ["delivered_per_second", "delivered"]]],
    ["Lag behind the database", "seconds", [["lag_seconds", "lag"]]],
    ["Age of the canary", "seconds", [["canary_seconds", "canary"]]],
    ["Age of the last check of the log", "seconds", [["check_age_seconds", "check"]]],
    ["Keys that wait", "count", [["waiting_keys", "waiting"]]],
  ],
};

/** The colour that a variable of the style has now. */
function colour(name) {
  const probe = make("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** The chart library. It runs when the first chart is drawn: it takes more time than the whole map. */
function library() {
  if (!window.uPlot) document.head.append(make("script", {}, at("library").textContent));
  return window.uPlot;
}

/** Lines over the last minutes, the newest numbers in words, and a table behind them. */
class Figure {
  constructor([title, unit, lines]) {
    this.unit = unit;
    this.lines = lines;
    this.words = lines.map(([, label]) => [make("em", {}, label), make("span")]);
    const legend = make("span", {}, ...this.words.map(([label, value]) => make("span", {}, label, " ", value)));
    this.plot = make("div", { className: "plot" });
    this.details = make("details", {}, make("summary", {}, "Table"));
    const place = make("div");
    this.details.append(place);
    this.table = new Table(place, title, ["Time", ...lines.map(([, label]) => [label, "n"])]);
    this.details.addEventListener("toggle", () => this.fill());
    this.element = make("figure", { className: "card" }, make("figcaption", {}, title, legend), this.plot, this.details);
    this.data = [[], ...lines.map(() => [])];
  }

  /** Draws anew, in the colours and the width of now. */
  draw() {
    this.chart?.destroy();
    const [ink, line] = [colour("soft"), colour("line")];
    const colours = ["accent", "second", "third"].map(colour);
    this.words.forEach(([label], place) => {
      label.style.borderColor = colours[place];
    });
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const top = this.unit === "ratio" ? 1 : null;
    this.chart = new (library())({
      width: Math.max(200, this.plot.clientWidth),
      height: 170,
      legend: { show: false },
      cursor: { y: false, points: { show: false } },
      scales: { y: { range: (_, __, most) => [0, top ?? (most > 0 ? most * 1.1 : 1)] } },
      axes: [
        { ...axis, size: 28, space: 70, values: (_, marks) => marks.map(clock) },
        { ...axis, size: 62, incrs: this.unit === "bytes" ? POWERS : undefined, values: (_, marks) => marks.map((mark) => shown(this.unit, mark)) },
      ],
      series: [{}, ...this.lines.map((_, place) => ({
        stroke: colours[place], width: 1.5, points: { show: false }, spanGaps: false,
      }))],
      hooks: { setCursor: [() => this.tell()] },
    }, this.data, this.plot);
    // What uPlot draws says the table, too.
    this.plot.setAttribute("aria-hidden", "true");
    this.tell();
  }

  show(data) {
    this.data = data;
    this.chart?.setData(data);
    this.tell();
    this.fill();
  }

  /** The numbers under the cursor, or else the newest. */
  tell() {
    const place = this.chart?.cursor.idx ?? this.data[0].length - 1;
    this.words.forEach(([, value], line) => say(value, shown(this.unit, this.data[line + 1][place])));
  }

  fill() {
    if (!this.details.open) return;
    const from = Math.max(0, this.data[0].length - 20);
    const rows = this.data[0].slice(from).map((time, place) => [
      clock(time),
      ...this.lines.map((_, line) => shown(this.unit, this.data[line + 1][from + place])),
    ]);
    this.table.fill(rows.reverse());
  }

  resize() {
    this.chart?.setSize({ width: Math.max(200, this.plot.clientWidth), height: 170 });
  }
}

const clock = (time) => new Date(time * 1000).toLocaleTimeString([], { hour12: false });

/** The view: the chosen subject's series, its figures, and what a member says of itself. */
const charts = {
  subject: "server",
  role: null,
  times: [],
  numbers: {},
  figures: [],

  async choose(subject) {
    this.subject = subject;
    this.role = null;
    const found = await ask("/api/history", { of: subject }).catch(() => null);
    if (this.subject !== subject) return;
    this.times = (found?.at_ms ?? []).map((time) => time / 1000);
    this.numbers = found?.numbers ?? {};
    this.begin(found?.role ?? "server");
    this.askMember();
  },

  begin(role) {
    this.role = role;
    this.figures.forEach((figure) => figure.chart?.destroy());
    this.figures = FIGURES[role].map((of) => new Figure(of));
    at("figures").replaceChildren(...this.figures.map((figure) => figure.element));
    this.figures.forEach((figure) => figure.draw());
    this.show();
  },

  /** Adds the numbers of a tick. */
  take(tick) {
    if (this.role === null) return;
    const member = tick.members.find(({ address }) => address === this.subject);
    const role = member?.role ?? this.subject;
    const numbers = member?.numbers ?? tick.totals[role] ?? {};
    const time = tick.at_ms / 1000;
    if (time <= (this.times.at(-1) ?? 0)) return;
    if (FIGURES[role] && role !== this.role) {
      // A member that was away has answered: now it is known what it is.
      [this.times, this.numbers] = [[], {}];
      this.begin(role);
    }
    for (const [name, number] of Object.entries(numbers)) {
      const series = (this.numbers[name] ??= this.times.map(() => null));
      series.push(number);
    }
    this.times.push(time);
    for (const series of [this.times, ...Object.values(this.numbers)]) {
      while (series.length < this.times.length) series.push(null);
      if (series.length > POINTS_MAX) series.splice(0, series.length - POINTS_MAX);
    }
    const state = at("subject-state");
    say(state, member ? [member.role, member.version, member.group, member.reason].filter(Boolean).join(" · ") : "");
    if (isShown("charts")) this.show();
  },

  show() {
    for (const figure of this.figures) {
      const series = figure.lines.map(([name]) => this.numbers[name] ?? this.times.map(() => null));
      figure.show([this.times, ...series]);
    }
  },

  redraw() {
    if (isShown("charts")) this.figures.forEach((figure) => figure.draw());
  },

  /** What one member says beside numbers of charts. */
  async askMember() {
    const place = at("member");
    const subject = this.subject;
    if (FIGURES[subject]) {
      place.replaceChildren();
      return;
    }
    const { stats } = await ask("/api/member", { address: subject }).catch(() => ({ stats: {} }));
    if (this.subject !== subject || !isShown("charts")) return;
    const isProxy = "num_servers" in stats;
    const of = `${isProxy ? "proxy" : "member"} ${subject}`;
    if (place.dataset.of !== of || place.childElementCount === 0) {
      place.dataset.of = of;
      const card = (title) => {
        const inner = make("div");
        return [make("div", { className: "card" }, make("h3", {}, title), inner), inner];
      };
      const [latencyCard, latency] = card(isProxy ? "Time of servers' answers" : "Time in the server by command");
      const [sightCard, sight] = card("Servers as this proxy sees them");
      const all = make("details", { className: "card" }, make("summary", {}, "All statistics"));
      const list = make("div");
      all.append(list);
      place.replaceChildren(latencyCard, sightCard, all);
      this.latency = [latencyCard, new Table(latency, "Quantiles of the last minutes", [isProxy ? "Answers of" : "Command", ["Median", "n"], ["99 %", "n"], ["99.9 %", "n"]])];
      this.sight = [sightCard, new Table(sight, "Destinations", ["Server", "State"])];
      this.stats = new Table(list, "As the member tells them", ["Name", ["Value", "n"]]);
    }
    // A server tells them by command, a proxy also since its start.
    const told = Object.keys(stats).map((name) => /^latency:(recent:.+|\w+):p50_seconds$/.exec(name)?.[1]).filter(Boolean);
    const quantile = (of, name) => shown("seconds", Number(stats[`latency:${of}:${name}_seconds`] ?? NaN));
    const label = (of) => of.replace(/^recent:/, "").replace(":", " ");
    this.latency[0].hidden = told.length === 0;
    this.latency[1].fill(told.map((of) => [label(of), ...["p50", "p99", "p999"].map((name) => quantile(of, name))]));
    const seen = Object.entries(stats).filter(([, value]) => value.includes("avg_latency_us:"));
    this.sight[0].hidden = seen.length === 0;
    this.sight[1].fill(seen.map(([name, value]) => [name, { text: value, kind: /_tko/.test(value) ? "bad" : "" }]));
    this.stats.fill(Object.entries(stats).map(([name, value]) => [name, value]));
  },
};
