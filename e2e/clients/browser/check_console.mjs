// Opens `holdall console` in Chromium: every view at three widths, light and dark, must be drawn, log nothing to the console, be no wider
// than the window, and have no serious finding of axe. It then tests keyboard use, hostile keys, and some thousand updates without
// growth. Measurements are printed and never judged.
//
// Usage: node check_console.mjs URL --hostile KEY --proxy ADDRESS [--minutes N] [--shots FOLDER], or URL --login USER:PASSWORD --flush PREFIX, or URL --login
// USER:PASSWORD --drain SERVER --add POOL, or URL --beside MEMBERS, or URL --invalidator here|away, or URL --measure MEMBERS; the browser is CHROMIUM, or
// /usr/bin/chromium. CONSOLE_ROUNDS is the number of measured loads.

import { strict as assert } from "node:assert";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./browser.mjs";

const [url, ...words] = process.argv.slice(2);
const word = (name) => (words.includes(name) ? words[words.indexOf(name) + 1] : null);
const [shots, hostile, login, minutes] = [word("--shots"), word("--hostile"), word("--login"), Number(word("--minutes") ?? 0)];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Each view, and an element that exists once it is drawn. */
const VIEWS = [
  ["map", "#regions .tile[data-health=good]"],
  ["charts", "#figures figure canvas"],
  ["memory", "#working tbody tr"],
  ["keys", "#hot tbody tr"],
  ["invalidation", "#stale tbody tr"],
  ["advice", "#advice-says:not(:empty)"],
  ["host", "#host-says:not(:empty)"],
];

let checks = 0;
const check = (is, said) => {
  assert.ok(is, said);
  checks += 1;
};

const [username, password] = (login ?? ":").split(":");
const { browser, close } = await launch(login === null ? {} : { httpCredentials: { username, password } });
try {
  if (login !== null && words.includes("--flush")) {
    await flush(word("--flush"));
  } else if (login !== null) {
    await change(word("--drain"), word("--add"));
  } else if (words.includes("--beside")) {
    await beside(Number(word("--beside")));
  } else if (words.includes("--invalidator")) {
    await invalidator(word("--invalidator") === "away");
  } else if (words.includes("--measure")) {
    await drawAlone(Number(word("--measure")));
    await measure();
  } else {
    for (const width of [360, 768, 1400]) {
      for (const colorScheme of ["light", "dark"]) {
        await look(width, colorScheme);
      }
    }
    await press();
    await findHostile();
    await findUnanswered();
    await lookAtProxy(word("--proxy"));
    await grow();
    if (minutes > 0) await stay();
  }
} finally {
  await close();
}
console.log(`${checks} checks passed`);

/** The page of a process about itself: all members appear, and every view is drawn. */
async function beside(members) {
  for (const width of [360, 1400]) {
    const { page, said } = await open(width, "light");
    await page.waitForFunction((count) => document.querySelectorAll("#regions .tile[data-health=good]").length === count, members);
    for (const [view] of VIEWS) {
      await show(page, view);
      await page.waitForTimeout(200);
      const seen = await page.evaluate(() => document.documentElement.scrollWidth);
      check(seen <= width, `${view} at ${width} px: ${seen} px wide`);
    }
    check(!(await page.isVisible("#servers-card")), "actions without a login");
    assert.deepEqual(said, []);
    await page.close();
  }
}

/** The invalidation view shows the state of the invalidator of the cluster `east`. */
async function invalidator(isAway) {
  const { page, said } = await open(1400, "light");
  await show(page, "invalidation");
  await page.waitForFunction((isAway) => [...document.querySelectorAll("#clusters tbody tr")].some(
    ({ cells }) => cells[0].textContent === "east" && (cells[2].textContent === "away") === isAway), isAway);
  check(!isAway || (await page.textContent("#clusters tbody tr td:last-child")).length > 1, "an outage without a reason");
  assert.deepEqual(said, []);
  await page.close();
}

