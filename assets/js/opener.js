// A file that somebody opens: read here, as text and no longer than it may be, and told as a click.
(() => {
  const { make } = window.kvviz;

  window.kvviz.define("opener", (root, trigger) => {
    const input = make("input", "kv-open-input");
    const label = make("label", "kv-open");
    const words = make("span");
    input.type = "file";
    input.accept = ".html,.json,text/html,application/json";
    label.append(input, words);
    root.replaceChildren(label);
    let most = 0;
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (!file) return;
      const content = await file.slice(0, most + 1).text();
      input.value = ""; // the same file may be opened again
      trigger("click", { content });
    });
    return {
      draw({ label: said, most: bytes }) {
        words.textContent = said;
        most = bytes;
      },
    };
  });
})();
