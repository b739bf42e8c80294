// The form: fields as the model names them, and the rated items.

import { byId, inWords, make, short, valueText } from "./dom.js";

const wrongId = (name) => `wrong-${name}`;

const FIRST = 4; // fields that are always in sight; the list is to stay in the first screen of a phone

/** Put the fields on the page, filled with what is known; `changed` is called after each answer. */
export function showFields(card, person, changed) {
  const asked = card.fields.filter((field) => field.kind !== "vector");
  const brief = asked.filter((field) => ["category", "number", "date"].includes(field.kind)).slice(0, FIRST);
  const rest = asked.filter((field) => !brief.includes(field));
  const control = (field) => fieldFor(field, card.labels[field.name] ?? {}, person, changed);
  const shown = [make("div", { class: "group" }, ...brief.map(control))];
  if (rest.length) {
    const open = byId("more")?.open || !brief.length || rest.some((field) => person.said.has(field.name));
    shown.push(make("details", { id: "more", open }, make("summary", {}, "More about you"),
      make("div", { class: "group" }, ...rest.map(control))));
  }
  byId("fields").replaceChildren(...shown);
  byId("history").hidden = !card.takes_history;
}

function fieldFor(field, labels, person, changed) {
  const wrong = make("p", { class: "wrong", id: wrongId(field.name), hidden: true });
  const told = (value) => {
    if (value === null || value.length === 0) person.said.delete(field.name);
    else person.said.set(field.name, value);
    changed();
  };
  const known = person.said.get(field.name);
  if (field.kind === "multi-label") return checkboxes(field, labels, known ?? [], told, wrong);
  const input = field.kind === "category" ? choice(field, labels, known) : entry(field, known);
  input.setAttribute("aria-describedby", wrong.id);
  input.addEventListener("input", () => {
    const broken = input.validity.badInput;
    showWrong(field.name, broken ? "not a number" : null);
    if (!broken) told(field.kind === "number" && input.value ? Number(input.value) : input.value);
  });
  const label = make("label", { for: input.id }, inWords(field.name));
  return make("div", { class: "field" }, label, input, wrong);
}

function choice(field, labels, known) {
  const order = new Intl.Collator("en", { numeric: true }).compare;
  const options = field.choices.toSorted(order).map((each) =>
    make("option", { value: each }, valueText(labels, each)));
  const empty = make("option", { value: "" }, "–");
  const select = make("select", { id: `field-${field.name}` }, empty, ...options);
  select.value = known ?? "";
  return select;
}

function entry(field, known) {
  const id = `field-${field.name}`;
  if (field.kind === "date") return filled(make("input", { id, type: "date" }), known);
  if (field.kind === "text") return filled(make("input", { id, type: "text", maxlength: 1000 }), known);
  const [low, high] = [Math.ceil(field.min), Math.floor(field.max)];
  const usual = low < high ? { min: low, max: high, placeholder: `${low} to ${high}` } : {};
  return filled(make("input", { id, type: "number", step: "any", ...usual }), known);
}

function filled(input, value) {
  input.value = value ?? "";
  return input;
}

function checkboxes(field, labels, known, told, wrong) {
  const chosen = new Set(known);
  const boxes = field.choices.map((each) => {
    const box = make("input", { type: "checkbox" });
    box.checked = chosen.has(each);
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(each);
      else chosen.delete(each);
      told([...chosen]);
    });
    return make("label", {}, box, valueText(labels, each));
  });
  const legend = make("legend", {}, inWords(field.name));
  return make("fieldset", { class: "field several" }, legend, make("div", {}, ...boxes), wrong);
}

/** Put the rated items on the page; `titles` knows the names of some. */
export function showRated(card, person, titles, changed) {
  const rows = [...person.rated].map(([itemId, rating]) => {
    const title = short(titles.get(itemId) ?? itemId);
    const remove = make("button", { type: "button", "aria-label": `Remove ${title}` }, "×");
    remove.addEventListener("click", () => {
      person.rated.delete(itemId);
      showRated(card, person, titles, changed);
      byId("search").focus();
      changed();
    });
    const wrong = make("p", { class: "wrong", id: wrongId(`history.${itemId}`), hidden: true });
    const rated = (value) => {
      person.rated.set(itemId, value);
      changed();
    };
    return make("li", {}, make("span", { class: "title" }, title),
      ...scaleFor(card.scale, title, rating, rated), remove, wrong);
  });
  byId("rated").replaceChildren(...rows);
}

/** A slider over the scale of the model; none where there is one rating only. */
function scaleFor([low, high], title, rating, rated) {
  if (low === high) return [];
  const fits = (step) => [low, high].every((end) => Number.isInteger(end / step)) && high - low >= 2 * step;
  const slider = make("input", {
    type: "range", min: low, max: high, step: [1, 0.5].find(fits) ?? "any",
    "aria-label": `Your rating of ${title}`,
  });
  slider.value = rating;
  const written = (value) => `${Number(value.toFixed(2))} of ${high}`;
  const output = make("output", {}, written(rating));
  slider.setAttribute("aria-valuetext", written(rating));
  slider.addEventListener("input", () => {
    const value = slider.valueAsNumber;
    output.textContent = written(value);
    slider.setAttribute("aria-valuetext", written(value));
    rated(value);
  });
  return [slider, output];
}

/** Put the dial on the page; `turned` gets how much popularity is to count. */
export function showDial(card, popularity, turned) {
  byId("dial").hidden = !card.has_level;
  const slider = byId("personal");
  const show = (share) => {
    const words = `popularity counts ${Math.round(share * 100)} %`;
    byId("personal-value").textContent = words;
    slider.setAttribute("aria-valuetext", words);
  };
  slider.value = 1 - popularity;
  slider.oninput = () => {
    const share = Math.round((1 - slider.valueAsNumber) * 100) / 100;
    show(share);
    turned(share);
  };
  show(popularity);
}

/** Show whose answers the form holds; `choose` gets the place of the other person. */
export function showWho(people, active, choose) {
  const names = ["First person", "Second person"];
  const buttons = names.map((name, at) => {
    const button = make("button", { type: "button", "aria-pressed": String(at === active) }, name);
    button.addEventListener("click", () => choose(at));
    return button;
  });
  const focused = byId("who").contains(document.activeElement);
  byId("who").replaceChildren(...buttons);
  if (focused) buttons[active].focus();
  byId("who").hidden = !people[1];
  byId("you-title").textContent = people[1] ? `About the ${names[active].toLowerCase()}` : "About you";
  byId("compare").setAttribute("aria-pressed", String(people[1] !== null));
}

/** Say what is wrong beside a field, or take it back; false if the form has no such field. */
export function showWrong(name, words) {
  const place = byId(wrongId(name));
  if (!place) return false;
  place.textContent = words ?? "";
  place.hidden = !words;
  const input = byId(`field-${name}`);
  if (words) input?.setAttribute("aria-invalid", "true");
  else input?.removeAttribute("aria-invalid");
  return true;
}

export function clearWrong() {
  for (const place of document.querySelectorAll(".wrong")) {
    showWrong(place.id.slice(wrongId("").length), null);
  }
}
