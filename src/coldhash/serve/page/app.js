// The page: from what somebody says to what the service answers, at once.

import { showCode, showJudged, showWeights } from "./about.js";
import { mountQuestions } from "./ask.js";
import { byId, inWords, plural, short } from "./dom.js";
import { clearWrong, showDial, showFields, showRated, showWho, showWrong } from "./form.js";
import { explainOpened, showLists } from "./lists.js";
import { asFragment, asRequest, fromFragment, nobody, somebody } from "./person.js";
import { searchBox } from "./search.js";
import { Refusal, call, debounced, latest, useToken } from "./server.js";

const K = 10;
const KNOWN_POPULAR = 100; // of the popular items: to say where a recommended one would be
// what a column of addresses of images may be called, in lower case
const IMAGES = new Set("image image_url poster poster_url cover cover_url thumbnail picture photo".split(" "));
const SWAPPING = 1000; // milliseconds in which all workers have the same model again

const titles = new Map(); // of items seen in answers
// two people, the second of whom may be null; the form is about the active one
const page = { card: null, unknown: null, people: [nobody(), null], active: 0, popularity: 1, before: null };
const recommend = [latest(), latest()];
const active = () => page.people[page.active];

/** Load what the model is, then answer for the people in the address. */
async function start() {
  try {
    const card = (await call("v1/model")).content;
    const chosen = new URLSearchParams(location.search).get("fields");
    if (chosen !== null) card.shown_fields = chosen.split(",").filter(Boolean);
    const named = ({ name, kind }) => kind === "text" && IMAGES.has(name.toLowerCase());
    card.image_field = card.item_fields.find(named)?.name ?? null;
    page.card = card;
    page.unknown = (await popularItems()).content;
    const hasImage = (item) => /^https?:/.test(item[card.image_field] ?? "");
    if (!page.unknown.items.some(hasImage)) card.image_field = null;
    page.before = null;
    remember(page.unknown.items);
    introduce(card);
    mountQuestions(byId("questions"), {
      person: active,
      card: () => page.card,
      asRequest,
      changed: answered,
      failed: report,
    });
    const found = fromFragment(location.hash, card);
    become(found, found.people[1] ? page.active : 0);
    await answer();
  } catch (error) {
    report(error);
  }
}

/** The body of a request: items with the columns that the page shows. */
function request(rest) {
  const { shown_fields: shown, image_field: image } = page.card;
  const fields = image ? [...shown, image] : shown;
  return fields.length ? { fields, ...rest } : rest;
}

async function popularItems() {
  const ask = (k) => call("v1/recommend", { body: request({ user: {}, k }) });
  try {
    return await ask(KNOWN_POPULAR);
  } catch (error) {
    if (error.field !== "k") throw error;
    return ask(K);
  }
}

function introduce(card) {
  for (const place of document.querySelectorAll("[data-card]")) {
    place.textContent = card[place.dataset.card].toLocaleString("en");
  }
  byId("lead-level").hidden = !card.has_level;
  showJudged(card.judged);
  const code = card.n_bits === null ? "" : `, ${plural(Math.ceil(card.n_bits / 8) + card.has_level, "byte")} each`;
  byId("about").textContent =
    `Model ${card.method}, version ${card.model}: ${plural(card.n_items, "item")}${code}.`;
}

/** Show other people in the form. */
function become({ people, popularity }, which = 0) {
  page.people = people;
  page.popularity = popularity;
  choose(which);
  showDial(page.card, popularity, (share) => {
    page.popularity = share;
    changed();
  });
  writeAddress(); // without what does not fit the model
}

/** Let the form be about one of the people. */
function choose(which) {
  page.active = which;
  showWho(page.people, which, choose);
  showFields(page.card, active(), changed);
  showRated(page.card, active(), titles, changed);
  byId("search-note").textContent = "";
}

/** A question was answered: fields may have changed. */
function answered() {
  showFields(page.card, active(), changed);
  changed();
}

const answerSoon = debounced(80, answer);

function writeAddress() {
  const fragment = asFragment(page.people, page.popularity);
  history.replaceState(null, "", `${location.pathname}${location.search}#${fragment}`);
}

function changed() {
  writeAddress();
  answerSoon();
}

async function answer() {
  const { people, popularity } = page;
  try {
    const found = await Promise.all(people.map((person, at) => person
      && recommend[at]("v1/recommend", request({ user: asRequest(person), k: K, popularity }))));
    if (found.some((each, at) => people[at] && !each)) return; // somebody typed on
    clearWrong();
    byId("problem").hidden = true;
    show(found);
    const { ignored, model } = found[page.active].content;
    markUnknown(ignored);
    await Promise.all([explain(), nameRated(ignored)]);
    if (model !== page.card.model) setTimeout(start, SWAPPING);
  } catch (error) {
    report(error);
  }
}

