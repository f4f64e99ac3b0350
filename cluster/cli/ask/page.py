"""The page on which a robot is asked: one HTML file that talks to `cluster.cli.ask.server` and to nobody else.

    sentence, order, samples, target: typed, or clicked on the map ── ask (POST) ──> pictures and words of an answer

Sentences and the archive's texts are inserted as text; only drawings, which the server makes of numbers and escaped
names, are inserted as HTML. Limit: a browser from the last ten years.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

ORDERS = {"forwards": "as they come", "end first": "the last one first", "backwards": "from the last one back"}
"""How the page calls the orders of places in a sentence."""


def page(run: str, plan: Markup, places: Sequence[str], unit: float, target: str, most: int, nonce: str) -> str:
    """The HTML.

    plan: the house, as SVG. places: what can be named. unit: pixels of the plan per world unit.
    target: what is done without a target; "": the robot sees no targets. most: episodes of a question.
    nonce: of the inline style and script, which the response's policy names.
    """
    values = {
        "NONCE": nonce,
        "RUN": escape(run),
        "PLAN": plan,
        "PLACES": escape(", ".join(places)),
        "UNIT": escape(json.dumps(unit)),
        "HIDDEN": "" if target else "hidden",
        "TARGET": escape(target),
        "EXAMPLE": escape(f"go to the {places[-1]}" if places else ""),
        "MOST": str(most),
        "ORDERS": "".join(f'<option value="{order}">{told}</option>' for order, told in ORDERS.items()),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], TEMPLATE)


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ask @RUN@</title>
<style nonce="@NONCE@">
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto,
  "Liberation Sans", Arial, sans-serif; overflow-wrap: anywhere; }
main { max-width: 74rem; margin: 0 auto; padding: .8rem 1rem 1.5rem; }
[hidden] { display: none !important; }
h1 { font-size: 1.1rem; margin: 0 0 .5rem; } h2 { font-size: 1rem; margin: 1rem 0 .3rem; }
p { margin: .3rem 0; } .quiet { color: #555; font-size: .9rem; }
form { display: flex; flex-wrap: wrap; gap: .5rem .6rem; align-items: end; }
label { display: grid; gap: .15rem; font-size: .9rem; } label.wide { flex: 1 1 100%; }
button, input, select { font: inherit; padding: .45rem .6rem; min-height: 2.75rem; border: 1px solid #767676;
  border-radius: .35rem; background: #fff; color: inherit; }
label.wide input { width: 100%; font-size: 1.1rem; } input[type=number] { width: 6.5rem; }
button { cursor: pointer; } button:disabled { color: #767676; cursor: default; }
button:focus-visible, input:focus-visible, select:focus-visible { outline: 3px solid #E69F00; outline-offset: 1px; }
.main:enabled { background: #00507d; border-color: #00507d; color: #fff; }
.both { display: grid; gap: .4rem 1.5rem; grid-template-columns: minmax(0, 40rem) minmax(18rem, 1fr);
  margin-top: .7rem; align-items: start; }
svg { display: block; width: 100%; height: auto; } #map svg { max-height: 86vh; } #map.free svg { cursor: crosshair; }
#map .dim { opacity: .1; }
blockquote { margin: 0 0 .4rem; padding: .4rem .7rem; background: #f3f5f7; border-left: .3rem solid #00507d;
  border-radius: .3rem; font-size: 1.1rem; }
mark { background: #ffe08a; color: inherit; text-decoration: underline wavy #a33c00; }
#routes { list-style: none; margin: .3rem 0; padding: 0; display: grid; gap: .35rem; }
#routes button { width: 100%; text-align: left; display: grid; grid-template-columns: 2rem 1fr; gap: .6rem; }
#routes [aria-pressed="true"] { border-color: #00507d; box-shadow: inset 0 0 0 2px #00507d; }
#routes b { color: #fff; border-radius: 1rem; width: 2rem; height: 2rem; line-height: 2rem; text-align: center; }
#routes small { display: block; color: #555; font-size: .9rem; }
#archive { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
.old { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
figure { margin: 0; border: 1px solid #ccc; border-radius: .35rem; padding: .4rem; } figcaption { margin-top: .3rem; }
#error { color: #a33c00; font-weight: 600; min-height: 1.5em; }
@media (max-width: 52rem) { .both { grid-template-columns: minmax(0, 1fr); } }
</style></head>
<body data-unit="@UNIT@"><main>
<h1>Ask @RUN@</h1>
<form id="form" novalidate>
<label class="wide">What shall the robot do?
<input id="sentence" autocomplete="off" maxlength="1000" placeholder="@EXAMPLE@" autofocus></label>
<label>Its places are named <select id="order">@ORDERS@</select></label>
<label>Samples <input id="samples" type="number" min="1" max="@MOST@" value="16"></label>
<label @HIDDEN@>Target x <input id="x" type="number" step="any"></label>
<label @HIDDEN@>Target y <input id="y" type="number" step="any"></label>
<button type="button" id="clear" @HIDDEN@>No target</button>
<button class="main" id="ask">Ask</button>
<button type="button" id="again" disabled>Draw again</button>
</form>
<p class="quiet">It may name: @PLACES@.
<span @HIDDEN@>Click the map to set a target. Without one, @TARGET@.</span></p>
<p id="error" role="alert"></p>
<div class="both"><div id="map">@PLAN@</div>
<div id="answer" hidden>
<blockquote id="said"></blockquote>
<p id="unknown" hidden>Marked words are unknown to the model.</p>
<p id="told" role="status"></p>
<p class="quiet"><span id="places"></span> <span id="target"></span></p>
<h2>Routes of the samples</h2><p class="quiet">Choose one to see it alone.</p>
<ol id="routes"></ol></div></div>
<div id="archive" hidden>
<section><h2>Nearest in the archive, by text</h2><div class="old" id="text"></div></section>
<section><h2>Nearest in the archive, by end <span class="quiet" id="from"></span></h2>
<div class="old" id="end"></div></section>
</div>
</main>
<script nonce="@NONCE@">
"use strict";
const $ = id => document.getElementById(id);
const unit = Number(document.body.dataset.unit), targets = !$("clear").hidden;
let busy = false, seed = 0;
$("map").classList.toggle("free", targets);

const make = (name, text, parent) => {
  const made = parent.appendChild(document.createElement(name));
  made.textContent = text;
  return made;
};
const number = id => $(id).value.trim() === "" ? null : Number($(id).value);

async function ask() {
  if (busy) return;
  busy = $("ask").disabled = $("again").disabled = true;
  $("error").textContent = "";
  $("told").textContent = "The robot drives ...";
  const began = performance.now(), x = number("x"), y = number("y");
  try {
    const body = {sentence: $("sentence").value, order: $("order").value, samples: number("samples"), seed,
                  target: x === null && y === null ? null : [x, y]};
    const reply = await fetch("ask", {method: "POST", headers: {"Content-Type": "application/json"},
                                      body: JSON.stringify(body)});
    const answer = await reply.json();
    if (!reply.ok) throw new Error(answer.error);
    show(answer, (performance.now() - began) / 1000);
  } catch (error) {
    const gone = error instanceof TypeError;
    $("error").textContent = gone ? "The server does not answer. Start it again." : error.message;
    $("told").textContent = "";
  } finally {
    busy = $("ask").disabled = false;
    $("again").disabled = $("answer").hidden;
  }
}

function show(answer, seconds) {
  $("answer").hidden = $("archive").hidden = false;
  $("map").innerHTML = answer.drawing;  // made by the server, of numbers and escaped names
  $("said").replaceChildren();
  for (const [text, known] of answer.pieces) make(known ? "span" : "mark", text, $("said"));
  $("unknown").hidden = !answer.unknown.length;
  $("told").textContent = answer.told + ` (${seconds.toFixed(1)} s)`;
  $("places").textContent = "Places: " + answer.about_places + ".";
  $("target").textContent = "Target: " + answer.about_target + ".";
  $("routes").replaceChildren();
  answer.routes.forEach((route, k) => {
    const button = make("button", "", make("li", "", $("routes")));
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    make("b", k + 1, button).style.background = route.colour;
    const words = make("span", route.told, button);
    make("small", "ended: " + route.ended, words);
    button.addEventListener("click", () => alone(button, k));
  });
  $("from").textContent = "(from " + answer.measured_from + ")";
  for (const name of ["text", "end"]) {
    $(name).replaceChildren();
    for (const old of answer["by_" + name]) {
      const figure = make("figure", "", $(name));
      figure.innerHTML = old.drawing;  // made by the server, of numbers and escaped names
      const caption = make("figcaption", old.text || "(it has no text)", figure);
      make("p", `likeness ${old.likeness.toFixed(2)}, ends ${Math.round(old.distance)} units away`, caption)
        .className = "quiet";
    }
  }
}

function alone(chosen, k) {
  const on = chosen.getAttribute("aria-pressed") !== "true";
  for (const button of $("routes").querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(on && button === chosen));
  for (const group of $("map").querySelectorAll(".route"))
    group.classList.toggle("dim", on && Number(group.dataset.route) !== k);
}

function mark() {
  const svg = $("map").querySelector("svg"), x = number("x"), y = number("y");
  for (const old of svg.querySelectorAll(".chosen")) old.remove();
  if (x === null || y === null) return;
  const ring = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "circle"));
  const size = svg.viewBox.baseVal.width / 200;
  const look = {class: "chosen", cx: x * unit, cy: y * unit, r: 5 * size, fill: "none", stroke: "#00664c",
                "stroke-width": 1.5 * size};
  for (const [name, value] of Object.entries(look)) ring.setAttribute(name, value);
}

$("map").addEventListener("click", event => {
  const svg = event.target.closest("svg");
  if (!svg || !targets) return;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  $("x").value = Math.round(at.x / unit);
  $("y").value = Math.round(at.y / unit);
  mark();
});
for (const id of ["x", "y"]) $(id).addEventListener("input", mark);
$("clear").addEventListener("click", () => { $("x").value = $("y").value = ""; mark(); });
$("again").addEventListener("click", () => { seed += 1; ask(); });
$("form").addEventListener("submit", event => { event.preventDefault(); seed = 0; ask(); });
</script></body></html>
"""
