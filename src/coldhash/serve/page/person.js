// What is known of one or two people: in memory, in a request, and in the address.
//
// In the address: #age=25&gender=F&history.1193=5&request.popularity=0.5; names of fields and of
// ratings are those that errors of the server use, too. With request.compare=1 there is a second
// person, whose names begin with "other.".
// An address may come from anybody, so what does not fit the model is dropped.

const HISTORY = "history.";
const OTHER = "other.";
const POPULARITY = "request.popularity";
const COMPARE = "request.compare";
const MAX_RATED = 100;
const MAX_TEXT = 1000;

/** Nobody in particular: field -> value (or list of them), and item id -> rating. */
export const nobody = () => ({ said: new Map(), rated: new Map() });

export function asRequest(person) {
  const user = Object.fromEntries(person.said); // makes own keys, even of "__proto__"
  if (person.rated.size) user.history = Object.fromEntries(person.rated);
  return user;
}

/** The address of one or two people and the dial. */
export function asFragment([first, second], popularity) {
  const pairs = [...pairsOf(first, "")];
  if (popularity !== 1) pairs.push([POPULARITY, popularity]);
  if (second) pairs.push([COMPARE, 1], ...pairsOf(second, OTHER));
  return new URLSearchParams(pairs).toString();
}

function* pairsOf(person, prefix) {
  for (const [name, value] of person.said) {
    for (const each of [value].flat()) yield [prefix + name, each];
  }
  for (const [itemId, rating] of person.rated) yield [prefix + HISTORY + itemId, rating];
}

/** What an address says: the people, the second of whom may be null, and the dial. */
export function fromFragment(fragment, card) {
  const found = { people: [nobody(), null], popularity: 1 };
  const fields = new Map(card.fields.map((field) => [field.name, field]));
  const pairs = [...new URLSearchParams(fragment.replace(/^#/, ""))];
  if (pairs.some(([name, text]) => name === COMPARE && text === "1")) found.people[1] = nobody();
  for (const [name, text] of pairs) {
    const other = found.people[1] && !fields.has(name) && name.startsWith(OTHER);
    const [person, own] = other ? [found.people[1], name.slice(OTHER.length)] : [found.people[0], name];
    if (fields.has(own)) say(person, fields.get(own), text);
    else if (card.takes_history && own.startsWith(HISTORY)) {
      rate(person, own.slice(HISTORY.length), text, card.scale);
    } else if (card.has_level && name === POPULARITY) found.popularity = shareOf(text) ?? found.popularity;
  }
  return found;
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

function rate(person, itemId, text, [low, high]) {
  const rating = Number(text);
  const fits = text.trim() !== "" && rating >= low && rating <= high;
  if (itemId && itemId.length <= MAX_TEXT && fits && person.rated.size < MAX_RATED) {
    person.rated.set(itemId, rating);
  }
}

function shareOf(text) {
  const share = Number(text);
  return text.trim() !== "" && share >= 0 && share <= 1 ? share : null;
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
