// Opens `holdall console` in Chromium: every view at three widths, light and dark, must be drawn, say nothing on the console, be no wider
// than the window, and have no serious finding of axe. Then keys, hostile keys, some thousand updates without growth, and measurements,
// which are printed and never judged.
//
// Usage: node check_console.mjs URL --hostile KEY [--minutes N] [--shots FOLDER], or URL --login USER:PASSWORD --flush PREFIX, or URL --login
// USER:PASSWORD --drain SERVER --add POOL, or URL --beside MEMBERS; the browser is CHROMIUM, or /usr/bin/chromium.

import { strict as assert } from "node:assert";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./browser.mjs";

const [url, ...words] = process.argv.slice(2);
const word = (name) => (words.includes(name) ? words[words.indexOf(name) + 1] : null);
const [shots, hostile, login, minutes] = [word("--shots"), word("--hostile"), word("--login"), Number(word("--minutes") ?? 0)];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Each view, and what is there when it is drawn. */
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
  } else {
    await measure();
    for (const width of [360, 768, 1400]) {
      for (const colorScheme of ["light", "dark"]) {
        await look(width, colorScheme);
      }
    }
    await press();
    await findHostile();
    await grow();
    if (minutes > 0) await stay();
  }
} finally {
  await close();
}
console.log(`${checks} checks passed`);

/** The page of a process about itself: its members are there, and every view is drawn. */
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

/** A page that has had a tick, and what it says on the console. */
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

/** Everything by the keyboard. */
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
  // From the top, Tab reaches every view, and what has the focus is outlined.
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
  // The setting against single keys.
  await page.click("#help-open");
  await page.uncheck("#shortcuts");
  await page.keyboard.press("Escape");
  await page.keyboard.press("4");
  check(await page.isVisible("#map"), "a key works that was turned off");
  assert.deepEqual(said, []);
  await page.close();
}

/** A key is text wherever it is shown. */
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

/** Bytes of the page's heap and its nodes, after what is not used was freed. */
async function size(page, session) {
  await session.send("HeapProfiler.collectGarbage");
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const { nodes, jsEventListeners } = await session.send("Memory.getDOMCounters");
  return { bytes: usedSize, nodes, listeners: jsEventListeners };
}

/** Some thousand ticks in every view: nodes and heap stay. */
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
  // The charts' quarter of an hour is full then.
  await round(150);
  await round(50);
  const before = await size(page, session);
  await round(500);
  const after = await size(page, session);
  console.log(`3500 ticks: ${before.bytes} bytes of heap and ${before.nodes} nodes became ${after.bytes} and ${after.nodes}`);
  check(after.bytes < before.bytes * 1.15 + 1e6, `the heap grew from ${before.bytes} to ${after.bytes} bytes`);
  check(after.nodes < before.nodes * 1.1 + 200, `${before.nodes} nodes became ${after.nodes}`);
  check(after.listeners <= before.listeners * 1.1 + 20, `${before.listeners} listeners became ${after.listeners}`);
  await page.close();
}

/** The page left open. */
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

/** The time to the first view, and the frames of the map; printed, never judged. */
async function measure() {
  const times = [];
  for (let round = 0; round < 5; round += 1) {
    const page = await browser.newPage();
    await page.addInitScript(() => {
      const seen = new MutationObserver(() => {
        if (document.querySelector("#regions .tile")) {
          seen.disconnect();
          requestAnimationFrame(() => setTimeout(() => { window.first_view_ms = performance.now(); }));
        }
      });
      seen.observe(document, { childList: true, subtree: true });
    });
    await page.setViewportSize({ width: 1400, height: 900 });
    await page.goto(url);
    await page.waitForFunction(() => window.first_view_ms);
    times.push(await page.evaluate(() => Math.round(window.first_view_ms)));
    if (round === 4) {
      const frames = await page.evaluate(() => new Promise((done) => {
        const gaps = [];
        let before = performance.now();
        const frame = (now) => {
          gaps.push(now - before);
          before = now;
          if (gaps.length < 300) requestAnimationFrame(frame);
          else done(gaps.slice(1).sort((one, other) => one - other));
        };
        requestAnimationFrame(frame);
      }));
      const mean = frames.reduce((sum, gap) => sum + gap, 0) / frames.length;
      console.log(`map: ${(1000 / mean).toFixed(1)} frames a second; gaps of 50 % ${frames[150].toFixed(1)} ms, 99 % ${frames[295].toFixed(1)} ms`);
    }
    await page.close();
  }
  console.log(`first view: ${times.join(", ")} ms`);
}

/** A server is drained and added again by who has logged in, after the page has said what it will do. */
async function change(server, pool) {
  const basic = { authorization: `Basic ${Buffer.from(login).toString("base64")}` };
  const about = await (await fetch(`${url}api/about`, { headers: basic })).json();
  for (const action of ["drain", "add"]) {
    const post = (headers) => fetch(`${url}api/${action}`, { method: "POST", headers, body: JSON.stringify({ server, pool }) });
    const whole = { ...basic, origin: new URL(url).origin, "x-console-token": about.token };
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
      // What cannot be done is said.
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

/** A prefix is flushed by who has logged in, after the page has said what it will do. */
async function flush(prefix) {
  const without = await fetch(url);
  check(without.status === 401, `without a login: ${without.status}`);
  const basic = { authorization: `Basic ${Buffer.from(login).toString("base64")}` };
  const about = await (await fetch(`${url}api/about`, { headers: basic })).json();
  const post = (headers) => fetch(`${url}api/flush`, { method: "POST", headers: { ...basic, ...headers }, body: JSON.stringify({ prefix }) });
  check((await post({ "x-console-token": about.token })).status === 403, "an action without Origin");
  check((await post({ origin: "http://evil.example", "x-console-token": about.token })).status === 403, "an action of another site");
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
