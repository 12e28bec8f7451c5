// Passing something on: a link on the clipboard. The address is this page's own, so it is right behind a sub-path
// and inside a frame. Where the clipboard is closed to us, the address stands selected, ready to be copied by hand.
(() => {
  const { make } = window.kvviz;

  /** This page with another query and no place in it. */
  function address(query) {
    const here = new URL(window.location.href);
    here.search = `?${query}`;
    here.hash = "";
    return here.href;
  }

  async function toClipboard(words, input) {
    try {
      await navigator.clipboard.writeText(words);
      return true;
    } catch {
      input.focus();
      input.select();
      return document.execCommand("copy");
    }
  }

  /** A field with an address to be copied from. */
  function addressField(words) {
    const input = make("input", "kv-share-address");
    input.readOnly = true;
    input.setAttribute("aria-label", words);
    input.addEventListener("focus", () => input.select());
    return input;
  }

  window.kvviz.share = { address, addressField, toClipboard };

  window.kvviz.define("link", (root) => {
    const line = make("p", "kv-share-line");
    const input = addressField("");
    root.replaceChildren(line, input);
    root.classList.add("kv-void");
    let last = null;
    return {
      async draw({ query, remark, error, id, words }) {
        root.classList.toggle("kv-void", !query && !error);
        line.setAttribute("role", error ? "alert" : "status");
        root.dataset.kind = error ? "error" : "info";
        input.hidden = !query;
        if (error) line.textContent = error;
        if (!query || id === last) return;
        last = id;
        input.value = address(query);
        input.setAttribute("aria-label", words.address);
        const copied = await toClipboard(input.value, input);
        line.textContent = [copied ? words.copied : words.copy_by_hand, remark].filter(Boolean).join(" ");
        root.dataset.copied = String(copied);
      },
    };
  });
})();
