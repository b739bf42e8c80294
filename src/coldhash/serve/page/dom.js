// Making elements. Whatever comes from the server or the address becomes text, never markup.

export const byId = (id) => document.getElementById(id);

const LONGEST = 1000; // letters of one text: layout of far longer ones hangs the browser

/** A text, cut if it is too long to be read. */
export const short = (text) =>
  text.length > LONGEST ? `${[...text.slice(0, 2 * LONGEST)].slice(0, LONGEST - 1).join("")}…` : text;

/** Make an element; a value of false, null or undefined leaves the attribute out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (typeof child === "string" ? short(child) : child)));
  return element;
}

/** Text for those who listen instead of looking. */
export const aside = (text) => make("span", { class: "aside" }, text);

/** A bar of a share from 0 to 1, with its label and what to write beside it. */
export function bar(label, share, written, kind = "") {
  const track = make("span", { class: `track ${kind}`, "aria-hidden": "true" }, make("span"));
  // through the object model: the page's policy forbids style attributes
  track.firstChild.style.setProperty("--share", `${Math.round(share * 1000) / 10}%`);
  return make("li", {}, make("span", { class: "label" }, label), track,
    make("span", { class: "value" }, written));
}

/** "age_group" -> "Age group". */
export function inWords(name) {
  const words = short(name).replaceAll(/[_\s]+/g, " ").trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A value of a column as a text: its label where the model has one, several with commas. */
export function valueText(labels, value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map((each) => valueText(labels, each)).join(", ");
  const text = String(value);
  return Object.hasOwn(labels ?? {}, text) ? labels[text] : text.split(/[|;]/).join(", ");
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
