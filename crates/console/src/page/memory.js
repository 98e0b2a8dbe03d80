// Memory: the hits that more or less of it would bring, the working set, slab classes and bags.
"use strict";

/** Hits at a multiple of the memory: between the points that a server tells, straight over the logarithm. */
function hitsAt(curve, factor) {
  const x = Math.log2(factor);
  let [before] = curve;
  for (const point of curve) {
    if (point.memory_factor >= factor) {
      const [from, to] = [Math.log2(before.memory_factor), Math.log2(point.memory_factor)];
      const share = to > from ? (x - from) / (to - from) : 0;
      return before.hit_ratio + (point.hit_ratio - before.hit_ratio) * share;
    }
    before = point;
  }
  return before.hit_ratio;
}

/** One curve of several servers, each weighed by its gets. */
function joint(servers) {
  const weight = ({ gets_per_second: gets }) => Math.max(gets ?? 0, 1e-6);
  const all = servers.reduce((sum, server) => sum + weight(server), 0);
  return servers[0].curve.map(({ memory_factor }) => ({
    memory_factor,
    bytes: servers.reduce((sum, { curve }) => sum + bytesAt(curve, memory_factor), 0),
    hit_ratio: servers.reduce((sum, server) => sum + hitsAt(server.curve, memory_factor) * weight(server), 0) / all,
  }));
}

const bytesAt = (curve, factor) => (curve.find(({ memory_factor }) => memory_factor === 1)?.bytes ?? 0) * factor;

const memory = {
  servers: [],
  chart: null,

  begin() {
    const from = ["Server", ["Limit", "n"], ["Last hour", "n"], ["Last day", "n"], ["Last week", "n"], "Eviction"];
    this.working = new Table(at("working"), "Bytes of items that were used", from);
    this.points = new Table(at("curve-table"), "Predicted hit ratio", ["Memory", ["Bytes", "n"], ["Hits", "n"]]);
    at("factor").addEventListener("input", () => this.tell());
    at("cache").addEventListener("change", () => this.show(true));
  },

  async refresh() {
    this.servers = await ask("/api/samples").catch(() => this.servers);
    const names = [["", "all servers"], ...this.servers.map(({ address }) => [address, address])];
    fillChoice(at("cache"), names);
    this.show(false);
    prefixes.show(this.servers);
  },

  /** The curve of what is chosen; `isNew` asks for its slabs at once. */
  show(isNew) {
    const chosen = at("cache").value;
    const own = this.servers.filter(({ address }) => chosen === "" || address === chosen);
    const told = own.filter(({ curve, sampled_reads: reads }) => curve.length > 1 && reads > 0);
    at("curve-none").hidden = told.length > 0;
    at("curve-body").hidden = told.length === 0;
    if (told.length > 0) {
      this.curve = joint(told);
      this.gets = told.reduce((sum, { gets_per_second: gets }) => sum + (gets ?? 0), 0);
      this.points.fill(this.curve.map(({ memory_factor: factor, bytes, hit_ratio: hits }) =>
        [`${factor} times`, shown("bytes", bytes), shown("ratio", hits)]));
      this.draw();
      this.tell();
    }
    this.working.fill(own.map((server) => [
      server.address,
      ...["limit_bytes", "hour_bytes", "day_bytes", "week_bytes"].map((name) => shown("bytes", server[name])),
      server.eviction_policy ? `${server.eviction_policy}, newcomers ${server.newcomer_factor}x${server.weighs_size === "yes" ? ", by size" : ""}` : NONE,
    ]), "No server takes samples.");
    if (isNew || at("slabs").dataset.of !== chosen) this.askSlabs(chosen);
  },

  draw() {
    const place = at("curve");
    const data = [this.curve.map(({ memory_factor }) => memory_factor), this.curve.map(({ hit_ratio }) => hit_ratio)];
    if (this.chart) {
      this.chart.setData(data);
      return;
    }
    const [ink, line, accent, fill] = ["soft", "line", "accent", "fill"].map(colour);
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    this.chart = new (library())({
      width: Math.max(200, place.clientWidth),
      height: 240,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, distr: 3, log: 2, range: [0.125, 8] }, y: { range: [0, 1] } },
      axes: [
        { ...axis, size: 28, splits: () => [0.125, 0.25, 0.5, 1, 2, 4, 8], values: (_, marks) => marks.map((mark) => (mark === null ? "" : `${mark}x`)) },
        { ...axis, size: 62, values: (_, marks) => marks.map((mark) => shown("ratio", mark)) },
      ],
      series: [{}, { stroke: accent, width: 2, points: { show: true, size: 5, fill: accent }, fill }],
      hooks: { draw: [(chart) => this.mark(chart, colour("second"))] },
    }, data, place);
    place.setAttribute("aria-hidden", "true");
  },

  /** The line where the slider stands. */
  mark(chart, stroke) {
    const { ctx, bbox } = chart;
    const x = chart.valToPos(this.factor(), "x", true);
    ctx.save();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  },

  factor: () => 2 ** Number(at("factor").value),

  tell() {
    if (!this.curve) return;
    const [factor, now] = [this.factor(), hitsAt(this.curve, 1)];
    const hits = hitsAt(this.curve, factor);
    const points = (hits - now) * 100;
    const reads = Math.abs(hits - now) * this.gets;
    const words = `${factor.toFixed(2)} times the memory (${shown("bytes", bytesAt(this.curve, factor))}): ${shown("ratio", hits)} hits, ` +
      `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(1)} points; ${shown("count", reads)} database reads a second ${points < 0 ? "more" : "less"}.`;
    say(at("curve-says"), words);
    at("factor").setAttribute("aria-valuetext", words);
    this.chart?.redraw(false);
  },

  redraw() {
    this.chart?.destroy();
    this.chart = null;
    if (this.curve && isShown("memory")) this.draw();
  },

  async askSlabs(address) {
    const place = at("slabs");
    if (place.dataset.of !== address) place.replaceChildren();
    place.dataset.of = address;
    at("slabs-none").hidden = address !== "";
    if (address === "") return;
    const { classes, error } = await ask("/api/slabs", { address }).catch((failed) => ({ error: failed.message }));
    if (place.dataset.of !== address) return;
    if (error) {
      place.replaceChildren(make("p", { className: "soft" }, error));
      return;
    }
    if (!this.slabs || place.childElementCount === 0) {
      const heads = ["Class", ["Chunk", "n"], ["Pages", "n"], ["Items", "n"], ["Used", "n"], ["Chunks in use", "bar"], ["Oldest", "n"], ["Evicted", "n"], "Bags"];
      this.slabs = new Table(place, "Slab classes; bags from the oldest to the newest, proven items in the second colour", heads);
    }
    const used = ({ used_chunks: chunks, total_chunks: all }) => (all > 0 ? chunks / all : 0);
    this.slabs.fill(classes.filter(({ total_pages: pages }) => pages > 0).map((of) => [
      of.class, shown("bytes", of.chunk_size), of.total_pages, shown("count", of.number), shown("ratio", used(of)), { bar: used(of) },
      shown("seconds", of.age), shown("count", of.evicted), of.bags.length > 0 ? { bags: of.bags } : NONE,
    ]), "The server has no slab classes.");
  },
};
