// The glossary: a dialog that the header opens; what is typed leaves the words that have it.
(() => {
  const dialog = () => document.getElementById("kv-glossary");

  function filter(box, typed) {
    const wanted = typed.trim().toLowerCase();
    let found = 0;
    for (const section of box.querySelectorAll("section")) {
      const rows = [...section.querySelectorAll("dl > div")];
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      const shown = rows.filter((row) => !row.hidden).length;
      section.hidden = !shown;
      found += shown;
    }
    box.querySelector("[data-glossary=none]").hidden = found > 0;
  }

  window.kvviz.openGlossary = () => {
    const box = dialog();
    const input = box.querySelector("input");
    input.oninput = () => filter(box, input.value);
    box.querySelector("[data-glossary=close]").onclick = () => box.close();
    box.onclick = (event) => event.target === box && box.close(); // beside it
    box.showModal();
    input.focus();
  };
})();
