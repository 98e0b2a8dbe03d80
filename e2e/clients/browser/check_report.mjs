// Opens pages of `holdall bench report` and `compare` in Chromium, as a phone and as a desk see them, light and dark: every chart must be
// drawn, none of its words may lie over its lines, nothing may be said on the console, and nothing may be wider than the window. With a
// folder, screenshots of the page's head and of every section are put there.
//
// Usage: node check_report.mjs PAGE.. [--shots FOLDER]; the browser is CHROMIUM, or /usr/bin/chromium.

import { strict as assert } from "node:assert";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./browser.mjs";

const words = process.argv.slice(2);
const at = words.indexOf("--shots");
const shots = at < 0 ? null : words.splice(at, 2)[1];
let checks = 0;
const check = (is, words) => {
  assert.ok(is, words);
  checks += 1;
};

const { browser, close } = await launch({ offline: true });
try {
  for (const file of words) {
    for (const width of [390, 1280]) {
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
    check(chart.width > width * 0.8 || chart.width >= 600, `${name}: a chart of ${chart.width} px`);
    check(chart.shapes > 0 && chart.drawn > 0, `${name}: an empty chart: ${chart.title}`);
    check(chart.overlap === 0, `${name}: ${chart.title}: ${chart.overlap} labels outside of the chart`);
    check(chart.covered === "", `${name}: ${chart.title}: ${chart.covered} lies over a line or a bar`);
    check(chart.textPx >= 8.5, `${name}: ${chart.title}: text of ${chart.textPx} px`);
  }
  check(seen.smallest >= 12, `${name}: text of ${seen.smallest} px`);
  check(seen.contrast >= 4.5, `${name}: contrast ${seen.contrast}`);
  const isDark = seen.paper < 0.2;
  check(isDark === (colorScheme === "dark"), `${name}: the paper's luminance is ${seen.paper}`);
  assert.deepEqual(said, [], name);
  checks += 1;
  if (shots !== null) {
    const stem = join(shots, `${basename(file, ".html")}-${width}-${colorScheme}`);
    await page.screenshot({ path: `${stem}.png` });
    // Each section's head, and its first chart.
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
      const meets = (rect) => {
        const bar = rect.getBoundingClientRect();
        return bar.left < right && bar.right > left && bar.top < low && bar.bottom > high;
      };
      return runsBelow || bars.some(meets);
    });
    return {
      title: svg.closest("figure").getAttribute("aria-label"),
      width: box.width,
      shapes: lines.length + bars.length,
      drawn: box.height > 50 ? 1 : 0,
      overlap: outside.length,
      covered: covered.map((text) => text.textContent.trim()).join(", "),
      textPx: Math.min(...texts.map((text) => text.getBoundingClientRect().height)),
    };
  });
  const body = getComputedStyle(document.body);
  const [ink, paper] = [luminance(body.color), luminance(body.backgroundColor)];
  const sizes = [...document.querySelectorAll("p, td, figcaption, code, h1, h2")].map((element) =>
    parseFloat(getComputedStyle(element).fontSize),
  );
  return {
    scroll: document.documentElement.scrollWidth,
    charts,
    smallest: Math.min(...sizes),
    contrast: (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05),
    paper,
  };
}
