// What the answer looks like: bits, and the two lists side by side.

import { aside, bar, byId, inWords, make, plural } from "./dom.js";
import { call } from "./server.js";

const LONG = 256; // bits beyond which the code is too tall to stay in sight on a phone
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** "af82" -> [1, 1, 1, 1, 0, 1, 0, 1, ...]: bit b is bit b % 8 of byte b // 8. */
export function bitsOf(hex, nBits) {
  const byte = (place) => Number.parseInt(hex.slice(2 * place, 2 * place + 2), 16);
  return Array.from({ length: nBits }, (_, b) => (byte(b >> 3) >> (b & 7)) & 1);
}

/** Draw the code and mark what differs from the one before; returns that in words. */
export function showCode(answer, before, unknown) {
  byId("code").hidden = answer.code === null;
  if (answer.code === null) return "";
  const bits = bitsOf(answer.code, answer.n_bits);
  const old = before.n_bits === answer.n_bits ? bitsOf(before.code, before.n_bits) : bits;
  const changed = bits.map((bit, b) => bit !== old[b]);
  const grid = byId("bits");
  grid.classList.toggle("long", bits.length > LONG);
  grid.replaceChildren(...bits.map((bit, b) =>
    make("span", { class: `${bit ? "one" : "zero"}${changed[b] ? " changed" : ""}` })));
  const count = changed.filter(Boolean).length;
  const words = `${plural(bits.length, "bit")}, ${count} changed`;
  grid.setAttribute("aria-label", words);
  const start = bitsOf(unknown.code, unknown.n_bits);
  const apart = bits.filter((bit, b) => bit !== start[b]).length;
  byId("code-note").textContent = answer.fallback
    ? `${words}. This is the code of somebody unknown.`
    : `${words} just now; ${apart} differ from somebody unknown.`;
  return words;
}

/** Show both lists and what differs; returns the difference in words. */
export function showLists(answer, popular, person) {
  const general = popular.filter((item) => !person.rated.has(item.item_id));
  const placeOf = new Map(general.map((item, at) => [item.item_id, at + 1]));
  const mine = new Map(answer.items.map((item) => [item.item_id, item.rank]));
  const shown = general.slice(0, answer.items.length);
  const twice = repeated([...answer.items, ...shown]);

  const place = (item) => placeOf.get(item.item_id) ?? Infinity;
  showMine(answer.items.map((item) => ({
    ...item, name: nameOf(item, twice), place: place(item), size: shown.length,
  })), general.length);
  byId("popular").replaceChildren(...shown.map((item, at) => {
    const rank = mine.get(item.item_id);
    const [mark, words] = rank ? [`you: ${rank}`, `your number ${rank}`] : ["left out", "not in your list"];
    return make("li", { class: rank ? "" : "gone" }, make("span", { class: "rank" }, `${at + 1}`),
      nameOf(item, twice), badge("", mark, words));
  }));
  const words = differenceOf(answer, place, shown.length);
  byId("difference").textContent = words;
  return words;
}

function differenceOf(answer, place, size) {
  const fresh = answer.items.filter((item) => place(item) > size).length;
  const moved = answer.items.filter((item) => place(item) <= size && place(item) !== item.rank).length;
  if (!fresh && !moved && answer.fallback) {
    return "Nothing is known of you yet, so both lists are the same.";
  }
  if (!fresh && !moved) return "With what you said, the popular items are still the best guess.";
  return `${fresh} of ${answer.items.length} are not in the popular list, ${moved} moved within it.`;
}

function repeated(items) {
  const titles = new Map(items.map((item) => [item.item_id, item.title]));
  const seen = [...titles.values()];
  return new Set(seen.filter((title, at) => seen.indexOf(title) !== at));
}

/** A title; an id where there is none, and beside it where two items share one. */
function nameOf(item, twice) {
  const title = make("span", { class: "title" }, item.title ?? item.item_id);
  if (item.title && twice.has(item.title)) title.append(" ", make("span", { class: "id" }, item.item_id));
  return title;
}

const badge = (kind, mark, words) =>
  make("span", { class: `badge ${kind}` }, make("span", { "aria-hidden": "true" }, mark), aside(words));

