// The two lists side by side: rows that glide to their places and open to say why.

import { aside, bar, byId, inWords, make, plural, valueText } from "./dom.js";
import { call } from "./server.js";

const IDS = ["mine", "beside"];
const N_SIMILAR = 5;
const MAX_REASONS = 3; // that a sentence names
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Show the answer, and beside it that for the other person, or what is popular. */
export function showLists(answer, other, popular, people, card) {
  const general = popular.filter((item) => !people[0].rated.has(item.item_id));
  const pair = [answer.items, other?.items ?? general.slice(0, answer.items.length)];
  const ranks = [other ? pair[0] : general, pair[1]].map(placesOf);
  const mine = placesOf(pair[0]);
  const twice = repeated(pair.flat());
  const size = pair[1].length;
  const badges = other
    ? [(item) => sharedBadge(ranks[1].get(item.item_id)), (item) => sharedBadge(mine.get(item.item_id))]
    : [(item, rank) => moveBadge(rank, ranks[0].get(item.item_id) ?? Infinity, size),
      (item) => leftBadge(mine.get(item.item_id))];
  const byPopularity = placesOf(general);
  pair.forEach((items, at) => showRows(byId(IDS[at]), items.map((item, index) => {
    const place = byPopularity.get(item.item_id);
    return {
      item, summary: summaryOf(item, index + 1, badges[at](item, index + 1), twice, card),
      place: place ? `number ${place}` : `beyond number ${general.length}`,
    };
  })));
  const names = other ? ["First person", "Second person"] : ["For you", "For everyone"];
  names.forEach((name, at) => { byId(`title-${at}`).textContent = name; });
  byId("note-1").textContent = other ? "" : "What is popular.";
  const words = other ? sharedWords(pair) : differenceOf(answer, byPopularity, size);
  byId("difference").textContent = words;
  return words;
}

const placesOf = (items) => new Map(items.map((item, at) => [item.item_id, at + 1]));

function sharedWords([first, second]) {
  const known = placesOf(second);
  const same = first.filter((item) => known.has(item.item_id)).length;
  return `${same} of ${first.length} are the same.`;
}

function differenceOf(answer, places, size) {
  const place = (item) => places.get(item.item_id) ?? Infinity;
  const fresh = answer.items.filter((item) => place(item) > size).length;
  const moved = answer.items.filter((item, at) => place(item) <= size && place(item) !== at + 1).length;
  if (!answer.items.length) return "The model has nothing else to recommend.";
  if (!fresh && !moved && answer.fallback) return "Nothing is known of you yet, so both lists are the same.";
  if (!fresh && !moved) return "With what you said, the popular items are still the best guess.";
  return `${fresh} of ${answer.items.length} are not in the popular list, ${moved} moved within it.`;
}

function repeated(items) {
  const titles = new Map(items.map((item) => [item.item_id, item.title]));
  const seen = [...titles.values()];
  return new Set(seen.filter((title, at) => seen.indexOf(title) !== at));
}

const badge = (kind, mark, words) =>
  make("span", { class: `badge ${kind}` }, make("span", { "aria-hidden": "true" }, mark), aside(words));

function moveBadge(rank, place, size) {
  if (place > size) return badge("new", "new", "not in the popular list");
  const up = place - rank;
  if (up === 0) return badge("", "=", "the same place as by popularity");
  return up > 0
    ? badge("up", `▲ ${up}`, `${plural(up, "place")} higher than by popularity`)
    : badge("down", `▼ ${-up}`, `${plural(-up, "place")} lower than by popularity`);
}

const leftBadge = (rank) =>
  rank ? badge("", `you: ${rank}`, `your number ${rank}`) : badge("left", "left out", "not in your list");

const sharedBadge = (rank) =>
  rank ? badge("", `both: ${rank}`, `the other's number ${rank}`) : badge("new", "only", "not in the other list");

/** What is shown of an item: its image, title (an id where there is none), and chosen columns. */
function summaryOf(item, rank, mark, twice, card) {
  const title = make("span", { class: "title" }, item.title ?? item.item_id);
  if (item.title && twice.has(item.title)) title.append(" ", make("span", { class: "id" }, item.item_id));
  const values = card.shown_fields.map((name) => valueText(card.labels[name], item[name]));
  const facts = values.filter((text) => text && text !== item.title).join(" · ");
  const parts = [make("span", { class: "rank" }, `${rank}`),
    make("span", { class: "what" }, title, make("span", { class: "facts" }, facts)), mark];
  if (card.image_field) parts.splice(1, 0, imageOf(item[card.image_field]));
  return parts;
}