/** A page after its first tick, and its console messages. */
async function open(width, colorScheme) {
  const page = await browser.newPage();
  const said = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("dialog", (dialog) => said.push(`dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) said.push(`asks for ${request.url()}`);
  });
  await page.setViewportSize({ width, height: width < 500 ? 740 : 900 });
  await page.emulateMedia({ colorScheme });
  await page.goto(url);
  await page.waitForSelector("#regions .tile");
  return { page, said };
}

async function look(width, colorScheme) {
  const { page, said } = await open(width, colorScheme);
  for (const [view, drawn] of VIEWS) {
    const name = `${view} at ${width} px, ${colorScheme}`;
    await show(page, view);
    await page.waitForSelector(drawn, { state: "attached", timeout: 60_000 });
    await page.waitForTimeout(300);
    const seen = await page.evaluate(() => ({
      scroll: document.documentElement.scrollWidth,
      shown: [...document.querySelectorAll("main > section")].filter((section) => !section.hidden).length,
      paper: getComputedStyle(document.body).backgroundColor,
      current: document.querySelector("nav [aria-current]").textContent,
    }));
    check(seen.scroll <= width, `${name}: ${seen.scroll} px wide`);
    check(seen.shown === 1, `${name}: ${seen.shown} views are shown`);
    const isDark = Number(seen.paper.match(/\d+/)[0]) < 128;
    check(isDark === (colorScheme === "dark"), `${name}: the paper is ${seen.paper}`);
    await inspect(page, name);
    if (shots !== null) {
      await page.screenshot({ path: join(shots, `${view}-${width}-${colorScheme}.png`), fullPage: width > 500 });
    }
  }
  assert.deepEqual(said, [], `at ${width} px, ${colorScheme}`);
  checks += 1;
  await page.close();
}

async function show(page, view) {
  await page.evaluate((id) => {
    location.hash = id;
  }, view);
  await page.waitForFunction((id) => !document.getElementById(id).hidden, view);
}

/** All functions work by keyboard. */
async function press() {
  const { page, said } = await open(1400, "light");
  for (const [place, [view]] of VIEWS.entries()) {
    await page.keyboard.press(String(place + 1));
    await page.waitForFunction((id) => !document.getElementById(id).hidden, view);
    checks += 1;
  }
  await page.keyboard.press("?");
  check(await page.isVisible("#help"), "? shows no keys");
  check((await page.textContent("#help-keys")).includes("Look for a key"), "the keys are not listed");
  await page.keyboard.press("Escape");
  check(!(await page.isVisible("#help")), "Escape leaves the keys");
  await page.keyboard.press("t");
  check((await page.getAttribute("html", "data-theme")) === "dark", "t does not change the scheme");
  await page.keyboard.press("t");
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement.id === "key");
  await page.keyboard.type("1t?");
  check((await page.inputValue("#key")) === "1t?", "keys that are typed are taken for others");
  // From the top, Tab reaches every view, and the focused element is outlined.
  await page.goto(`${url}#map`);
  await page.reload();
  await page.waitForSelector("#regions .tile");
  const reached = new Set();
  for (let step = 0; step < 14; step += 1) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { hash: document.activeElement.hash, text: document.activeElement.textContent, outline: outlineStyle !== "none" && outlineWidth !== "0px" };
    });
    check(focus.outline, `the focus on ${focus.text} is not seen`);
    if (focus.hash) reached.add(focus.hash);
  }
  for (const [view] of VIEWS) check(reached.has(`#${view}`), `Tab does not reach ${view}`);
  // The setting that disables single keys.
  await page.click("#help-open");
  await page.uncheck("#shortcuts");
  await page.keyboard.press("Escape");
  await page.keyboard.press("4");
  check(await page.isVisible("#map"), "a key works that was turned off");
  assert.deepEqual(said, []);
  await page.close();
}

