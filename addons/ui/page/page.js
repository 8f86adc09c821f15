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
  place.innerHTML = made; // the hub has escaped all that others wrote
  areas().forEach((area, at) => {
    const [left, top, hasFocus] = before[at] ?? [0, 0, false];
    if (hasFocus) area.focus({ preventScroll: true });
    area.scrollTo(left, top);
  });
}

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
