// Shared ground of the live views: mounting, parsing, theme. A view is a factory (root, trigger) -> {draw, restyle?}.
// Words that come from prompts, models or files only ever reach the page through textContent or a canvas.
(() => {
  if (window.kvviz) return;
  const factories = {};
  const mounted = new Set();
  const { linkLanguages } = window.kvvizLanguage;
  const STORED_THEME = "kvviz-theme";

  function define(name, factory) {
    factories[name] = factory;
  }

  function mount(name, element, props, watch, trigger) {
    const root = element.querySelector(".kv-view");
    const view = factories[name](root, trigger);
    const draw = () => {
      const text = props.value;
      if (typeof text === "string" && text) view.draw(JSON.parse(text));
    };
    mounted.add(view);
    watch("value", draw);
    draw();
  }

  /** The value of one CSS variable of the page, as it is in the present theme. */
  function color(name) {
    return getComputedStyle(document.body).getPropertyValue(name).trim();
  }

  /** A token's label with the visible space that common fonts have. */
  function drawable(label) {
    return label.replaceAll("\u2420", "\u2423");
  }

  function make(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  /** Bytes that were deflated and written as base64. */
  async function inflate(packed) {
    const raw = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /** Whole numbers up to 65,535 that were packed: a plane of low bytes, then one of high bytes. */
  async function numbers(packed) {
    const planes = await inflate(packed);
    const count = planes.length / 2;
    return Uint16Array.from({ length: count }, (_, i) => planes[i] | (planes[count + i] << 8));
  }

  /** New lists for dropdowns that keep their values. An open list is closed first: gradio's cannot change. */
  async function offer(lists, ...values) {
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    await new Promise((resolve) => setTimeout(resolve));
    return values.map((value, i) => {
      const offered = value && !lists[i].includes(value) ? [...lists[i], value] : lists[i];
      return { __type__: "update", choices: offered.map((choice) => [choice, choice]), value };
    });
  }

  /** Bring a part of the page into view. */
  function reveal(id) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById(id)?.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  }

  function storedTheme() {
    try {
      return localStorage.getItem(STORED_THEME);
    } catch {
      return null;
    }
  }

  function setTheme(dark) {
    document.body.classList.toggle("dark", dark);
    try {
      localStorage.setItem(STORED_THEME, dark ? "dark" : "light");
    } catch {
      // a browser that stores nothing forgets the choice, no more
    }
  }

  /** The page is there; ``tag`` is its language. */
  function start(tag) {
    document.documentElement.lang = tag;
    linkLanguages();
    const theme = storedTheme();
    if (theme) document.body.classList.toggle("dark", theme === "dark");
    let dark = document.body.classList.contains("dark");
    new MutationObserver(() => {
      if (dark === document.body.classList.contains("dark")) return;
      dark = !dark;
      for (const view of mounted) view.restyle?.();
    }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }

  window.kvviz = {
    define,
    mount,
    color,
    make,
    drawable,
    inflate,
    numbers,
    offer,
    reveal,
    start,
    toggleTheme: () => setTheme(!document.body.classList.contains("dark")),
  };
})();
