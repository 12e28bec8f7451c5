// A lesson's four steps, one of them open: its questions and what may be pressed; beside the figures, why it is so.
// Everything is set as text, nothing as markup. What is typed before it is locked in stays here.
(() => {
  const { make } = window.kvviz;
  const drafts = {}; // lesson -> question -> answer

  function button(name, { label, enabled }, onClick) {
    const node = make("button", `kv-lesson-button kv-lesson-${name}`, label);
    node.type = "button";
    node.dataset.id = name;
    node.disabled = !enabled;
    node.addEventListener("click", onClick);
    return node;
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
    return field;
  }

  /** A question that is answered, in as few lines as it takes: what was said, or what the run says to it. */
  function answered(question, number, told) {
    const box = make("div", "kv-lesson-answered");
    box.dataset.question = question.key;
    box.append(make("p", "kv-lesson-asked", `${number}. ${question.ask}`));
    if (told && question.verdict) box.append(verdict(question.verdict));
    else if (question.said) box.append(make("p", "kv-lesson-said", question.said));
    return box;
  }

  /** How the predictions stand, a line each. */
  function marks(questions) {
    const list = make("ul", "kv-lesson-marks");
    questions.forEach(({ verdict: found }, i) => {
      if (!found) return;
      const line = make("li");
      line.dataset.kind = found.kind;
      const head = make("span", "kv-verdict-head");
      head.append(`${i + 1}. `, make("b", "", found.title), found.measured && ` ${found.measured}`);
      line.append(head);
      list.append(line);
    });
    return list;
  }

  /** Where the focus was, it stays, or goes to what comes after it. */
  function keepFocus(root, fill, after = []) {
    const id = root.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    fill();
    if (!id) return;
    const find = (name) => root.querySelector(`[data-id="${CSS.escape(name)}"]:not(:disabled)`);
    [id, ...after].map(find).find((node) => node?.getClientRects().length)?.focus({ preventScroll: true });
  }

  window.kvviz.lesson = { button, keepFocus };

  window.kvviz.define("lesson", (root, trigger) => {
    const chosen = {}; // lesson -> the step that is open, and the state of things when it was opened
    let value = null;

    function press(name) {
      if (name === "live") trigger("submit", {});
      else if (name === "lock") trigger("click", { action: "lock", answers: { ...drafts[value.key] } });
      else trigger("click", { action: name });
    }

    function presses(...names) {
      const row = make("div", "kv-lesson-runs");
      for (const name of names) {
        const one = value.buttons[name];
        if (one?.shown) row.append(button(name, one, () => press(name)));
      }
      return row;
    }

    const panels = {
      predict: ({ questions, key }) => {
        const asked = make("div", "kv-lesson-questions");
        asked.append(...questions.map((question, i) => ask(question, i + 1, drafts[key])));
        return [asked, presses("lock")];
      },
      run: ({ questions }) => {
        const said = make("div", "kv-lesson-questions");
        const given = questions.filter((question) => question.said);
        said.append(...given.map((question) => answered(question, questions.indexOf(question) + 1, false)));
        return [said];
      },
      observe: ({ questions }) => questions.map((question, i) => answered(question, i + 1, true)),
      explain: ({ questions }) => [marks(questions)],
    };

    /** The step that is open: the one a person chose, until things move on. */
    function opened() {
      const state = `${value.locked} ${value.running} ${value.kind}`;
      const at = chosen[value.key];
      const may = value.steps.find(({ key }) => key === at?.step)?.enabled;
      if (at?.state !== state || !may) chosen[value.key] = { state, step: value.open };
      return chosen[value.key].step;
    }

    /** Running comes after predicting, but for a lecturer, who may do it with the questions in view. */
    function mayRunIn(step) {
      return step === "run" || (step === "predict" && !value.locked && value.buttons.stored.enabled);
    }

    function show(step) {
      root.closest(".kv-lesson").dataset.step = step;
      for (const part of root.querySelectorAll(".kv-lesson-step")) part.hidden = part.dataset.step !== step;
      root.querySelector(".kv-lesson-go").hidden = !mayRunIn(step);
      for (const one of root.querySelectorAll("[data-id|=step]")) {
        if (one.dataset.id === `step-${step}`) one.setAttribute("aria-current", "step");
        else one.removeAttribute("aria-current");
      }
    }

    function stepper() {
      const list = make("ol", "kv-lesson-steps");
      list.setAttribute("aria-label", value.steps_label);
      value.steps.forEach(({ key, label, note, done, enabled }, i) => {
        const one = make("button", done ? "kv-done" : "");
        one.type = "button";
        one.dataset.id = `step-${key}`;
        one.disabled = !enabled;
        const words = make("span", "", label);
        words.append(make("small", "", note));
        one.append(make("b", "", done ? "✓" : String(i + 1)), words);
        one.addEventListener("click", () => {
          chosen[value.key].step = key;
          show(key);
        });
        const entry = make("li");
        entry.append(one);
        list.append(entry);
      });
      return list;
    }

    function panel({ key, label }) {
      const part = make("section", "kv-lesson-step");
      part.dataset.step = key;
      part.setAttribute("aria-label", label);
      part.append(...panels[key](value));
      return part;
    }

    function fill(step) {
      const note = make("p", "kv-lesson-note", value.note);
      note.setAttribute("role", "status");
      const source = make("p", "kv-lesson-source", value.source);
      const go = presses("stored", "live", "stop");
      go.classList.add("kv-lesson-go");
      root.replaceChildren(stepper(), source, note, presses("reveal"), ...value.steps.map(panel), go);
      show(step);
    }

    return {
      draw(next) {
        if (!next.questions) return;
        value = next;
        drafts[value.key] ??= {};
        root.dataset.lesson = value.key;
        root.dataset.locked = String(value.locked);
        root.dataset.source = value.kind;
        root.closest(".kv-lesson").classList.toggle("kv-seen", Boolean(value.kind));
        const step = opened();
        const after = { run: ["stop", "stored"], observe: ["step-observe"] }[step] ?? [];
        keepFocus(root, () => fill(step), after);
      },
    };
  });

  window.kvviz.define("lesson-tell", (root) => ({
    draw({ look_for: lookFor, paragraphs, keys }) {
      const why = make("div", "kv-lesson-why");
      why.append(...paragraphs.map((words) => make("p", "", words)));
      root.replaceChildren(make("p", "kv-lesson-look", lookFor), why, make("p", "kv-lesson-keys", keys));
    },
  }));
})();