function explain() {
  const users = page.people.map((person) => asRequest(person ?? nobody()));
  return explainOpened(users, page.popularity, titles, page.card, rate);
}

function show(found) {
  const [first, second] = found.map((each) => each?.content ?? null);
  remember([...first.items, ...(second?.items ?? [])]);
  const difference = showLists(first, second, page.unknown.items, page.people, page.card);
  const { content, took, roundTrip } = found[page.active];
  const bits = showCode(content, page.before ?? page.unknown, page.unknown);
  showWeights(content.weights, active().rated.size - content.ignored.length, content.fallback);
  page.before = content;
  const best = content.items[0];
  byId("news").textContent =
    [`First: ${best ? short(best.title ?? best.item_id) : "nothing"}.`, difference, bits].join(" ");
  const server = took === null ? "" : `The server took ${took.toFixed(took < 10 ? 1 : 0)} ms, `;
  byId("timing").textContent = `${server}there and back ${Math.round(roundTrip)} ms.`;
  byId("loading").hidden = true;
  for (const id of ["page", "footer"]) byId(id).hidden = false;
}

function remember(items) {
  for (const { item_id: itemId, title } of items) if (title !== null) titles.set(itemId, title);
}

/** An address holds ids only: ask for the titles, as candidates of nobody. */
async function nameRated(ignored) {
  const rated = [...active().rated.keys()];
  const nameless = rated.filter((itemId) => !titles.has(itemId) && !ignored.includes(itemId));
  if (!nameless.length || page.unknown.items.every((item) => item.title === null)) return;
  const body = { user: {}, k: nameless.length, candidates: nameless };
  remember((await call("v1/recommend", { body })).content.items);
  if (!nameless.some((itemId) => titles.has(itemId))) return;
  showRated(page.card, active(), titles, changed);
  markUnknown(ignored);
}

function markUnknown(ignored) {
  for (const itemId of ignored) showWrong(`history.${itemId}`, "unknown to this model");
}

/** Rate an item of a list: the best rating, to begin with. What is popular is nobody's list. */
function rate(itemId, at) {
  choose(page.people[at] ? at : 0);
  active().rated.set(itemId, page.card.scale[1]);
  showRated(page.card, active(), titles, changed);
  byId("rated").querySelector("li:last-child input, li:last-child button").focus();
  changed();
}

/** Say what went wrong, beside its field where the server names one. */
function report(error) {
  const refused = error instanceof Refusal;
  const name = refused && error.field?.startsWith("user.") ? error.field.slice("user.".length) : null;
  if (name !== null && showWrong(name, error.words)) return;
  const locked = refused && error.status === 401;
  byId("token-form").hidden = !locked;
  byId("retry").hidden = locked;
  byId("problem-text").textContent = locked
    ? `This server needs a token: ${error.message}.`
    : refused
      ? `The server refused: ${name === null ? "" : `${inWords(name)}: `}${error.words}.`
      : "The server does not answer. It may have been stopped, or the connection is gone"
        + (page.before ? "; what you see is the last answer." : ".");
  byId("loading").hidden = true;
  byId("problem").hidden = false;
  if (!refused) console.info(error.message);
}

function again() {
  byId("problem").hidden = true;
  byId("loading").hidden = page.before !== null;
  if (page.before) answer();
  else start();
}

byId("retry").addEventListener("click", again);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value.trim());
  again();
});
byId("person").addEventListener("submit", (event) => event.preventDefault());
byId("clear").addEventListener("click", () => {
  become({ people: [nobody(), null], popularity: 1 });
  answerSoon();
});
byId("example").addEventListener("click", () => {
  const people = [...page.people];
  people[page.active] = somebody(page.card, page.unknown.items.slice(0, 30));
  become({ people, popularity: page.popularity }, page.active);
  answerSoon();
});
byId("compare").addEventListener("click", () => {
  const both = page.people[1] === null;
  become({ people: [page.people[0], both ? nobody() : null], popularity: page.popularity }, both ? 1 : 0);
  answerSoon();
});
byId("share").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    byId("shared").textContent = "Copied.";
  } catch {
    byId("shared").textContent = "The browser does not allow it; copy the address by hand.";
  }
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment holds the answers
  byId("lists").focus();
});
byId("lists").addEventListener("opened", () => explain().catch(report));
addEventListener("hashchange", () => {
  if (!page.card) return;
  become(fromFragment(location.hash, page.card));
  answerSoon();
});

searchBox({
  isRated: (itemId) => active().rated.has(itemId),
  add: (item) => {
    remember([item]);
    active().rated.set(item.item_id, page.card.scale[1]);
    showRated(page.card, active(), titles, changed);
    changed();
  },
  failed: report,
});
start();