function moveOf({ rank, place, size }) {
  if (place > size) return badge("new", "new", "not in the popular list");
  const up = place - rank;
  if (up === 0) return badge("", "=", "the same place as by popularity");
  return up > 0
    ? badge("up", `▲ ${up}`, `${plural(up, "place")} higher than by popularity`)
    : badge("down", `▼ ${-up}`, `${plural(-up, "place")} lower than by popularity`);
}

/** Update the list in place, so that focus and opened reasons stay, and glide to new places. */
function showMine(items, nGeneral) {
  const list = byId("mine");
  const old = new Map([...list.children].map((row) => [row.dataset.itemId, row]));
  const tops = new Map([...old].map(([itemId, row]) => [itemId, row.offsetTop]));
  const rows = items.map((item) => {
    const row = old.get(item.item_id) ?? emptyRow(item.item_id);
    const rank = make("span", { class: "rank" }, `${item.rank}`);
    row.querySelector("summary").replaceChildren(rank, item.name, moveOf(item));
    row.dataset.place = Number.isFinite(item.place) ? `number ${item.place}` : `beyond number ${nGeneral}`;
    return row;
  });
  // moving a focused element would take the focus away: put the others around it
  for (const [itemId, row] of old) if (!items.some((item) => item.item_id === itemId)) row.remove();
  const focused = document.activeElement?.closest?.("#mine > li");
  const at = rows.indexOf(focused);
  if (at < 0) list.replaceChildren(...rows);
  else {
    focused.before(...rows.slice(0, at));
    focused.after(...rows.slice(at + 1));
  }
  if (!calm.matches) for (const row of rows) glide(row, tops.get(row.dataset.itemId));
}

function glide(row, from) {
  const by = from === undefined ? null : from - row.offsetTop;
  if (by === 0) return;
  const start = by === null ? { opacity: 0 } : { transform: `translateY(${by}px)` };
  row.animate([start, {}], { duration: 240, easing: "ease-out" });
}

function emptyRow(itemId) {
  const why = make("div", { class: "why" });
  const details = make("details", {}, make("summary"), why);
  const row = make("li", { "data-item-id": itemId }, details);
  details.addEventListener("toggle", () => row.dispatchEvent(new CustomEvent("opened", { bubbles: true })));
  return row;
}

/** Fill the opened reasons: a sentence, the parts of the score, and the place by popularity. */
export async function explainOpened(user, popularity, titles, card) {
  const opened = document.querySelectorAll("#mine > li:has(> details[open])");
  await Promise.all([...opened].map(async (row) => {
    const why = row.querySelector(".why");
    const body = { user, item_id: row.dataset.itemId, popularity };
    const asked = JSON.stringify(body);
    if (why.dataset.asked === asked) return;
    why.dataset.asked = asked;
    try {
      const { content } = await call("v1/explain", { body });
      if (why.dataset.asked === asked) why.replaceChildren(...reasons(content, row, user, titles, card));
    } catch (error) {
      delete why.dataset.asked;
      throw error;
    }
  }));
}

function reasons(found, row, user, titles, card) {
  const parts = Object.entries(found.contributions).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)));
  const bars = parts.slice(0, 6).map(([name, value]) =>
    bar(partName(name, user, titles, card), Math.abs(value) / most,
      value < 0 ? "against" : "for", value < 0 ? "against" : ""));
  const sentences = [make("p", {}, found.why)];
  if (!found.fallback) {
    sentences.push(make("ul", { class: "bars" }, ...bars));
    sentences.push(make("p", { class: "note" }, `By popularity alone it would be ${row.dataset.place}.`));
  }
  return sentences;
}

/** How to call a part of a score: popularity, a rating, a group of answers, the average user. */
function partName(name, user, titles, card) {
  const itemId = name.replace(/^rated /, "");
  if (itemId !== name && Object.hasOwn(user.history ?? {}, itemId)) {
    return `${titles.get(itemId) ?? itemId}: you gave ${user.history[itemId]}`;
  }
  const told = card.fields.filter((field) => field.group === name && Object.hasOwn(user, field.name));
  if (told.length) return told.map((field) => inWords(field.name)).join(", ");
  return name === "the average user" ? "What most people like" : inWords(name);
}
