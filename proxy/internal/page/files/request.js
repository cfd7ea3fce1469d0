// Requests to the API. Requests that change something have a header that a page of another site cannot send.
import { byId, element } from "./dom.js";

const query = (parameters) => {
  const q = new URLSearchParams(parameters).toString();
  return q ? `?${q}` : "";
};

async function answer(response) {
  if (response.ok) return response.json();
  const body = await response.json().catch(() => ({}));
  throw new Error(body.details || body.error || response.statusText);
}

export const get = async (path, parameters = {}, options = {}) => answer(await fetch(`/v1/${path}${query(parameters)}`, options));

export const post = async (path, parameters = {}) =>
  answer(await fetch(`/v1/${path}${query(parameters)}`, { method: "POST", headers: { "Penstock-Admin": "1" } }));

/** say shows a message for a while. An error stays until it is closed. */
export function say(message, level = "ok") {
  const close = element("button", { type: "button", className: "quiet", textContent: "Close" });
  const node = element("div", { className: "message", data: { level } }, element("pre", { textContent: message }), close);
  close.addEventListener("click", () => node.remove());
  byId("messages").append(node);
  if (level === "ok") setTimeout(() => node.remove(), 6000);
}

/** attempt disables a button while an action runs, and shows its error. */
export async function attempt(button, action) {
  button.setAttribute("aria-busy", "true");
  try {
    await action();
  } catch (error) {
    say(error.message, "down");
  } finally {
    button.removeAttribute("aria-busy");
  }
}

/** ask returns whether the user says yes. */
export function ask(title, body, yes) {
  const dialog = byId("ask");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = body;
  byId("ask-yes").textContent = yes;
  return new Promise((resolve) => {
    let said = false;
    byId("ask-yes").onclick = () => { said = true; dialog.close(); };
    byId("ask-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(said);
    dialog.showModal();
    byId("ask-yes").focus();
  });
}
