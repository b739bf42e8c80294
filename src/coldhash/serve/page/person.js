// What is known of the person: in memory, in a request, and in the address.
//
// In the address: #age=25&gender=F&history.1193=5&request.popularity=0.5; names of fields and of
// ratings are those that errors of the server use, too.
// An address may come from anybody, so what does not fit the model is dropped.

const HISTORY = "history.";
const ANSWERS = "answers.";
const UNKNOWN = "unknown"; // an answer: I do not know it
const POPULARITY = "request.popularity";
const MAX_RATED = 100;
const MAX_TEXT = 1000;

/** Nobody in particular: field -> value (or list of them), item id -> rating, and the dial. */
export const nobody = () => ({ said: new Map(), rated: new Map(), answers: new Map(), popularity: 1 });

export function asRequest(person) {
  const user = Object.fromEntries(person.said); // makes own keys, even of "__proto__"
  if (person.rated.size) user.history = Object.fromEntries(person.rated);
  if (person.answers.size) user.answers = Object.fromEntries(person.answers);
  return user;
}

export function asFragment(person) {
  const pairs = new URLSearchParams();
  for (const [name, value] of person.said) {
    for (const each of [value].flat()) pairs.append(name, each);
  }
  for (const [itemId, rating] of person.rated) pairs.append(HISTORY + itemId, rating);
  for (const [itemId, rating] of person.answers) pairs.append(ANSWERS + itemId, rating ?? UNKNOWN);
  if (person.popularity !== 1) pairs.append(POPULARITY, person.popularity);
  return pairs.toString();
}

export function fromFragment(fragment, card) {
  const person = nobody();
  const fields = new Map(card.fields.map((field) => [field.name, field]));
  const pairs = new URLSearchParams(fragment.replace(/^#/, ""));
  for (const [name, text] of pairs) {
    const field = fields.get(name);
    if (field) say(person, field, text);
    else if (card.takes_history && name.startsWith(HISTORY)) {
      rate(person.rated, name.slice(HISTORY.length), text, card.scale);
    } else if (card.takes_answers && name.startsWith(ANSWERS)) {
      const itemId = name.slice(ANSWERS.length);
      if (text !== UNKNOWN) rate(person.answers, itemId, text, card.scale);
      else if (itemId && itemId.length <= MAX_TEXT && person.answers.size < MAX_RATED) {
        person.answers.set(itemId, null);
      }
    } else if (card.has_level && name === POPULARITY) weigh(person, text);
  }
  return person;
}

function say(person, field, text) {
  const value = valueOf(field, text);
  if (value === null) return;
  if (field.kind !== "multi-label") person.said.set(field.name, value);
  else person.said.set(field.name, [...new Set([...(person.said.get(field.name) ?? []), value])]);
}

/** What a text means for a field, or null. */
function valueOf(field, text) {
  if (text.trim() === "") return null;
  if (field.kind === "number") return Number.isFinite(Number(text)) ? Number(text) : null;
  if (field.kind === "text") return text.slice(0, MAX_TEXT);
  return field.choices.includes(text) ? text : null; // and a vector has no choices
}

function rate(rated, itemId, text, [low, high]) {
  const rating = Number(text);
  const fits = text.trim() !== "" && rating >= low && rating <= high;
  if (itemId && itemId.length <= MAX_TEXT && fits && rated.size < MAX_RATED) {
    rated.set(itemId, rating);
  }
}

function weigh(person, text) {
  const popularity = Number(text);
  if (text.trim() !== "" && popularity >= 0 && popularity <= 1) person.popularity = popularity;
}

/** Somebody at random, to show what the page does. */
export function somebody(card, popular) {
  const person = nobody();
  const pick = (list) => list[Math.floor(Math.random() * list.length)];
  for (const field of card.fields) {
    if (field.kind === "category") person.said.set(field.name, pick(field.choices));
    if (field.kind === "multi-label") person.said.set(field.name, [pick(field.choices)]);
    if (field.kind === "number") {
      person.said.set(field.name, Math.round(field.min + Math.random() * (field.max - field.min)));
    }
  }
  if (card.takes_history && popular.length) {
    const [low, high] = card.scale;
    for (let n = 0; n < 3; n++) person.rated.set(pick(popular).item_id, n ? high : low);
  }
  return person;
}
