// Nodes are changed in place, and only where something is new. No text is ever read as HTML.

export const byId = (id) => document.getElementById(id);

/** text sets the text of a node. */
export function text(node, value) {
  if (node.shown !== value) {
    node.shown = value;
    node.textContent = value;
  }
}

/** mark sets a data attribute of a node, or removes it. */
export function mark(node, name, value) {
  if (value === undefined || value === "") {
    if (name in node.dataset) delete node.dataset[name];
  } else if (node.dataset[name] !== value) {
    node.dataset[name] = value;
  }
}

/** element makes a node with properties, data attributes and children. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(node.dataset, value);
    else if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

/** list gives a parent one child for each item, in place. make makes a child, and fill fills it in. */
export function list(parent, items, make, fill) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, i) => {
    if (!parent.children[i]) parent.append(make());
    fill(parent.children[i], item);
  });
}

/** cells makes a row of a plain table. titles name its cells on a small screen. */
export const cells = (titles) => () => element("tr", {}, ...titles.map((title) => element("td", { data: { title } })));
