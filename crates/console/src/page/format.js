// Numbers as text, and elements made of text alone: keys and statistics are chosen by others.
"use strict";

const NONE = "–";

/** At most three digits and a prefix: 950, 12.3k, 4.56M. */
function scaled(number, base, prefixes) {
  let place = 0;
  while (Math.abs(number) >= base - 0.5 && place < prefixes.length - 1) {
    number /= base;
    place += 1;
  }
  if (place === 0) return number < 9.95 && number % 1 !== 0 ? number.toFixed(1) : number.toFixed(0);
  return number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0) + prefixes[place];
}

function seconds(number) {
  if (number === 0) return "0 s";
  if (number < 1e-3) return `${(number * 1e6).toFixed(number < 1e-5 ? 1 : 0)} µs`;
  if (number < 1) return `${(number * 1e3).toFixed(number < 0.1 ? 2 : 0)} ms`;
  if (number < 120) return `${number.toFixed(number < 10 ? 1 : 0)} s`;
  if (number < 7200) return `${(number / 60).toFixed(0)} min`;
  if (number < 172800) return `${(number / 3600).toFixed(0)} h`;
  return `${(number / 86400).toFixed(0)} d`;
}

/** A number in its unit; a dash for one that is not known. */
function shown(unit, number) {
  if (number === null || number === undefined || Number.isNaN(number)) return NONE;
  if (unit === "ratio") return `${(number * 100).toFixed(1)} %`;
  if (unit === "seconds") return seconds(number);
  if (unit === "bytes") return `${scaled(number, 1024, [" B", " KB", " MB", " GB", " TB", " PB"])}${number < 1023.5 ? " B" : ""}`;
  return scaled(number, 1000, ["", "k", "M", "G", "T"]);
}

/** An element with properties, and texts or elements in it. */
function make(tag, properties, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...inside.filter((part) => part !== null && part !== undefined));
  return made;
}

const at = (id) => document.getElementById(id);

/** Sets a text, if it is another one. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** What percent-encoding stands for; the text itself where it is none. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * A table that is filled again and again; rows and cells stay. `heads` are texts, or `[text, class]`. A cell is a text, or
 * `{ text, kind, bar, href, bags }`: its class, a bar of this share, a link, parts of a bar.
 */
class Table {
  constructor(place, caption, heads) {
    this.heads = heads.map((head) => (typeof head === "string" ? [head, ""] : head));
    const row = make("tr", {}, ...this.heads.map(([text, kind]) => make("th", { scope: "col", className: kind }, text)));
    this.body = make("tbody");
    const table = make("table", {}, make("caption", {}, caption), make("thead", {}, row), this.body);
    this.none = make("p", { className: "soft", hidden: true });
    this.frame = make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption }, table);
    place.replaceChildren(this.frame, this.none);
  }

  /** Shows these rows, or the words for none. */
  fill(rows, none) {
    this.frame.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
    say(this.none, none ?? "Nothing yet.");
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((cells, place) => {
      const row = this.body.rows[place] ?? this.body.insertRow();
      cells.forEach((cell, column) => {
        const shownCell = row.cells[column] ?? row.insertCell();
        fillCell(shownCell, typeof cell === "object" && cell !== null ? cell : { text: cell }, this.heads[column][1]);
      });
    });
  }
}

function fillCell(place, { text, kind, bar, href, bags }, ofColumn) {
  const name = [ofColumn, kind ?? ""].join(" ").trim();
  if (place.className !== name) place.className = name;
  if (bar !== undefined) {
    const inner = place.firstElementChild ?? place.appendChild(make("i"));
    inner.style.width = `${Math.max(0, Math.min(1, bar || 0)) * 100}%`;
  } else if (bags !== undefined) {
    place.replaceChildren(bagBar(bags));
  } else if (href !== undefined) {
    const link = place.firstElementChild ?? place.appendChild(make("a"));
    if (link.getAttribute("href") !== href) link.setAttribute("href", href);
    say(link, text);
  } else {
    say(place, String(text ?? NONE));
  }
}

/** The bags of a class, the oldest newcomers' first: each as wide as it has items. */
function bagBar(bags) {
  const parts = bags.map((bag) => {
    const part = make("i", { className: bag.queue === "proven" ? "proven" : "", title: `${bag.queue}, ${bag.role}: ${bag.items} items` });
    part.style.flexGrow = bag.items;
    return part;
  });
  const words = ["newcomers", "proven"].map((queue) => {
    const items = bags.filter((bag) => bag.queue === queue).reduce((sum, bag) => sum + bag.items, 0);
    return `${shown("count", items)} ${queue}`;
  });
  return make("div", { className: "bags", role: "img", "aria-label": `${bags.length} bags: ${words.join(", ")}` }, ...parts);
}

/** The JSON of a path; an error with the words of the answer. */
async function ask(path, parameters) {
  const query = parameters ? `?${new URLSearchParams(parameters)}` : "";
  const answer = await fetch(path + query, { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}
