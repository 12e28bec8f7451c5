// The head of a lesson: all of them in a row, its title and story, its link; the keys that turn them.
(() => {
  const { make } = window.kvviz;
  const { button, keepFocus } = window.kvviz.lesson;
  const TURN = { PageDown: "next", n: "next", N: "next", PageUp: "previous", p: "previous", P: "previous" };
  const TYPING = "input:not([type=radio]), textarea, select, [contenteditable=true]";

  /** The query that the page gave, for another lesson. */
  function turned(query, key) {
    const said = new URLSearchParams(query);
    said.set("lesson", key);
    return said;
  }

  /** The address in this browser: a lesson, and what the present one says to the page itself (language, host). */
  function ownAddress(query, key) {
    const said = turned(query, key);
    for (const [name, words] of new URLSearchParams(location.search)) {
      if (name === "lang" || name === "view" || name.startsWith("__")) said.append(name, words);
    }
    return window.kvviz.share.address(said);
  }

  function navigation({ label, items }, go) {
    const nav = make("nav", "kv-lesson-nav");
    nav.setAttribute("aria-label", label);
    const list = make("ol");
    for (const item of items) {
      const entry = make("li");
      const chip = make("button", item.done ? "kv-done" : "");
      chip.type = "button";
      chip.dataset.id = `go-${item.key}`;
      chip.title = `${item.title} (${item.state})`;
      chip.append(make("b", "", item.done ? `${item.number} ✓` : String(item.number)), make("span", "", item.title));
      chip.setAttribute("aria-label", `${item.number} ${item.title}: ${item.state}`);
      if (item.current) chip.setAttribute("aria-current", "step");
      chip.addEventListener("click", () => go(item.key));
      entry.append(chip);
      list.append(entry);
    }
    nav.append(list);
    return nav;
  }

  window.kvviz.define("lesson-nav", (root, trigger) => {
    let value = null;

    function go(key) {
      if (!key) return;
      history.replaceState(history.state, "", ownAddress(value.query, key));
      trigger("click", { action: "go", lesson: key });
    }

    document.addEventListener("keydown", (event) => {
      if (!value?.instructor || !root.offsetParent || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target instanceof Element && event.target.matches(TYPING)) return;
      const turn = TURN[event.key];
      if (turn) go(value[turn].key);
      else if (event.key.toLowerCase() === "r") trigger("click", { action: "reveal" });
      else return;
      event.preventDefault();
    });

    async function copy(node) {
      const field = window.kvviz.share.addressField(value.words.address);
      field.value = window.kvviz.share.address(value.query);
      const tools = node.closest(".kv-lesson-tools");
      tools.querySelector(".kv-share-address")?.remove();
      tools.append(field);
      const copied = await window.kvviz.share.toClipboard(field.value, field);
      node.textContent = copied ? value.words.copied : value.words.copy_by_hand;
      node.dataset.copied = String(copied);
      if (!copied) return;
      field.remove();
      node.focus();
    }

    function turner(name) {
      const { key, label } = value[name];
      return button(name, { label, enabled: Boolean(key) }, () => go(key));
    }

    function tools() {
      const box = make("div", "kv-lesson-tools");
      const link = button("copy", { label: value.words.copy, enabled: true }, () => copy(link));
      box.append(turner("previous"), navigation(value, go), turner("next"), link);
      return box;
    }

    return {
      draw(next) {
        if (!next.title) return;
        value = next;
        root.closest(".kv-lesson")?.classList.toggle("kv-large", value.instructor);
        root.dataset.lesson = value.key;
        const title = make("h2", "", value.title);
        title.tabIndex = -1;
        const head = make("div", "kv-lesson-head");
        head.append(title, tools());
        const story = make("p", "kv-lesson-story", value.story);
        const refused = value.refused ? [make("p", "kv-lesson-refused", value.refused)] : [];
        refused.forEach((line) => line.setAttribute("role", "alert"));
        const total = make("p", "kv-lesson-total", value.total);
        keepFocus(root, () => root.replaceChildren(...refused, head, total, story));
        if (value.moved) title.focus({ preventScroll: true });
      },
    };
  });
})();
