// A lesson: where it stands among the others, its questions and what may be pressed; below the figures, why it is so.
// Everything is set as text, nothing as markup. What is typed before it is locked in stays here.
(() => {
  const { make } = window.kvviz;
  const TURN = { PageDown: "next", n: "next", N: "next", PageUp: "previous", p: "previous", P: "previous" };
  const TYPING = "input:not([type=radio]), textarea, select, [contenteditable=true]";
  const drafts = {}; // lesson -> question -> answer

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

  function button(name, { label, enabled }, onClick) {
    const node = make("button", `kv-lesson-button kv-lesson-${name}`, label);
    node.type = "button";
    node.dataset.id = name;
    node.disabled = !enabled;
    node.addEventListener("click", onClick);
    return node;
  }

  function navigation({ label, items, total }, go) {
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
    nav.append(list, make("p", "kv-lesson-total", total));
    return nav;
  }

  function options(question, draft) {
    const box = make("div", "kv-lesson-options");
    for (const { value, label } of question.options) {
      const row = make("label");
      const input = make("input");
      input.type = "radio";
      input.name = `lesson-${question.key}`;
      input.value = value;
      input.dataset.id = `${question.key}-${value}`;
      input.checked = (question.locked ? question.answer : draft[question.key]) === value;
      input.disabled = question.locked;
      input.addEventListener("change", () => (draft[question.key] = value));
      row.append(input, make("span", "", label));
      box.append(row);
    }
    return box;
  }

  function estimate(question, draft) {
    const row = make("label", "kv-lesson-number");
    const input = make("input");
    input.type = "text";
    input.inputMode = "decimal";
    input.autocomplete = "off";
    input.dataset.id = question.key;
    input.value = (question.locked ? question.answer : draft[question.key]) ?? "";
    input.disabled = question.locked;
    input.addEventListener("input", () => (draft[question.key] = input.value));
    row.append(make("span", "", question.label), input, make("span", "kv-unit", question.unit));
    return row;
  }

  function verdict({ kind, title, said, measured, words }) {
    const box = make("div", "kv-verdict-box");
    box.dataset.kind = kind;
    const head = make("p", "kv-verdict-head");
    head.append(make("b", "", title), ` ${[said, measured].filter(Boolean).join(" · ")}`);
    box.append(head, make("p", "kv-verdict-words", words));
    return box;
  }

  function ask(question, number, draft) {
    const field = make("fieldset", "kv-lesson-question");
    field.dataset.question = question.key;
    field.append(make("legend", "", `${number}. ${question.ask}`));
    field.append(question.options ? options(question, draft) : estimate(question, draft));
    if (question.verdict) field.append(verdict(question.verdict));
    return field;
  }

  /** Where the focus was, it stays, or goes to what comes after it. */
  function keepFocus(root, fill, after = {}) {
    const id = root.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    fill();
    if (!id) return;
    const find = (name) => name && root.querySelector(`[data-id="${CSS.escape(name)}"]:not(:disabled)`);
    (find(id) ?? find(after[id]) ?? find("stored"))?.focus({ preventScroll: true });
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

    function tools() {
      const box = make("div", "kv-lesson-tools");
      for (const name of ["previous", "next"]) {
        const { key, label } = value[name];
        box.append(button(name, { label, enabled: Boolean(key) }, () => go(key)));
      }
      const link = button("copy", { label: value.words.copy, enabled: true }, () => copy(link));
      box.append(link);
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
        keepFocus(root, () => root.replaceChildren(...refused, navigation(value, go), head, story));
        if (value.moved) title.focus({ preventScroll: true });
      },
    };
  });

  window.kvviz.define("lesson", (root, trigger) => {
    function press(value, name) {
      if (name === "live") trigger("submit", {});
      else if (name === "lock") trigger("click", { action: "lock", answers: { ...drafts[value.key] } });
      else trigger("click", { action: name });
    }

    function predict(value) {
      const step = make("section", "kv-lesson-step");
      step.append(make("h3", "", value.steps.predict));
      value.questions.forEach((question, i) => step.append(ask(question, i + 1, drafts[value.key])));
      const { lock } = value.buttons;
      if (lock.shown) step.append(button("lock", lock, () => press(value, "lock")));
      return step;
    }

    function run(value) {
      const step = make("section", "kv-lesson-step");
      const runs = make("div", "kv-lesson-runs");
      for (const [name, one] of Object.entries(value.buttons)) {
        if (one.shown && name !== "lock") runs.append(button(name, one, () => press(value, name)));
      }
      const note = make("p", "kv-lesson-note", value.note);
      note.setAttribute("role", "status");
      step.append(make("h3", "", value.steps.run), note, runs, make("p", "kv-lesson-source", value.source));
      return step;
    }

    return {
      draw(value) {
        if (!value.questions) return;
        drafts[value.key] ??= {};
        root.dataset.lesson = value.key;
        root.dataset.locked = String(value.locked);
        root.dataset.source = value.kind;
        const after = { lock: "stored", live: "stop", stop: "live" };
        keepFocus(root, () => root.replaceChildren(predict(value), run(value)), after);
      },
    };
  });

  window.kvviz.define("lesson-tell", (root) => ({
    draw({ observe, look_for: lookFor, explain, paragraphs, keys }) {
      const parts = [];
      if (observe) parts.push(make("h3", "", observe), make("p", "kv-lesson-look", lookFor));
      if (explain) parts.push(make("h3", "", explain), ...paragraphs.map((words) => make("p", "", words)));
      if (keys) parts.push(make("p", "kv-lesson-keys", keys));
      root.replaceChildren(...parts);
    },
  }));
})();
