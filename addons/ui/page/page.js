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
    if (place) place.innerHTML = made; // the hub has escaped all that others wrote
  }
};
events.onerror = () => document.body.classList.add("stale");

const ask = document.getElementById("ask");
ask.addEventListener("change", (event) => {
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
