// How it works: the figure of held-out people, what counts, and the code.

import { bar, byId, inWords, make, plural } from "./dom.js";

/** "af82" -> [1, 1, 1, 1, 0, 1, 0, 1, ...]: bit b is bit b % 8 of byte b // 8. */
function bitsOf(hex, nBits) {
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

/** Draw the share of each group of fields. */
export function showWeights(weights, ratingsCount, fallback) {
  const bars = Object.entries(weights).map(([group, share]) =>
    bar(inWords(group), share, `${Math.round(share * 100)} %`));
  byId("bars").replaceChildren(...bars);
  byId("weights").hidden = bars.length === 0;
  byId("weights-note").textContent = fallback
    ? "Nothing is known yet, so nothing counts but popularity."
    : ratingsCount
      ? "The share of each group of answers. Your ratings then move the result."
      : "The share of each group of answers.";
}

/** Say how held-out people did with the model and with what is popular. */
export function showJudged(judged) {
  byId("judged-text").replaceChildren(...(judged ? figuresOf(judged) : [make("p", {},
    "Not known: nobody has judged this model. ", make("code", {}, "coldhash fit --judge"),
    " does it with people that are held out, and writes the figure into the model file.")]));
}

function figuresOf({ users, k, rows }) {
  const [first, last] = [rows[0], rows.at(-1)];
  const answer = { ahead: "Yes", tied: "Not measurably", behind: "No" }[first.verdict];
  const ratio = ({ model, popularity }) => (model.mean / popularity.mean).toFixed(2);
  const percent = (share) => (100 * share).toFixed(1);
  const figures = [["What is popular", first.popularity], ...rows.map(({ given, model }) =>
    [given ? `… and ${plural(given, "rating")}` : "What is known of them", model])];
  const most = Math.max(...figures.map(([, figure]) => figure.high));
  const later = last === first ? "" : `, and ${ratio(last)} times as many after ${plural(last.given, "rating")}`;
  return [
    make("p", {}, make("strong", {}, `${answer}. `),
      `Settings like these found ${ratio(first)} times as many favourites of ${plural(users, "person", "people")} `
      + `who were held out as popularity did${later}.`),
    make("ul", { class: "bars" }, ...figures.map(([name, { mean, low, high }]) =>
      bar(name, mean / most, `${percent(mean)} % (${percent(low)} to ${percent(high)})`))),
    make("p", { class: "note" }, `How often a favourite is among the first ${k} when it is hidden among `
      + "up to 1,000 items that the person has not rated; in brackets the 95 % interval."),
  ];
}
