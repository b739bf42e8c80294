// The page: from what somebody says to what the service answers, at once.

import { mountQuestions } from "./ask.js";
import { byId, inWords, plural, short } from "./dom.js";
import { clearWrong, showDial, showFields, showRated, showWeights, showWrong } from "./form.js";
import { asFragment, asRequest, fromFragment, nobody, somebody } from "./person.js";
import { explainOpened, showCode, showLists } from "./results.js";
import { searchBox } from "./search.js";
import { Refusal, call, debounced, latest, useToken } from "./server.js";

const K = 10;
const KNOWN_POPULAR = 100; // of the popular items: to say where a recommended one would be
const SWAPPING = 1000; // milliseconds in which all workers have the same model again

const titles = new Map(); // of items seen in answers
const page = { card: null, unknown: null, person: nobody(), answer: null };
const recommend = latest();

/** Load what the model is, then answer for the person in the address. */
async function start() {
  try {
    const [card, unknown] = await Promise.all([call("v1/model"), popularItems()]);
    page.card = card.content;
    page.unknown = unknown.content;
    page.answer = null;
    remember(page.unknown.items);
    introduce(page.card);
    mountQuestions(byId("questions"), {
      person: () => page.person,
      card: () => page.card,
      asRequest,
      changed: answered,
      failed: report,
    });
    become(fromFragment(location.hash, page.card));
  } catch (error) {
    report(error);
  }
}

async function popularItems() {
  try {
    return await call("v1/recommend", { body: { user: {}, k: KNOWN_POPULAR } });
  } catch (error) {
    if (error.field !== "k") throw error;
    return call("v1/recommend", { body: { user: {}, k: K } });
  }
}

function introduce(card) {
  for (const place of document.querySelectorAll("[data-card]")) {
    place.textContent = card[place.dataset.card].toLocaleString("en");
  }
  byId("lead-codes").hidden = card.n_bits === null;
  byId("lead-plain").hidden = card.n_bits !== null;
  byId("lead-level").hidden = !card.has_level;
  byId("main").hidden = false;
  const code = card.n_bits === null ? "" : `, ${plural(Math.ceil(card.n_bits / 8) + card.has_level, "byte")} each`;
  byId("about").textContent =
    `Model ${card.method}, version ${card.model}: ${plural(card.n_items, "item")}${code}.`;
}

/** Show another person in the form. */
function become(person) {
  page.person = person;
  showFields(page.card, person, changed);
  showRated(page.card, person, titles, changed);
  showDial(page.card, person, changed);
  byId("search-note").textContent = "";
  changed();
}

/** A question was answered: fields may have changed. */
function answered() {
  showFields(page.card, page.person, changed);
  changed();
}

const answerSoon = debounced(80, answer);

function changed() {
  history.replaceState(null, "", `${location.pathname}${location.search}#${asFragment(page.person)}`);
  answerSoon();
}

async function answer() {
  const user = asRequest(page.person);
  const { popularity } = page.person;
  try {
    const found = await recommend("v1/recommend", { user, k: K, popularity });
    if (!found) return; // somebody typed on
    clearWrong();
    byId("problem").hidden = true;
    show(found);
    markUnknown(found.content.ignored);
    await Promise.all([explainOpened(user, popularity, titles, page.card), nameRated(found.content.ignored)]);
    if (found.content.model !== page.card.model) setTimeout(start, SWAPPING);
  } catch (error) {
    report(error);
  }
}

function show({ content, took, roundTrip }) {
  remember(content.items);
  const difference = showLists(content, page.unknown.items, page.person);
  const bits = showCode(content, page.answer ?? page.unknown, page.unknown);
  showWeights(content.weights, page.person.rated.size - content.ignored.length, content.fallback);
  page.answer = content;
  const first = content.items[0];
  byId("news").textContent =
    [`First for you: ${first ? short(first.title ?? first.item_id) : "nothing"}.`, difference, bits].join(" ");
  const server = took === null ? "" : `The server took ${took.toFixed(took < 10 ? 1 : 0)} ms, `;
  byId("timing").textContent = `${server}there and back ${Math.round(roundTrip)} ms.`;
}

function remember(items) {
  for (const { item_id: itemId, title } of items) if (title !== null) titles.set(itemId, title);
}

/** An address holds ids only: ask for the titles, as candidates of nobody. */
async function nameRated(ignored) {
  const rated = [...page.person.rated.keys()];
  const nameless = rated.filter((itemId) => !titles.has(itemId) && !ignored.includes(itemId));
  if (!nameless.length || page.unknown.items.every((item) => item.title === null)) return;
  const body = { user: {}, k: nameless.length, candidates: nameless };
  remember((await call("v1/recommend", { body })).content.items);
  if (!nameless.some((itemId) => titles.has(itemId))) return;
  showRated(page.card, page.person, titles, changed);
  markUnknown(ignored);
}

function markUnknown(ignored) {
  for (const itemId of ignored) showWrong(`history.${itemId}`, "unknown to this model");
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
      : "The server does not answer. It may have been stopped, or the connection is gone; " +
        "what you see is the last answer.";
  byId("problem").hidden = false;
  if (!refused) console.info(error.message);
}

function again() {
  byId("problem").hidden = true;
  if (page.card) answer();
  else start();
}

byId("retry").addEventListener("click", again);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value.trim());
  again();
});
byId("person").addEventListener("submit", (event) => event.preventDefault());
byId("clear").addEventListener("click", () => become(nobody()));
byId("example").addEventListener("click", () =>
  become(somebody(page.card, page.unknown.items.slice(0, 30))));
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
  byId("for-you").focus();
});
byId("mine").addEventListener("opened", () =>
  explainOpened(asRequest(page.person), page.person.popularity, titles, page.card).catch(report));
addEventListener("hashchange", () => page.card && become(fromFragment(location.hash, page.card)));

searchBox({
  isRated: (itemId) => page.person.rated.has(itemId),
  add: (item) => {
    remember([item]);
    page.person.rated.set(item.item_id, page.card.scale[1]);
    showRated(page.card, page.person, titles, changed);
    changed();
  },
  failed: report,
});
start();
