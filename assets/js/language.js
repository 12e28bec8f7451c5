// Which page a visitor gets: the language asked for in the address, else the one chosen before, else the browser's.
// Every language has a page of its own, named in window.kvvizLanguages (language -> path under the root).
(() => {
  if (window.kvvizLanguage) return;
  const STORED = "kvviz-language";
  const ASKED = "lang";
  const paths = window.kvvizLanguages;
  const fallback = Object.keys(paths).find((name) => paths[name] === "");

  function stored() {
    try {
      return localStorage.getItem(STORED);
    } catch {
      return null;
    }
  }

  /** False in a browser that stores nothing. */
  function store(name) {
    try {
      localStorage.setItem(STORED, name);
      return localStorage.getItem(STORED) === name;
    } catch {
      return false;
    }
  }

  /** The application's root as the browser sees it, without a slash at its end, and the language of this page. */
  function place() {
    const path = location.pathname.replace(/\/+$/, "");
    const name = Object.keys(paths).find((each) => paths[each] && path.endsWith(`/${paths[each]}`));
    return name ? { root: path.slice(0, -paths[name].length - 1), name } : { root: path, name: fallback };
  }

  /** The address of the same page in another language; ``query`` stays. */
  function address(name, query = location.search) {
    return `${place().root}/${paths[name]}${query}${location.hash}`;
  }

  /** The first of the browser's languages that there is a page for. */
  function ofBrowser() {
    const wanted = (navigator.languages ?? [navigator.language]).map((tag) => tag.toLowerCase().split("-")[0]);
    return wanted.find((name) => name in paths) ?? fallback;
  }

  function wanted() {
    const asked = new URLSearchParams(location.search).get(ASKED);
    if (asked in paths) return asked;
    const here = place().name;
    if (here !== fallback) return here; // the address of one language's page is respected
    const chosen = stored();
    return chosen in paths ? chosen : ofBrowser();
  }

  /** Change to another language and remember it; where nothing can be remembered, the address says it. */
  function choose(name) {
    const query = new URLSearchParams(location.search);
    if (!store(name) || query.has(ASKED)) query.set(ASKED, name);
    const words = query.toString();
    location.assign(address(name, query.has(ASKED) ? `?${words}` : location.search));
  }

  function linkLanguages() {
    for (const link of document.querySelectorAll("a[data-language]")) {
      link.href = address(link.dataset.language);
      link.onclick = (event) => {
        event.preventDefault();
        if (!link.hasAttribute("aria-current")) choose(link.dataset.language);
      };
    }
  }

  window.kvvizLanguage = { linkLanguages };
  const name = wanted();
  if (name !== place().name) location.replace(address(name));
})();
