// A run's text and numbers, and one-line notices. Everything is set as text, nothing as markup.
(() => {
  const { make } = window.kvviz;

  window.kvviz.define("panel", (root, trigger) => {
    const head = make("header", "kv-panel-head");
    const letter = make("span", "kv-letter");
    const title = make("h3");
    const status = make("p", "kv-status");
    const text = make("div", "kv-text");
    const note = make("p", "kv-note");
    const verdict = make("p", "kv-judged");
    const settings = make("p", "kv-settings");
    const metrics = make("dl", "kv-metrics");
    head.append(letter, title);
    text.tabIndex = 0;
    root.replaceChildren(head, settings, status, verdict, text, note, metrics);

    /** A mark that leads somewhere: told with a click or the Enter key. */
    function link(mark, words) {
      mark.tabIndex = 0;
      mark.setAttribute("role", "button");
      mark.setAttribute("aria-label", `${mark.textContent} ${words}`);
      mark.classList.add("kv-mark-link");
      mark.addEventListener("click", () => trigger("click", {}));
      mark.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        trigger("click", {});
      });
    }

    function drawText({ segments, empty, mark_title: markTitle, mark_action: markAction }) {
      const follow = text.scrollTop + text.clientHeight >= text.scrollHeight - 24;
      if (empty) {
        text.replaceChildren(make("span", "kv-empty", empty));
        return;
      }
      const parts = [document.createTextNode(segments.before)];
      if (markTitle) {
        const mark = make("mark", segments.marked ? "" : "kv-mark-empty", segments.marked || "▏");
        mark.title = markAction ?? markTitle;
        if (markAction) link(mark, markAction);
        parts.push(mark);
      }
      parts.push(document.createTextNode(segments.after));
      text.replaceChildren(...parts);
      if (follow) text.scrollTop = text.scrollHeight;
    }

    return {
      draw(data) {
        root.classList.toggle("kv-void", Boolean(data.void));
        if (data.void) return;
        root.dataset.state = data.state;
        for (const [node, words] of [[verdict, data.verdict], [settings, data.settings]]) {
          node.textContent = words ?? "";
          node.hidden = !words;
        }
        letter.textContent = data.letter;
        title.textContent = data.title;
        status.textContent = data.status;
        text.setAttribute("aria-label", data.text_name);
        drawText(data);
        note.textContent = data.note;
        note.hidden = !data.note;
        metrics.replaceChildren(
          ...data.metrics.map((metric) => {
            const pair = make("div");
            pair.title = `${metric.kind_name}: ${metric.note}`;
            pair.dataset.key = metric.key;
            const name = make("dt", "", metric.name);
            name.append(" ", make("small", "", metric.kind_name));
            pair.append(name, make("dd", "", metric.value));
            return pair;
          }),
        );
      },
    };
  });

  window.kvviz.define("notice", (root) => {
    const words = make("span", "kv-notice-text");
    const bar = make("progress");
    bar.max = 1;
    root.replaceChildren(words, bar);
    return {
      draw(data) {
        root.setAttribute("role", data.kind === "error" ? "alert" : "status");
        root.dataset.kind = data.kind;
        words.textContent = data.text;
        root.classList.toggle("kv-void", !data.text);
        bar.hidden = data.kind !== "busy";
        bar.setAttribute("aria-label", data.text);
        if (typeof data.fraction === "number") bar.value = data.fraction;
        else bar.removeAttribute("value");
      },
    };
  });
})();
