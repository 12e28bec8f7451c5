// The heads in numbers: sorted by any column, one row a head; a row chosen locks its head.
(() => {
  const { make, atlas } = window.kvviz;
  const { state, say } = atlas;

  window.kvviz.define("atlas-table", (root, trigger) => {
    const tools = make("div", "kv-atlas-tools");
    const note = make("p", "kv-look");
    const empty = make("p", "kv-empty");
    const box = make("div", "kv-table-scroll");
    const table = make("table", "kv-table");
    const legend = make("details", "kv-table-legend");
    box.append(table);
    box.tabIndex = -1;
    root.replaceChildren(empty, tools, box, note, legend);
    let data = null;
    let letter = null;
    let sort = { column: 2, down: true };
    let tools_of = "";

    function columns() {
      const side = data.sides.find((one) => one.letter === letter) ?? data.sides[0];
      const count = side.columns[0].numbers.length;
      const places = data.places.map((place, i) => ({
        ...place,
        kind: "place",
        unit: 1,
        numbers: Array.from({ length: count }, (_, n) => (i ? n % data.heads : Math.floor(n / data.heads))),
      }));
      return { side, all: [...places, ...side.columns] };
    }

    function shown(column, n) {
      const value = column.numbers[n] * column.unit;
      if (column.kind === "place") return String(column.numbers[n]);
      if (column.kind === "share") return `${(100 * value).toFixed(1)}`;
      return value.toFixed(column.kind === "nats" ? 2 : 1);
    }

    function heading(column, i) {
      const cell = make("th");
      const button = make("button", "", column.name);
      const unit = column.kind === "share" ? "%" : column.kind === "place" ? "" : column.kind;
      if (unit) button.append(make("small", "", unit));
      button.type = "button";
      button.title = column.meaning;
      cell.scope = "col";
      cell.setAttribute("aria-sort", sort.column === i ? (sort.down ? "descending" : "ascending") : "none");
      button.addEventListener("click", () => {
        sort = sort.column === i ? { column: i, down: !sort.down } : { column: i, down: column.kind !== "place" };
        redraw(i);
      });
      cell.append(button);
      return cell;
    }

    function row(all, n) {
      const line = make("tr");
      line.tabIndex = -1;
      line.dataset.layer = all[0].numbers[n];
      line.dataset.head = all[1].numbers[n];
      line.append(...all.map((column) => make("td", "", shown(column, n))));
      const share = all[sort.column].kind === "share" ? all[sort.column] : all[2];
      line.cells[all.indexOf(share)].style.setProperty("--kv-fill", `${100 * share.numbers[n] * share.unit}%`);
      line.cells[all.indexOf(share)].className = "kv-filled";
      return line;
    }

    function redraw(focus = -1) {
      if (!data?.sides.length) return;
      const { side, all } = columns();
      const by = all[sort.column].numbers;
      const order = by.map((_, n) => n).sort((a, b) => (sort.down ? by[b] - by[a] : by[a] - by[b]) || a - b);
      const head = make("thead");
      const line = make("tr");
      line.append(...all.map(heading));
      head.append(line);
      const body = make("tbody");
      body.append(...order.map((n) => row(all, n)));
      const top = box.scrollTop;
      table.replaceChildren(head, body);
      table.setAttribute("aria-label", data.name);
      box.scrollTop = focus >= 0 ? 0 : top;
      if (focus >= 0) head.querySelectorAll("button")[focus].focus();
      note.textContent = `${side.rows} ${data.words.help}`;
      const meanings = make("dl");
      for (const column of all) meanings.append(make("dt", "", column.name), make("dd", "", column.meaning));
      const open = make("summary", "", data.words.legend);
      legend.replaceChildren(open, meanings);
      mark();
    }

    function mark() {
      for (const line of table.tBodies[0]?.rows ?? []) {
        const is = Number(line.dataset.layer) === state.layer && Number(line.dataset.head) === state.head;
        line.classList.toggle("kv-locked", is);
        line.tabIndex = is ? 0 : -1;
        if (is) line.setAttribute("aria-selected", "true");
        else line.removeAttribute("aria-selected");
      }
    }

    /** Bring the locked head's row into the box, without moving the page. */
    function reveal() {
      const line = table.querySelector(".kv-locked");
      if (!line) return;
      const top = line.offsetTop - table.tHead.offsetHeight;
      if (top < box.scrollTop) box.scrollTop = top;
      const bottom = line.offsetTop + line.offsetHeight;
      if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight + 60;
    }

    function lock(line) {
      const at = { layer: Number(line.dataset.layer), head: Number(line.dataset.head) };
      atlas.set({ ...at, locked: true });
      atlas.ask(trigger, at);
    }

    table.addEventListener("click", (event) => {
      const line = event.target.closest("tbody tr");
      if (line) lock(line);
    });
    table.addEventListener("keydown", (event) => {
      const line = event.target.closest("tbody tr");
      if (!line) return;
      const other = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling }[event.key];
      if (!other) return;
      event.preventDefault();
      lock(other);
      other.focus();
    });

    function drawTools() {
      const now = data.sides.map((side) => side.letter).join("");
      if (now === tools_of) return;
      tools_of = now;
      letter = data.sides[0]?.letter ?? null;
      if (data.sides.length < 2) {
        tools.replaceChildren();
        return;
      }
      const options = data.sides.map((side) => [side.letter, side.letter]);
      tools.replaceChildren(
        atlas.choice("atlas-table-side", data.words.side, options, letter, (value) => {
          letter = value;
          redraw();
        }).box,
      );
    }

    let marked = "";
    atlas.listen("table", () => {
      const now = `${state.layer},${state.head}`;
      if (now === marked) return;
      marked = now;
      mark();
      reveal();
    });
    return {
      draw(value) {
        if (!atlas.accept(value)) return;
        data = value;
        const has = value.sides.length > 0;
        empty.textContent = value.empty;
        empty.hidden = has;
        tools.hidden = box.hidden = note.hidden = legend.hidden = !has;
        drawTools();
        redraw();
      },
    };
  });
})();