/** A key is shown as text everywhere. */
async function findHostile() {
  const { page, said } = await open(1400, "light");
  await show(page, "keys");
  await page.waitForFunction((key) => document.getElementById("hot").textContent.includes(key), hostile, { timeout: 120_000 });
  await page.waitForFunction((prefix) => document.getElementById("prefixes").textContent.includes(prefix), hostile.split(":")[0], { timeout: 120_000 });
  await page.fill("#key", hostile);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#way-held td.good").length >= 5);
  const [says, explained] = [await page.textContent("#way-says"), await page.textContent("#way-text")];
  check(/servers hold an item of this name; get is answered by 127\.0\.1\.1:/.test(says), says);
  check(explained.includes(hostile) && explained.includes("PoolRoute"), explained);
  await page.fill("#key", "a b");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("way-says").textContent.includes("no space"));
  check((await page.locator("img").count()) === 0, "a key became markup");
  assert.deepEqual(said.filter((line) => !line.includes("400")), []);
  // Slabs and bags of one server, and the slider.
  await show(page, "memory");
  await page.waitForSelector("#cache option[value^='127.0.1.1:']", { state: "attached" });
  await page.selectOption("#cache", await page.getAttribute("#cache option[value^='127.0.1.1:']", "value"));
  await page.waitForSelector("#slabs .bags i");
  await page.waitForSelector("#curve canvas", { timeout: 120_000 });
  const before = await page.textContent("#curve-says");
  await page.focus("#factor");
  for (let step = 0; step < 20; step += 1) await page.keyboard.press("ArrowRight");
  const after = await page.textContent("#curve-says");
  check(before !== after && after.startsWith("2.00 times the memory"), after);
  if (shots !== null) await page.screenshot({ path: join(shots, "memory-server.png"), fullPage: true });
  // A member of the map leads to its charts.
  await show(page, "map");
  await page.click(".tile[data-health=trouble], .tile[data-health=good]");
  await page.waitForSelector("#member td", { state: "attached" });
  if (shots !== null) await page.screenshot({ path: join(shots, "member.png"), fullPage: true });
  await page.close();
}

/** A failed request is not shown as a result without findings. */
async function findUnanswered() {
  const { page } = await open(1400, "light");
  for (const [view, question] of [["advice", "advice"], ["host", "doctor"]]) {
    const refuse = (route) => route.fulfill({ status: 503, contentType: "text/plain", body: "it is ending" });
    await page.route(`**/api/${question}`, refuse);
    await show(page, view);
    const said = (id) => document.getElementById(id).textContent === "This could not be asked: it is ending";
    await page.waitForFunction(said, `${view}-says`);
    checks += 1;
  }
  await page.route("**/api/invalidation", (route) => route.fulfill({ status: 503, contentType: "text/plain", body: "it is ending" }));
  await show(page, "invalidation");
  await page.waitForFunction(() => [...document.querySelectorAll("#clusters p, #stale p")].every(
    ({ hidden, textContent }) => !hidden && textContent === "This could not be asked: it is ending"));
  checks += 1;
  await page.close();
}

/** The charts of a proxy show the latency quantiles of its servers' replies over time; a table has them by pool and by server. */
async function lookAtProxy(address) {
  const { page, said } = await open(1400, "light");
  await page.evaluate((address) => {
    location.hash = `charts=${encodeURIComponent(address)}`;
  }, address);
  const figure = page.locator("#figures figure", { hasText: "Time of a server's answer" });
  await figure.locator("canvas").waitFor();
  await figure.locator("summary").click();
  // At least three samples, each with three times.
  await page.waitForFunction(() => {
    const rows = [...document.querySelectorAll("#figures figure details[open] tbody tr")];
    const cells = (row) => [...row.cells].slice(1).map(({ textContent }) => textContent);
    return rows.filter((row) => cells(row).every((text) => /^[\d.]+ (µs|ms|s)$/.test(text))).length >= 3;
  }, null, { timeout: 60_000 });
  const last = await page.evaluate(() => ["p50", "p99", "p999"].map((name) => charts.numbers[`${name}_seconds`].at(-1)));
  check(last[0] > 0 && last[0] <= last[1] && last[1] <= last[2], `quantiles ${last}`);
  for (const label of ["all", "pool A", "server 127.0.1.1:"]) {
    await page.waitForFunction((label) => [...document.querySelectorAll("#member tbody tr")].some(
      ({ cells }) => cells[0].textContent.startsWith(label) && /^[\d.]+ (µs|ms|s)$/.test(cells[2].textContent)), label);
    checks += 1;
  }
  await inspect(page, "the charts of a proxy");
  if (shots !== null) await page.screenshot({ path: join(shots, "proxy.png"), fullPage: true });
  assert.deepEqual(said, []);
  await page.close();
}

