// Asking the service, and telling apart what can go wrong.

let token = ""; // in memory only: a page that is loaded anew asks again

/** The server answered with an error: its status, the field it names, and words. */
export class Refusal extends Error {
  constructor(status, { field = null, message = "", hint = null } = {}) {
    super(message || `the server answered with status ${status}`);
    this.status = status;
    this.field = field;
    this.hint = hint;
  }

  get words() {
    return this.hint ? `${this.message} (${this.hint})` : this.message;
  }
}

/** No answer at all. */
export class Unreachable extends Error {}

export function useToken(given) {
  token = given.replaceAll(/[^\x20-\x7e]/g, ""); // a header takes nothing else
}

/** GET, or POST where there is a body. Paths are relative, so a prefix of a proxy is kept. */
export async function call(path, { body, signal } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const start = performance.now();
  let response, text;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body),
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable(error.message);
  }
  const roundTrip = performance.now() - start;
  const content = parsed(text);
  if (!response.ok) throw new Refusal(response.status, content?.error ?? {});
  if (content === null) throw new Refusal(response.status, { message: "the answer is not JSON" });
  return { content, roundTrip, took: tookOf(response.headers.get("Server-Timing")) };
}

/** A function that drops the answers, and the errors, of all its calls but the last. */
export function latest() {
  let controller = null;
  return async (path, body) => {
    controller?.abort();
    const mine = (controller = new AbortController());
    try {
      const answer = await call(path, { body, signal: mine.signal });
      return mine === controller ? answer : null;
    } catch (error) {
      if (mine !== controller || error.name === "AbortError") return null;
      throw error;
    }
  };
}

/** Do something once nothing has asked for it during some milliseconds. */
export function debounced(milliseconds, act) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function tookOf(header) {
  const found = /total;dur=([\d.]+)/.exec(header ?? "");
  return found ? Number(found[1]) : null;
}
