// The search box: a combobox. Arrow keys choose, Enter adds, Escape closes.

import { byId, make, short } from "./dom.js";
import { debounced, latest } from "./server.js";

const LIMIT = 8;

/** Let the box find items; `add` gets the chosen one, `failed` what went wrong. */
export function searchBox({ isRated, add, failed }) {
  const input = byId("search");
  const list = byId("found");
  const note = byId("search-note");
  const ask = latest();
  let found = [];
  let active = -1;

  const close = () => {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const choose = (item) => {
    close();
    input.value = "";
    note.textContent = `${short(item.title ?? item.item_id)} added; say how you like it.`;
    add(item);
  };

  const mark = (place) => {
    active = place;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", at === place));
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  };

  const show = (items) => {
    found = items.filter((item) => !isRated(item.item_id)).slice(0, LIMIT);
    const options = found.map((item, at) => optionFor(item, at, () => choose(item)));
    list.replaceChildren(...options);
    note.textContent = found.length ? "" : "Nothing found.";
    close();
    if (!found.length || document.activeElement !== input) return;
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  };

  const search = async () => {
    const text = input.value.trim();
    if (!text) return close();
    const query = new URLSearchParams({ search: text, limit: 30 });
    try {
      const answer = await ask(`v1/items?${query}`);
      if (answer && input.value.trim()) show(answer.content.items);
    } catch (error) {
      failed(error);
    }
  };

  input.addEventListener("input", debounced(80, search));
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") close();
    else if (event.key === "Enter") {
      event.preventDefault(); // there is nothing to submit
      if (!list.hidden && found.length) choose(found[Math.max(active, 0)]);
    } else if (step && list.hidden) search();
    else if (step) {
      event.preventDefault();
      mark((active + step + found.length + (active < 0 && step < 0 ? 1 : 0)) % found.length);
    }
  });
}

function optionFor(item, at, choose) {
  const title = make("span", { class: "title" }, item.title ?? item.item_id);
  const id = item.title ? make("span", { class: "id" }, item.item_id) : "";
  const option = make("li", { id: `found-${at}`, role: "option", "aria-selected": "false" }, title, " ", id);
  option.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus
  option.addEventListener("click", choose);
  return option;
}