/** Bytes of the page's heap, and its nodes, after garbage collection. */
async function size(page, session) {
  await session.send("HeapProfiler.collectGarbage");
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const { nodes, jsEventListeners } = await session.send("Memory.getDOMCounters");
  return { bytes: usedSize, nodes, listeners: jsEventListeners };
}

/** Some hundred ticks in every view: nodes and heap do not grow. */
async function grow() {
  const { page } = await open(1400, "light");
  const session = await browser.newCDPSession(page);
  const ticks = (count) => page.evaluate(async (count) => {
    const from = structuredClone(last);
    for (let tick = 0; tick < count; tick += 1) {
      const made = structuredClone(from);
      window.made_ms = (window.made_ms ?? from.at_ms) + 1000;
      made.at_ms = window.made_ms;
      for (const member of made.members) {
        if (member.numbers.gets_per_second !== undefined) member.numbers.gets_per_second = Math.random() * 1e6;
      }
      take(made);
      if (tick % 50 === 0) await new Promise((done) => setTimeout(done));
    }
  }, count);
  const round = async (count) => {
    for (const [view] of VIEWS) {
      await show(page, view);
      await ticks(count);
    }
  };
  // After these, the charts' quarter of an hour is full.
  await round(130);
  await round(10);
  const before = await size(page, session);
  await round(200);
  const after = await size(page, session);
  console.log(`${200 * VIEWS.length} ticks: ${before.bytes} bytes of heap and ${before.nodes} nodes became ${after.bytes} and ${after.nodes}`);
  check(after.bytes < before.bytes * 1.15 + 1e6, `the heap grew from ${before.bytes} to ${after.bytes} bytes`);
  check(after.nodes < before.nodes * 1.1 + 200, `${before.nodes} nodes became ${after.nodes}`);
  check(after.listeners <= before.listeners * 1.1 + 20, `${before.listeners} listeners became ${after.listeners}`);
  await page.close();
}

/** The page stays open for some minutes without growth. */
async function stay() {
  const { page, said } = await open(1400, "light");
  const session = await browser.newCDPSession(page);
  const sizes = [];
  for (let minute = 0; minute <= minutes; minute += 1) {
    await show(page, VIEWS[minute % VIEWS.length][0]);
    if (minute % 5 === 0) {
      sizes.push(await size(page, session));
      console.error(`minute ${minute}: ${JSON.stringify(sizes.at(-1))}`);
    }
    await page.waitForTimeout(60_000);
  }
  // The quarter of an hour of the charts is full after fifteen minutes.
  const [from, to] = [sizes[Math.min(4, sizes.length - 1)], sizes.at(-1)];
  console.log(`${minutes} minutes: ${sizes.map(({ bytes, nodes }) => `${(bytes / 1e6).toFixed(1)} MB ${nodes}`).join(", ")}`);
  check(to.bytes < from.bytes * 1.15 + 1e6 && to.nodes < from.nodes * 1.1 + 200, "the page grew");
  assert.deepEqual(said, []);
  await page.close();
}

/** The state embedded in the page. */
async function stateFor(headers) {
  const text = await (await fetch(url, { headers })).text();
  return JSON.parse(/<script type="application\/json" id="state">([^<]*)</.exec(text)[1]);
}

/** The page draws the map with every member without help, even if all further requests fail. */
async function drawAlone(members) {
  const page = await browser.newPage();
  await page.route(/\/(events|api\/)/, (route) => route.abort());
  await page.goto(url, { waitUntil: "domcontentloaded" });
  const tiles = await page.evaluate(() => document.querySelectorAll("#regions .tile").length);
  check(tiles === members, `${tiles} of ${members} members without a further question`);
  await page.close();
}