function imageOf(address) {
  const frame = make("span", { class: "image" });
  if (!/^https?:/.test(address ?? "")) return frame;
  const image = make("img", { src: address, alt: "", loading: "lazy", decoding: "async" });
  image.addEventListener("error", () => image.remove());
  frame.append(image);
  return frame;
}

/** Update a list in place, so that focus and opened reasons stay, and glide to new places. */
function showRows(list, entries) {
  const old = new Map([...list.children].map((row) => [row.dataset.itemId, row]));
  const tops = new Map([...old].map(([itemId, row]) => [itemId, row.offsetTop]));
  const rows = entries.map(({ item, summary, place }) => {
    const row = old.get(item.item_id) ?? emptyRow(item.item_id);
    row.querySelector("summary").replaceChildren(...summary);
    row.dataset.place = place;
    return row;
  });
  // moving a focused element would take the focus away: put the others around it
  for (const row of old.values()) if (!rows.includes(row)) row.remove();
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  if (at < 0) list.replaceChildren(...rows);
  else {
    rows[at].before(...rows.slice(0, at));
    rows[at].after(...rows.slice(at + 1));
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

/** Fill the opened rows: a sentence, the parts of the score, and similar items. */
export async function explainOpened(users, popularity, titles, card, rate) {
  const opened = IDS.flatMap((id, at) =>
    [...document.querySelectorAll(`#${id} > li:has(> details[open])`)].map((row) => [row, at]));
  await Promise.all(opened.map(async ([row, at]) => {
    const why = row.querySelector(".why");
    const body = { user: users[at], item_id: row.dataset.itemId, popularity };
    const asked = JSON.stringify([body, row.dataset.place]);
    if (why.dataset.asked === asked) return;
    why.dataset.asked = asked;
    try {
      const path = `v1/items/${encodeURIComponent(row.dataset.itemId)}/similar?k=${N_SIMILAR}`;
      const [reason, similar] = await Promise.all([call("v1/explain", { body }), call(path)]);
      if (why.dataset.asked !== asked) return;
      const shown = reasons(reason.content, row, users[at], titles, card);
      const names = similar.content.items.map((item) => make("li", {}, item.title ?? item.item_id));
      if (names.length) shown.push(make("h3", {}, "Similar"), make("ul", { class: "similar" }, ...names));
      if (card.takes_history) {
        const button = make("button", { type: "button" }, "I know it: rate it");
        button.addEventListener("click", () => rate(row.dataset.itemId, at));
        shown.push(button);
      }
      why.replaceChildren(...shown);
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
  const sentences = [make("p", {}, sentenceOf(found, user, titles, card))];
  if (!found.fallback) {
    sentences.push(make("ul", { class: "bars" }, ...bars));
    sentences.push(make("p", { class: "note" }, `By popularity alone it would be ${row.dataset.place}.`));
  }
  return sentences;
}

/** Say what counted most for an item. */
function sentenceOf(found, user, titles, card) {
  if (found.fallback) return "Nothing usable is known of this person, so popularity decides.";
  const positive = Object.entries(found.contributions).filter(([, value]) => value > 0);
  const names = positive.sort((a, b) => b[1] - a[1]).slice(0, MAX_REASONS)
    .map(([name]) => reasonOf(name, user, titles, card));
  return names.length
    ? `Because of ${names.join(" and ")}.`
    : "Nothing that is known of this person speaks for this item.";
}

/** How to call a part of a score within a sentence: values with the labels of the model. */
function reasonOf(name, user, titles, card) {
  const itemId = name.replace(/^rated /, "");
  if (itemId !== name && Object.hasOwn(user.history ?? {}, itemId)) {
    return `${titles.get(itemId) ?? itemId} in your history`;
  }
  const told = card.fields.filter((field) => field.group === name && Object.hasOwn(user, field.name));
  return told.map((field) => {
    const labels = card.labels[field.name] ?? {};
    const value = String(user[field.name]);
    return Object.hasOwn(labels, value) ? `${field.name} (${labels[value]})` : field.name;
  }).join(", ") || name;
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
