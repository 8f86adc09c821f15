// Keeps the page up to date by the hub's events, and tries rules as they are typed. The page can be read without it.
"use strict";

const events = new EventSource("/events");
events.onmessage = (event) => {
  document.body.classList.remove("stale");
  for (const [name, made] of Object.entries(JSON.parse(event.data))) {
    if (name === "title") {
      document.title = made;
      continue;
    }
    const place = document.getElementById(name);
    if (place) replace(place, made);
  }
  announce();
};
events.onerror = () => document.body.classList.add("stale");

// What is read or scrolled just now stays where it is.
function replace(place, made) {
  const areas = () => [...place.querySelectorAll(".scroll, pre")];
  const before = areas().map((area) => [area.scrollLeft, area.scrollTop, area === document.activeElement]);
  if (place.contains(document.activeElement) && document.activeElement.type === "search") return; // somebody types
  place.innerHTML = made; // the hub has escaped all that others wrote
  arrange(place);
  areas().forEach((area, at) => {
    const [left, top, hasFocus] = before[at] ?? [0, 0, false];
    if (hasFocus) area.focus({ preventScroll: true });
    area.scrollTo(left, top);
  });
}

// Tables are sorted and searched here; a long one begins with its first rows. What a person chose holds when the hub sends
// a table anew.
const FIRST = 10;
const choices = new Map();

function arrange(place) {
  [...place.querySelectorAll(".scroll")].forEach((area, at) => {
    const key = `${place.id} ${at}`;
    if (!choices.has(key)) choices.set(key, { search: "", all: false, column: "", down: false, open: new Set() });
    prepare(area, choices.get(key));
  });
}

// What a row is about: its first columns. Numbers change, and so does the time behind them.
const nameOf = (row) => [...row.cells].slice(0, 2).filter((cell) => cell.className !== "number").map((cell) => cell.textContent).join(" ");

function prepare(area, choice) {
  const body = area.querySelector("tbody");
  const rows = [...body.rows];
  const show = () => {
    const at = [...area.querySelectorAll("th")].findIndex((head) => head.textContent === choice.column);
    area.querySelectorAll("th").forEach((head, each) => {
      if (each === at) head.ariaSort = choice.down ? "descending" : "ascending";
      else head.removeAttribute("aria-sort");
    });
    const sorted = at < 0 ? rows : [...rows].sort((one, other) => compare(one.cells[at], other.cells[at]) * (choice.down ? -1 : 1));
    body.append(...sorted);
    let found = 0;
    for (const row of sorted) {
      const fits = row.textContent.toLowerCase().includes(choice.search.toLowerCase());
      row.hidden = !fits || (!choice.all && ++found > FIRST);
      row.classList.toggle("open", choice.open.has(nameOf(row)));
    }
    const more = area.parentElement.querySelector(".tools button");
    if (more) more.textContent = choice.all ? "Show the first ten" : `Show all ${rows.length}`;
  };
  area.classList.add("foldable");
  area.querySelectorAll("th").forEach((head) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      choice.down = choice.column === head.textContent ? !choice.down : head.className === "number";
      choice.column = head.textContent;
      show();
    });
    head.replaceChildren(button);
  });
  rows.forEach((row) =>
    row.addEventListener("click", () => {
      const name = nameOf(row);
      if (!choice.open.delete(name)) choice.open.add(name);
      show();
    }),
  );
  if (rows.length > FIRST) {
    const tools = document.createElement("div");
    const search = document.createElement("input");
    const more = document.createElement("button");
    tools.className = "tools";
    Object.assign(search, { type: "search", placeholder: "Search", value: choice.search, ariaLabel: "Search this table" });
    search.addEventListener("input", () => {
      choice.search = search.value;
      show();
    });
    more.addEventListener("click", () => {
      choice.all = !choice.all;
      show();
    });
    tools.append(search, more);
    area.before(tools);
  }
  show();
}

const UNITS = { "": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, s: 1, m: 60, h: 3600, "%": 1 };

// Numbers, sizes and durations by what they stand for, all else by its letters.
function compare(one, other) {
  const value = (cell) => {
    const parts = [...cell.textContent.matchAll(/([\d.]+) ?([KMGT]?i?B|[hms%]|)/g)];
    return parts.reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0);
  };
  return one.className === "number" ? value(one) - value(other) : one.textContent.localeCompare(other.textContent);
}

document.querySelectorAll("main section > div[id]").forEach(arrange);

// A screen reader is told when the link comes or goes, and not each second how long that is.
function announce() {
  const said = [...document.querySelectorAll("#state .drill, #state .big")].map((e) => e.textContent.split(" for ")[0]).join(" ");
  const status = document.getElementById("announced");
  if (status.textContent !== said) status.textContent = said;
}

const ask = document.getElementById("ask");
// A choice loads the page anew: who chooses by keys goes on at the same list. The page goes to its address's heading first.
const chosen = sessionStorage.getItem("chosen");
sessionStorage.removeItem("chosen");
if (chosen) window.addEventListener("load", () => setTimeout(() => ask.elements[chosen]?.focus()));
ask.addEventListener("change", (event) => {
  sessionStorage.setItem("chosen", event.target.name);
  if (event.target.name === "resource") ask.elements.object.value = "";
  ask.requestSubmit();
});

const edit = document.getElementById("edit");
let waiting = 0;
let asked = 0;
edit.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const mine = ++asked;
    const answer = await fetch("/try", { method: "POST", body: edit.value });
    const made = await answer.text();
    if (mine !== asked) return; // a later edit is under way
    const trial = document.getElementById("trial");
    if (answer.ok) trial.innerHTML = made;
    else trial.textContent = made;
  }, 400);
});