/** Milliseconds from the start of the navigation until `selector` is drawn, and the page's own marks. */
async function load(address, selector) {
  const page = await browser.newPage();
  await page.addInitScript((selector) => {
    const seen = new MutationObserver(() => {
      if (document.querySelector(selector)) {
        seen.disconnect();
        requestAnimationFrame(() => setTimeout(() => { window.drawn_ms = performance.now(); }));
      }
    });
    seen.observe(document, { childList: true, subtree: true });
  }, selector);
  await page.setViewportSize({ width: 1400, height: 900 });
  await page.goto(address);
  await page.waitForFunction(() => window.drawn_ms);
  const marks = await page.evaluate(() => {
    const { responseStart, responseEnd, domInteractive, decodedBodySize } = performance.getEntriesByType("navigation")[0];
    return { drawn: window.drawn_ms, responseStart, responseEnd, domInteractive, decodedBodySize };
  });
  return { page, marks };
}

/** The sorted gaps in milliseconds between the frames of some seconds, and the ticks in that time. */
function framesOf(page, seconds) {
  return page.evaluate((seconds) => new Promise((done) => {
    const [gaps, begin, from] = [[], performance.now(), last.at_ms];
    const ticks = new Set();
    let before = null;
    const frame = (now) => {
      if (before !== null) gaps.push(now - before);
      before = now;
      if (last.at_ms !== from) ticks.add(last.at_ms);
      if (now - begin < seconds * 1000) requestAnimationFrame(frame);
      else done({ gaps: gaps.sort((one, other) => one - other), ticks: ticks.size });
    };
    requestAnimationFrame(frame);
  }), seconds);
}

/** The time to the first view and the frames of the map; printed, never judged. An empty page of the console, loaded in turns, is the baseline. */
async function measure() {
  const [rounds, seconds] = [Number(process.env.CONSOLE_ROUNDS ?? 3), 3];
  const [bare, whole] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    const { page: empty, marks: nothing } = await load(`${url}nothing`, "body");
    bare.push(nothing.drawn);
    await empty.close();
    const { page, marks } = await load(url, "#regions .tile");
    whole.push(marks);
    if (round === rounds - 1) {
      const { gaps, ticks } = await framesOf(page, seconds);
      const rate = (1000 * gaps.length) / gaps.reduce((sum, gap) => sum + gap, 0);
      const part = (share) => gaps[Math.floor((gaps.length - 1) * share)].toFixed(1);
      console.log(`map: ${rate.toFixed(1)} frames a second over ${seconds} s with ${ticks} updates; gaps of ` +
        `50 % ${part(0.5)} ms, 99 % ${part(0.99)} ms, the longest ${part(1)} ms`);
    }
    await page.close();
  }
  const spread = (all) => {
    const sorted = all.map(Math.round).sort((one, other) => one - other);
    return `median ${sorted[sorted.length >> 1]} ms (${sorted[0]} to ${sorted.at(-1)})`;
  };
  console.log(`first view: ${spread(whole.map(({ drawn }) => drawn))} of ${rounds} loads; a bare answer: ${spread(bare)}`);
  for (const [name, words] of [["responseStart", "first byte"], ["responseEnd", "last byte"], ["domInteractive", "scripts have run"]]) {
    console.log(`  ${words}: ${spread(whole.map((marks) => marks[name]))}`);
  }
  console.log(`  the page has ${whole[0].decodedBodySize} bytes`);
}

