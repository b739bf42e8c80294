// "Answer five questions": the next best question, asked until five are answered or skipped.
//
// mountQuestions(place, { person, card, asRequest, changed, failed }) fills an element of the page. `person`
// returns the person as it is (said: Map, answers: Map of item id -> rating or null), `changed` is
// called after every answer, `failed` with an error.

import { inWords, make, plural, short } from "./dom.js";
import { call } from "./server.js";

const N_QUESTIONS = 5;
const N_STEPS = 5; // buttons of a scale

export function mountQuestions(place, { person, card, asRequest, changed, failed }) {
  let left = 0;
  const skipped = new Set();

  const begin = make("button", { type: "button" }, `Answer ${N_QUESTIONS} questions`);
  begin.addEventListener("click", () => {
    left = N_QUESTIONS;
    skipped.clear();
    next();
  });

  async function next() {
    if (left === 0) return show(make("p", { class: "note", role: "status" }, "Thank you."), begin);
    try {
      // fields that were skipped stay missing, so one question more than these is asked for
      const body = { user: asRequest(person()), n: skipped.size + 1 };
      const { questions } = (await call("v1/ask", { body })).content;
      const question = questions.find(({ kind, name }) => !skipped.has(`${kind}.${name}`));
      if (question) show(...ask(question));
      else show(begin);
    } catch (error) {
      failed(error);
    }
  }

  function ask(question) {
    const title = short(question.title ?? (question.kind === "field" ? inWords(question.name) : question.name));
    const answered = (value) => {
      left -= 1;
      if (question.kind === "item") person().answers.set(question.name, value);
      else if (value !== null) person().said.set(question.name, value);
      if (question.kind === "field" && value === null) skipped.add(`field.${question.name}`);
      changed();
      next();
    };
    const choices = question.kind === "item" ? ratings(card()) : values(card(), question.name);
    const buttons = choices.map(([label, value]) => button(label, () => answered(value)));
    const skip = button(question.kind === "item" ? "I do not know it" : "Skip", () => answered(null));
    return [
      make("p", { role: "status" }, make("strong", {}, `${title}?`), ` ${plural(left, "question")} left.`),
      make("p", { class: "buttons" }, ...buttons, skip),
      make("p", { class: "note" }, question.why),
    ];
  }

  function show(...children) {
    place.replaceChildren(...children);
    place.querySelector("button")?.focus({ preventScroll: true });
  }

  place.replaceChildren(begin);
  place.hidden = !card().takes_answers;
}

function button(label, act) {
  const made = make("button", { type: "button" }, label);
  made.addEventListener("click", act);
  return made;
}

/** Some steps of the scale, from the lowest to the highest rating. */
function ratings({ scale: [low, high] }) {
  return Array.from({ length: N_STEPS }, (_, step) => {
    const value = low + ((high - low) * step) / (N_STEPS - 1);
    const shown = Number(value.toFixed(1));
    return [String(shown), Math.min(Math.max(shown, low), high)];
  });
}

/** What a field may be: its most common values, or some numbers of its range. */
function values({ fields }, name) {
  const field = fields.find((each) => each.name === name);
  if (field.choices.length) return field.choices.slice(0, 12).map((choice) => [choice, choice]);
  if (field.kind !== "number") return [];
  return Array.from({ length: N_STEPS }, (_, step) => {
    const value = Math.round(field.min + ((field.max - field.min) * step) / (N_STEPS - 1));
    return [String(value), value];
  });
}
