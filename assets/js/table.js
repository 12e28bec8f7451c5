// Tables that sort by their plain numbers, and files handed to the browser. Words are set as text, never as markup.
(() => {
  const { make } = window.kvviz;

  function compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  }

  function heading(column, onSort) {
    const cell = make("th", column.number ? "kv-number" : "");
    cell.scope = "col";
    cell.title = column.info;
    const button = make("button", "", column.label);
    button.type = "button";
    button.addEventListener("click", onSort);
    cell.append(button);
    return cell;
  }

  function build({ title, columns, cells, sort, open }) {
    const box = make("details", "kv-result");
    box.open = open;
    const table = make("table");
    const body = make("tbody");
    const row = make("tr");
    const explained = make("dl", "kv-columns");
    let by = null;
    let down = false;

    function fill() {
      const order = cells.map((_, i) => i);
      if (by !== null) order.sort((a, b) => (down ? -1 : 1) * compare(sort[a][by], sort[b][by]));
      body.replaceChildren(
        ...order.map((i) => {
          const line = make("tr");
          line.append(...cells[i].map((cell, j) => make("td", columns[j].number ? "kv-number" : "", cell)));
          return line;
        }),
      );
      [...row.children].forEach((cell, j) => {
        if (j === by) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      });
    }

    columns.forEach((column, j) => {
      row.append(
        heading(column, () => {
          down = by === j ? !down : column.number;
          by = j;
          fill();
        }),
      );
      const pair = make("div");
      pair.append(make("dt", "", column.label), make("dd", "", column.info));
      explained.append(pair);
    });
    const head = make("thead");
    head.append(row);
    table.append(head, body);
    const scroller = make("div", "kv-result-scroll");
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "region");
    scroller.setAttribute("aria-label", title);
    scroller.append(table);
    box.append(make("summary", "", `${title} (${cells.length})`), scroller, explained);
    fill();
    return box;
  }

  window.kvviz.define("tables", (root) => ({
    draw({ tables }) {
      root.replaceChildren(...tables.map(build));
    },
  }));

  window.kvviz.define("file", () => ({
    draw({ name, mime, base64 }) {
      if (!name) return;
      const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([bytes], { type: mime }));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    },
  }));
})();