/** A logged-in user drains a server and adds it again, after the page has announced the effect. */
async function change(server, pool) {
  const basic = { authorization: `Basic ${Buffer.from(login).toString("base64")}` };
  const { token } = await stateFor(basic);
  for (const action of ["drain", "add"]) {
    const post = (headers) => fetch(`${url}api/${action}`, { method: "POST", headers, body: JSON.stringify({ server, pool }) });
    const whole = { ...basic, origin: new URL(url).origin, "x-console-token": token };
    for (const left of Object.keys(whole)) {
      const { [left]: _, ...rest } = whole;
      const { status } = await post(rest);
      check(status === (left === "authorization" ? 401 : 403), `${action} without ${left}: ${status}`);
    }
    check((await post({ ...whole, origin: "http://evil.example" })).status === 403, `${action} of another site`);
  }
  for (const width of [360, 768, 1400]) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, said } = await open(width, colorScheme);
      await page.waitForSelector("#servers-card:not([hidden])");
      await page.selectOption("#drained", server);
      await page.click("#drain button");
      await page.waitForSelector("#confirm[open]");
      const says = await page.textContent("#confirm-says");
      check(says.startsWith(`${server} leaves the pools: ${pool} (from 2 servers to 1)`) && / % of keys/.test(says), says);
      check((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `the question is wider than ${width} px`);
      await inspect(page, `the question at ${width} px, ${colorScheme}`);
      await page.click("#confirm button[value=no]");
      await page.waitForSelector("#confirm:not([open])", { state: "attached" });
      check((await page.locator("#drained option").count()) === 2, "it was done without an assent");
      await page.click("#drain button");
      await page.click("#confirm button[value=yes]");
      await page.waitForFunction((server) => document.getElementById("servers-says").textContent === `${server} was drained.`, server);
      await page.waitForFunction(() => document.querySelectorAll("#drained option").length === 1);
      await inspect(page, `actions at ${width} px, ${colorScheme}`);
      if (shots !== null) await page.screenshot({ path: join(shots, `servers-${width}-${colorScheme}.png`), fullPage: true });
      await page.fill("#added", server);
      await page.keyboard.press("Enter");
      await page.waitForSelector("#confirm[open]");
      check((await page.textContent("#confirm-says")).startsWith(`${server} joins the pool ${pool} (from 1 servers to 2)`), "it does not say what it will do");
      await page.click("#confirm button[value=yes]");
      await page.waitForFunction((server) => document.getElementById("servers-says").textContent === `${server} was added.`, server);
      assert.deepEqual(said, []);
      // An impossible action shows an error.
      await page.click("#add button");
      await page.waitForFunction(() => document.getElementById("servers-says").textContent.includes("has the server already"));
      await page.close();
    }
  }
  const { page } = await open(1400, "light");
  await page.selectOption("#drained", server);
  await page.click("#drain button");
  await page.click("#confirm button[value=yes]");
  await page.waitForFunction((server) => document.getElementById("servers-says").textContent === `${server} was drained.`, server);
  await page.close();
}

/** axe has no serious finding. */
async function inspect(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const found = grave.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("; ")}`);
  assert.deepEqual(found, [], name);
  checks += 1;
}

/** A logged-in user flushes a prefix, after the page has announced the effect. */
async function flush(prefix) {
  const without = await fetch(url);
  check(without.status === 401, `without a login: ${without.status}`);
  const basic = { authorization: `Basic ${Buffer.from(login).toString("base64")}` };
  const { token } = await stateFor(basic);
  const post = (headers) => fetch(`${url}api/flush`, { method: "POST", headers: { ...basic, ...headers }, body: JSON.stringify({ prefix }) });
  check((await post({ "x-console-token": token })).status === 403, "an action without Origin");
  check((await post({ origin: "http://evil.example", "x-console-token": token })).status === 403, "an action of another site");
  check((await post({ origin: new URL(url).origin })).status === 403, "an action without a token");
  const { page, said } = await open(1400, "light");
  await show(page, "keys");
  await page.fill("#prefix", prefix);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#confirm[open]");
  check((await page.textContent("#confirm-says")).includes(`“${prefix}” becomes a miss`), "it does not say what it will do");
  await page.click("#confirm button[value=no]");
  await page.waitForSelector("#confirm:not([open])", { state: "attached" });
  check(!(await page.isVisible("#flush-says")), "it was done without an assent");
  await page.keyboard.press("Escape");
  await page.click("#flush button");
  await page.click("#confirm button[value=yes]");
  await page.waitForSelector("#flush-says td.good");
  check((await page.textContent("#flush-says td.good")) === "flushed", "it was not flushed");
  assert.deepEqual(said, []);
  await page.close();
}
