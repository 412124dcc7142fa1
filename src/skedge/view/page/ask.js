/* Questions to the server, with the token that the page was given, which this browser tab alone keeps. */

const KEPT = "skedge-token";

const headers = () => {
  const token = sessionStorage.getItem(KEPT);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

/** Keep a token until the tab is closed. */
export const keepToken = (token) => sessionStorage.setItem(KEPT, token);

/** What the server refuses, with its status and its sentence. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/**
 * The answer to a question.
 * @param {string} path below /v1
 * @param {Object<string, string|number>} [asked]
 */
export async function ask(path, asked = {}) {
  const query = new URLSearchParams(asked).toString();
  const response = await fetch(`v1${path}${query ? `?${query}` : ""}`, { headers: headers() });
  if (response.ok) return response.json();
  const told = await response.json().catch(() => ({}));
  throw new Refused(response.status, told.detail || `the server answers with status ${response.status}`);
}

/** Call `happened` after each batch of server-sent events, from number `since` on, for as long as the service lives. */
export async function follow(since, happened) {
  const response = await fetch(`v1/events/stream?since=${since}`, { headers: headers() });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    if (value.includes("data:")) happened();
  }
}
