// Opens pages of `holdall bench report` and `compare` in Chromium, at phone and desktop widths, light and dark: every chart must be drawn
// with letters of 12 px, no word may cover its lines, its points must show their values, the console must stay empty, nothing may be
// wider than the window, and axe must find nothing serious. At desktop width, charts are side by side. Given a folder, it saves
// screenshots of the top of the page and of every section there.
//
// Usage: node check_report.mjs PAGE.. [--shots FOLDER]; the browser is CHROMIUM, or /usr/bin/chromium.

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./browser.mjs";

const words = process.argv.slice(2);
const at = words.indexOf("--shots");
const shots = at < 0 ? null : words.splice(at, 2)[1];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let checks = 0;
const check = (is, words) => {
  assert.ok(is, words);
  checks += 1;
};

const { browser, close } = await launch({ offline: true });
try {
  for (const file of words) {
    for (const width of [360, 1280]) {
      for (const colorScheme of ["light", "dark"]) {
        await look(file, width, colorScheme);
      }
    }
  }
} finally {
  await close();
}
console.log(`${checks} checks passed`);

async function look(file, width, colorScheme) {
  const name = `${basename(file)} at ${width} px, ${colorScheme}`;
  const page = await browser.newPage();
  const said = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("requestfailed", (request) => said.push(`failed: ${request.url()}`));
  await page.setViewportSize({ width, height: 844 });
  await page.emulateMedia({ colorScheme });
  await page.goto(pathToFileURL(resolve(file)).href);
  const seen = await page.evaluate(measure);
  check(seen.scroll <= width, `${name}: ${seen.scroll} px wide`);
  check(seen.charts.length > 0, `${name}: no chart`);
  for (const chart of seen.charts) {
    check(chart.width > width * 0.8 || chart.width >= 380, `${name}: a chart of ${chart.width} px`);
    check(chart.hovers > 0, `${name}: ${chart.title}: no point tells its value`);
    check(chart.shapes > 0 && chart.drawn > 0, `${name}: an empty chart: ${chart.title}`);
    check(chart.overlap === 0, `${name}: ${chart.title}: ${chart.overlap} labels outside of the chart`);
    check(chart.touching === 0, `${name}: ${chart.title}: ${chart.touching} labels touch others`);
    check(chart.covered === "", `${name}: ${chart.title}: ${chart.covered} lies over a line or a bar`);
    check(chart.textPx >= 12, `${name}: ${chart.title}: text of ${chart.textPx} px`);
  }
  const isWide = width > 1000 && seen.charts.length > 1;
  check(!isWide || seen.tops.length < seen.charts.length, `${name}: no two charts side by side`);
  check(seen.smallest >= 12, `${name}: text of ${seen.smallest} px`);
  check(seen.contrast >= 4.5, `${name}: contrast ${seen.contrast}`);
  const isDark = seen.paper < 0.2;
  check(isDark === (colorScheme === "dark"), `${name}: the paper's luminance is ${seen.paper}`);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const places = serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(places, [], `${name}: axe`);
  assert.deepEqual(said, [], name);
  checks += 2;
  if (shots !== null) {
    const stem = join(shots, `${basename(file, ".html")}-${width}-${colorScheme}`);
    await page.screenshot({ path: `${stem}.png` });
    // The top of each section, and its first chart.
    for (const [part, selector] of [["", "section"], ["-chart", "section figure:first-of-type"]]) {
      for (const [index, element] of (await page.$$(selector)).entries()) {
        await element.evaluate((shown) => shown.scrollIntoView());
        await page.screenshot({ path: `${stem}-${index + 1}${part}.png` });
      }
    }
  }
  await page.close();
}

// Runs in the page.
function measure() {
  const luminance = (colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const charts = [...document.querySelectorAll("figure svg")].map((svg) => {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")];
    const outside = texts.filter((text) => {
      const inner = text.getBoundingClientRect();
      return inner.left < box.left - 2 || inner.right > box.right + 2 || inner.bottom > box.bottom + 2;
    });
    const lines = [...svg.querySelectorAll("polyline")].filter((line) => line.getTotalLength() > 20);
    const bars = [...svg.querySelectorAll("rect")].filter((rect) => rect.getBoundingClientRect().height > 1);
    const boxes = texts.map((text) => text.getBoundingClientRect());
    const meets = (one, other) =>
      one.left < other.right && other.left < one.right && one.top + 3 < other.bottom && other.top + 3 < one.bottom;
    const touching = boxes.filter((one, at) => boxes.slice(at + 1).some((other) => meets(one, other)));
    const covered = texts.filter((text) => {
      const { left, right, top, bottom } = text.getBoundingClientRect();
      // A font's box is higher than its letters.
      const [high, low] = [top + (bottom - top) * 0.2, bottom - (bottom - top) * 0.2];
      const holds = ({ x, y }) => x > left && x < right && y > high && y < low;
      const runsBelow = lines.some((line) => {
        const toScreen = line.getScreenCTM();
        for (let at = 0; at <= line.getTotalLength(); at += 2) {
          if (holds(line.getPointAtLength(at).matrixTransform(toScreen))) return true;
        }
        return false;
      });
      const liesOver = (rect) => {
        const bar = rect.getBoundingClientRect();
        return bar.left < right && bar.right > left && bar.top < low && bar.bottom > high;
      };
      return runsBelow || bars.some(liesOver);
    });
    return {
      title: svg.closest("figure").getAttribute("aria-label"),
      width: box.width,
      shapes: lines.length + bars.length,
      drawn: box.height > 50 ? 1 : 0,
      touching: touching.length,
      overlap: outside.length,
      covered: covered.map((text) => text.textContent.trim()).join(", "),
      hovers: svg.querySelectorAll(".hover > title").length,
      textPx: Math.min(...texts.map((text) => parseFloat(text.getAttribute("font-size")) * (box.width / svg.viewBox.baseVal.width))),
    };
  });
  const tops = [...new Set([...document.querySelectorAll("figure")].map((figure) => Math.round(figure.getBoundingClientRect().top)))];
  const body = getComputedStyle(document.body);
  const [ink, paper] = [luminance(body.color), luminance(body.backgroundColor)];
  const sizes = [...document.querySelectorAll("p, td, figcaption, code, h1, h2")].map((element) =>
    parseFloat(getComputedStyle(element).fontSize),
  );
  return {
    scroll: document.documentElement.scrollWidth,
    charts,
    tops,
    smallest: Math.min(...sizes),
    contrast: (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05),
    paper,
  };
}
