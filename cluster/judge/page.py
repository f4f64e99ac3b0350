"""The page on which people rate behaviour: one HTML file that talks to `cluster.judge.server` and to nobody else.

    state (GET) / answer, undo (POST) ──> {done, of, passed, item: {id, text, drawing}, before} ──> what is seen

It shows one trial at a time: the instruction and the driven path, without the scores of others. The rater chooses a
score and then saves it, with the keyboard or the mouse; the trial stays until the server confirms that the score is on
disk. Texts are inserted as text, not as HTML. Limit: a browser from the last ten years.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape


def page(run: str, rater: str, rubric: Sequence[str], nonce: str) -> str:
    """The HTML.

    rater: the rater's name; "" asks for it. rubric: the criteria.
    nonce: of the inline style and script, which the response's policy names.
    """
    looked = f"Look at: {', '.join(rubric)}." if rubric else ""
    values = {
        "NONCE": nonce,
        "RUN": escape(run),
        "RATER": escape(rater),
        "RUBRIC": escape(looked),
        "SCORES": "".join(f'<button type="button" value="{k}">{k / 10:.1f}</button>' for k in range(11)),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], TEMPLATE)


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Judge @RUN@</title>
<style nonce="@NONCE@">
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Liberation Sans", Arial, sans-serif; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: .8rem 1rem 1.5rem; }
[hidden] { display: none !important; }
h1 { font-size: 1rem; margin: 0; } .quiet { color: #555; font-size: .9rem; margin: .3rem 0; }
header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; justify-content: space-between; }
progress { width: 100%; height: .5rem; accent-color: #00507d; }
blockquote { margin: .5rem 0; padding: .5rem .8rem; background: #f3f5f7; border-left: .3rem solid #00507d;
  border-radius: .3rem; font-size: 1.2rem; line-height: 1.35; }
.both { display: grid; gap: .4rem 1.5rem; grid-template-columns: minmax(0, 34rem) minmax(17rem, 1fr); }
svg { display: block; width: 100%; height: auto; max-height: 82vh; }
.scores { display: grid; grid-template-columns: repeat(6, 1fr); gap: .35rem; margin: .4rem 0; }
button, input { font: inherit; padding: .5rem .4rem; min-height: 2.75rem; border: 1px solid #767676;
  border-radius: .35rem; background: #fff; color: inherit; }
button { cursor: pointer; } button:disabled { color: #767676; cursor: default; }
button:focus-visible, input:focus-visible { outline: 3px solid #E69F00; outline-offset: 1px; }
.scores [aria-pressed="true"], .main:enabled { background: #00507d; border-color: #00507d; color: #fff; }
.row { display: grid; grid-template-columns: 2fr 1fr 1fr; gap: .35rem; margin: .6rem 0; }
.ends { display: flex; justify-content: space-between; }
#error { color: #a33c00; font-weight: 600; min-height: 1.5em; }
kbd { font: .85em ui-monospace, Menlo, Consolas, monospace; border: 1px solid #bbb; border-radius: .2rem;
  padding: 0 .25rem; }
@media (max-width: 44rem) { .both { grid-template-columns: 1fr; } .keys { display: none; } }
@media (prefers-reduced-motion: reduce) { .moving { display: none; } }
</style></head>
<body data-rater="@RATER@"><main>
<header><h1>Judge @RUN@</h1><span class="quiet" id="who"></span></header>
<form id="asking" hidden><p><label for="name">Your name, a to z, digits, - and _:</label></p>
<p><input id="name" autocomplete="off" maxlength="32"> <button class="main">Start</button></p></form>
<section id="rating" hidden>
<progress id="bar" aria-label="rated"></progress>
<p class="quiet" id="progress" role="status"></p>
<div id="trial"><p class="quiet">The robot was asked:</p><blockquote id="text" aria-live="polite"></blockquote>
<div class="both"><div id="drawing"></div><div>
<p>How well did it do what it was asked?</p>
<p class="quiet">@RUBRIC@ The disc repeats the robot's drive; the colour of the line shows the time.</p>
<div class="scores" role="group" aria-label="score">@SCORES@</div>
<p class="quiet ends"><span>0.0 nothing of it</span><span>1.0 all of it</span></p>
<div class="row"><button type="button" class="main" id="save">Save</button>
<button type="button" id="skip">Later</button><button type="button" class="undo">Undo</button></div>
<p class="quiet keys"><kbd>0</kbd>–<kbd>9</kbd> choose 0.0 to 0.9, <kbd>End</kbd> 1.0, <kbd>←</kbd> <kbd>→</kbd> one
less or more; <kbd>Enter</kbd> saves, <kbd>n</kbd> skips, <kbd>u</kbd> takes the last answer back.</p>
</div></div></div>
<div id="end" hidden><p>All trials are rated. Thank you! You may close this page.</p>
<div class="row"><button type="button" class="undo">Undo</button></div></div>
</section>
<p id="error" role="alert"></p>
<p class="quiet" id="change" hidden><button type="button" id="other">Switch rater</button></p>
</main>
<script nonce="@NONCE@">
"use strict";
const $ = id => document.getElementById(id);
const fixed = document.body.dataset.rater;
const scores = [...document.querySelectorAll(".scores button")];
let rater = fixed || sessionStorage.getItem("rater") || "";
let item = null, score = null, busy = false;

async function talk(path, body) {
  if (busy) return false;
  busy = true;
  try {
    const reply = await fetch(path, body && {method: "POST", headers: {"Content-Type": "application/json"},
                                             body: JSON.stringify({rater, ...body})});
    const state = await reply.json();
    if (!reply.ok) throw new Error(state.error);
    $("error").textContent = "";
    show(state);
    return true;
  } catch (error) {
    const gone = error instanceof TypeError;
    $("error").textContent = gone ? "Not saved: the server does not answer. Start it again." : error.message;
    return false;
  } finally { busy = false; }
}

function show(state) {
  item = state.item;
  $("asking").hidden = true;
  $("rating").hidden = false;
  $("change").hidden = Boolean(fixed);
  $("who").textContent = rater;
  $("bar").max = state.of;
  $("bar").value = state.done;
  $("progress").textContent = `${state.done} of ${state.of}` + (state.passed ? `, ${state.passed} for later` : "");
  $("trial").hidden = !item;
  $("end").hidden = Boolean(item);
  for (const button of document.querySelectorAll(".undo")) button.disabled = !state.undo;
  $("text").textContent = item ? item.text : "";
  $("drawing").innerHTML = item ? item.drawing : "";  // made by the server, of numbers and escaped names
  choose(state.before);
}

function choose(tenths) {
  score = tenths;
  for (const button of scores) button.setAttribute("aria-pressed", String(Number(button.value) === score));
  $("save").disabled = score === null;
}

const save = () => item && score !== null && talk("answer", {item: item.id, tenths: score});
const pass = () => item && talk("answer", {item: item.id, tenths: null});
const undo = () => talk("undo", {});
const begin = () => talk("state?rater=" + encodeURIComponent(rater));
function ask() {
  $("asking").hidden = false;
  $("rating").hidden = $("change").hidden = true;
  $("who").textContent = "";
  $("name").focus();
}

for (const button of scores) button.addEventListener("click", () => choose(Number(button.value)));
$("save").addEventListener("click", save);
$("skip").addEventListener("click", pass);
for (const button of document.querySelectorAll(".undo")) button.addEventListener("click", undo);
$("other").addEventListener("click", () => {
  sessionStorage.removeItem("rater");
  rater = $("name").value = "";
  ask();
});
$("asking").addEventListener("submit", async event => {
  event.preventDefault();
  rater = $("name").value.trim().toLowerCase();
  if (await begin()) { sessionStorage.setItem("rater", rater); document.activeElement.blur(); }
});
document.addEventListener("keydown", event => {
  const on = event.target;
  if (on.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey || $("rating").hidden) return;
  if (event.key === "Enter" && on.tagName === "BUTTON" && !scores.includes(on) && on.id !== "save") return;
  const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
  if (/^[0-9]$/.test(event.key)) choose(Number(event.key));
  else if (step) choose(Math.min(10, Math.max(0, (score === null ? 5 - step : score) + step)));
  else if (event.key === "Home" || event.key === "End") choose(event.key === "End" ? 10 : 0);
  else if (event.key === "Enter") { if (!event.repeat) save(); }
  else if (event.key === "n") { if (!event.repeat) pass(); }
  else if (event.key === "u") { if (!event.repeat) undo(); }
  else return;
  event.preventDefault();
});
if (rater) begin().then(known => known || ask()); else ask();
</script></body></html>
"""
