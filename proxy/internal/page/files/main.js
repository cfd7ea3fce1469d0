// The page shows each event of the admin API as it comes.
import { Actions } from "./actions.js";
import { ByHand } from "./byhand.js";
import { Configuration } from "./configuration.js";
import { byId, mark, text } from "./dom.js";
import { Endpoints } from "./endpoints.js";
import { large, Overview } from "./overview.js";
import { Places } from "./places.js";
import { Sessions } from "./sessions.js";
import { follow, State } from "./state.js";
import { Verdicts } from "./verdicts.js";

const state = new State();
const sessions = new Sessions();
const overview = new Overview(state);
const actions = new Actions(state);
const parts = [
  overview, new Verdicts(state), new Places(state), new Configuration(state),
  new Endpoints(state, (row) => {
    sessions.set({ upstream: row.upstream, endpoint: row.name });
    byId("sessions").scrollIntoView();
    byId("f-endpoint").focus({ preventScroll: true });
  }, (endpoint) => actions.open(endpoint)),
  new ByHand(state),
];

// The bar at the top grows with its messages. Jumps end below it.
new ResizeObserver(([entry]) => {
  document.documentElement.style.scrollPaddingTop = `${Math.ceil(entry.borderBoxSize[0].blockSize) + 12}px`;
}).observe(byId("bar"));

follow(state, () => {
  overview.record();
  if (state.endpoints.size > large && state.event % 2 && !state.urgent) return; // only numbers have changed
  for (const part of parts) part.update();
  document.documentElement.dataset.event = state.event;
}, (level) => {
  mark(byId("live"), "level", level);
  text(byId("live"), level === "ok" ? "live" : "offline");
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "/") byId("find").focus();
  else if (event.key === "t") window.nextTheme();
  else return;
  event.preventDefault();
});
