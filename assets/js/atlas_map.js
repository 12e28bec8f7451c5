// The chosen head large, for one or two configurations in one colour scale; a click recomputes an exact tile.
(() => {
  const { drawable, make, numbers, atlas } = window.kvviz;
  const { state, say, canvas: art } = atlas;
  const SCALES = ["log", "linear"];

  /** Values of a lower triangle that came row by row, as a square; what is not there is NaN. */
  function square(side, packed) {
    const n = side.cells;
    const values = new Float32Array(n * n).fill(art.NONE);
    let k = 0;
    for (let i = 0; i < side.rows; i += 1) {
      for (let j = 0; j <= i; j += 1, k += 1) values[i * n + j] = decoded(side, packed[k]);
    }
    return values;
  }

  function decoded(packed, number) {
    if (packed.low === undefined) return number * packed.unit;
    return number ? packed.base + packed.unit * (number - 1) : art.NONE;
  }

  function cellName(side, i) {
    const [first, last] = [side.edges[i], side.edges[i + 1] - 1];
    const label = side.labels[i] ?? "";
    if (first === last) return label ? `${first} ${label}` : `${first}`;
    return `${first}–${last}${label ? ` ${label}…` : ""}`;
  }

  window.kvviz.define("atlas-map", (root, trigger) => {
    const tools = make("div", "kv-atlas-tools");
    const empty = make("p", "kv-empty");
    const again = make("button", "kv-button");
    const stop = make("button", "kv-button");
    const tileBar = make("div", "kv-tile-bar");
    const key = make("div", "kv-scale");
    const maps = make("div", "kv-maps");
    const notes = make("div", "kv-look kv-map-notes");
    again.type = stop.type = "button";
    root.replaceChildren(tools, tileBar, empty, again, stop, key, maps, notes);
    let data = null;
    let plots = [];
    let turn = 0;
    let pieces = null;
    const look = { scale: "log", hide: false, renormalise: false };

    function buildTools() {
      if (pieces) return;
      const modes = ["probability", "logits", "mean"].map((one) => [one, data.words[one]]);
      const scales = SCALES.map((one) => [one, data.words[one]]);
      const mode = atlas.choice("atlas-mode", data.words.mode, modes, data.mode, (value) => {
        atlas.ask(trigger, { mode: value });
        if (value === "logits") trigger("submit", { kind: "logits" });
      });
      const scale = atlas.choice("atlas-scale", data.words.scale, scales, look.scale, (value) => change({ scale: value }));
      const hide = check(data.words.hide, (on) => change({ hide: on }));
      const renormalise = check(data.words.renormalise, (on) => change({ renormalise: on }));
      tools.append(mode.box, scale.box, hide.box, renormalise.box);
      pieces = { mode, scale, hide, renormalise };
      again.addEventListener("click", () => trigger("submit", { kind: "logits" }));
      stop.addEventListener("click", () => trigger("stop", {}));
      again.textContent = data.words.again;
      stop.textContent = data.words.stop;
    }

    function check(words, changed) {
      const box = make("label", "kv-check");
      const input = make("input");
      input.type = "checkbox";
      input.addEventListener("change", () => changed(input.checked));
      box.append(input, make("span", "", words));
      return { box, input };
    }

    function change(changes) {
      Object.assign(look, changes);
      prepare();
    }

    const canRenormalise = () => look.hide && data.mode !== "logits" && data.sides.every((side) => side.k === 1);

    function hidden(side) {
      return Math.max(1, side.sinks);
    }

    /** Rows up to the shown step. */
    function lastRow(side) {
      if (state.step === null) return side.rows;
      const last = side.prompt - 1 + state.step;
      let rows = 0;
      while (rows < side.rows && side.edges[rows] <= last) rows += 1;
      return rows;
    }

    function masked(source, columns, tokens, rowLimit, hide, renormalise) {
      const values = source.slice();
      for (let i = 0; i < values.length / columns; i += 1) {
        const line = values.subarray(i * columns, (i + 1) * columns);
        if (i >= rowLimit) line.fill(art.NONE);
        if (!hide) continue;
        for (let j = 0; j < columns && tokens(j) < hide; j += 1) line[j] = art.NONE;
        if (!renormalise) continue;
        const sum = line.reduce((total, v) => total + (Number.isNaN(v) ? 0 : v), 0);
        if (sum > 0) for (let j = 0; j < columns; j += 1) line[j] *= 100 / sum;
      }
      return values;
    }

    function spansOf(letter) {
      const replay = atlas.replay();
      return replay ? replay.spans[replay.letters.indexOf(letter)] ?? [] : [];
    }

    function bandsOf(spans, edges) {
      const place = (token) => {
        let i = 0;
        while (i < edges.length - 1 && edges[i + 1] <= token) i += 1;
        if (i >= edges.length - 1) return edges.length - 1;
        return i + Math.max(0, token - edges[i]) / (edges[i + 1] - edges[i]);
      };
      return spans.map(([tier, start, stop]) => ({ tier, start: place(start), stop: place(stop) })).filter((b) => b.stop > b.start);
    }

    function common(letter, edges) {
      const spans = spansOf(letter);
      const bands = bandsOf(spans, edges);
      const signed = data.mode === "logits";
      return {
        bands,
        tiers: data.tiers,
        tierOf: (j) => spans.find(([, start, stop]) => edges[j] >= start && edges[j] < stop)?.[0] ?? -1,
        ramp: atlas.ramp(data.palette),
        decades: data.decades,
        log: look.scale === "log" && !signed,
        signed,
        show: (v) => (signed ? v.toFixed(1) : `${v >= 10 ? v.toFixed(0) : v >= 0.1 ? v.toFixed(1) : v.toFixed(2)} %`),
        barsName: data.words.bars,
      };
    }

    function sidePlot(side) {
      const hide = look.hide ? hidden(side) : 0;
      const rows = lastRow(side);
      const values = masked(side.square, side.cells, (j) => side.edges[j], rows, hide, look.renormalise && canRenormalise());
      const name = (i) => cellName(side, i);
      return {
        ...common(side.letter, side.edges), rows: side.cells, columns: side.cells, values, newest: Math.max(0, rows - 1),
        rowName: name, columnName: name, letter: side.letter, title: side.label, limit: rows,
      };
    }

    function tilePlot(tile) {
      const edges = Array.from({ length: tile.columns + 1 }, (_, j) => tile.first_column + j);
      const side = data.sides.find((one) => one.letter === tile.letter);
      const hide = look.hide && side ? hidden(side) : 0;
      const rows = state.step === null || !side ? tile.rows : Math.max(0, Math.min(tile.rows, side.prompt + state.step - tile.first_row));
      return {
        ...common(tile.letter, edges), rows: tile.rows, columns: tile.columns, newest: Math.max(0, rows - 1), limit: rows,
        values: masked(tile.grid, tile.columns, (j) => edges[j], rows, hide, false),
        rowName: (i) => `${tile.first_row + i} ${tile.row_labels[i] ?? ""}`,
        columnName: (j) => `${tile.first_column + j} ${tile.column_labels[j] ?? ""}`,
        letter: tile.letter, title: side?.label ?? "", tile: true,
      };
    }

    /** Plots of what is shown now, in one colour scale. */
    function prepare() {
      if (!data || !ready()) return;
      plots = data.tile ? [tilePlot(data.tile)] : data.sides.map(sidePlot);
      const packed = data.tile ? [data.tile] : data.sides;
      const [low, high] = data.mode === "logits" ? [Math.min(...packed.map((p) => p.low)), Math.max(...packed.map((p) => p.high))] : [0, 100];
      for (const plot of plots) Object.assign(plot, { low, high });
      maps.replaceChildren(...plots.map(mapOf));
      root.classList.toggle("kv-both", plots.length > 1);
      drawKey(low, high);
      drawNotes();
      const can = canRenormalise() && !data.tile;
      pieces.renormalise.input.disabled = !can;
      for (const input of pieces.scale.box.querySelectorAll("input")) input.disabled = data.mode === "logits";
    }

    const ready = () => data.sides.length && data.sides.every((side) => side.square) && (!data.tile || data.tile.grid);

    function drawKey(low, high) {
      const log = plots[0].log;
      const ticks = data.mode === "logits" ? [low, (low + high) / 2, high].map((v) => v.toFixed(1)) : log ? ["≤ 0.01 %", "0.1 %", "1 %", "10 %", "100 %"] : ["0 %", "25 %", "50 %", "75 %", "100 %"];
      const bar = make("div", "kv-scale-bar");
      bar.style.background = `linear-gradient(90deg, ${data.palette.join(", ")})`;
      const line = make("div", "kv-scale-ticks");
      line.append(...ticks.map((tick) => make("span", "", tick)));
      const title = data.mode === "logits" ? data.words.key_logits : log ? data.words.key_log : data.words.key_linear;
      const one = plots.length > 1 ? ` ${data.words.one_scale}` : "";
      key.replaceChildren(make("div", "kv-scale-name", `${title}${one}`), bar, line);
    }

    function drawNotes() {
      const lines = [];
      const reduced = data.sides.find((side) => side.k > 1);
      const name = data.mode === "mean" ? say(data.words.which_mean, data) : say(data.words.which, data);
      if (!data.tile && reduced) lines.push(say(data.words.reduced, { k: reduced.k }), data.mode === "mean" ? data.words.mean_of_maxima : data.words.maximum);
      if (data.mode === "logits") lines.push(data.words.recomputed);
      if (data.mode === "probability" && !reduced && !look.hide) lines.push(data.words.sums);
      if (look.hide) {
        const count = Math.max(...data.sides.map(hidden));
        const none = data.sides.some((side) => !side.sinks);
        lines.push(say(count === 1 ? data.words.hidden_one : data.words.hidden, { last: count - 1 }));
        if (none) lines.push(data.words.no_sinks);
        lines.push(look.renormalise && canRenormalise() && !data.tile ? data.words.rescaled : data.words.not_rescaled);
      }
      if (!data.tile) lines.push(data.words.click);
      notes.replaceChildren(make("b", "", name), " ", lines.join(" "));
      pieces.renormalise.box.title = canRenormalise() ? "" : why();
      notes.append(look.hide && (data.tile || !canRenormalise()) ? ` ${why()}` : "");
    }

    function why() {
      if (data.tile) return data.words.no_renormalise_tile;
      if (data.mode === "logits") return data.words.no_renormalise_logits;
      return look.hide ? data.words.no_renormalise_cells : data.words.no_renormalise_all;
    }

    function mapOf(plot, index) {
      const figure = make("figure", "kv-map");
      const title = make("figcaption", "", `${plot.letter}: ${plot.title}`);
      const scroller = make("div", "kv-map-scroll");
      const stack = make("div", "kv-map-stack");
      const base = make("canvas");
      const over = make("canvas", "kv-map-over");
      const told = make("p", "kv-map-told");
      over.tabIndex = 0;
      over.setAttribute("role", "application");
      over.setAttribute("aria-label", say(data.words.canvas, { letter: plot.letter, layer: data.layer, head: data.head }));
      told.setAttribute("role", "status");
      stack.append(base, over);
      scroller.append(stack);
      figure.append(title, scroller, told);
      const spot = { row: plot.newest, column: null };
      let at = null;

      function draw() {
        const room = figure.clientWidth;
        if (!room) return;
        at = art.drawBase(base, plot, room);
        follow();
      }

      function follow() {
        if (!at) return;
        art.drawOver(over, plot, at, spot);
        const query = drawable(plot.rowName(spot.row));
        if (spot.column === null) {
          told.textContent = say(data.words.row_told, { query });
          return;
        }
        const value = plot.values[spot.row * plot.columns + spot.column];
        const weight = Number.isNaN(value) ? data.words.unseen : data.mode === "logits" ? value.toFixed(2) : `${value.toFixed(2)} %`;
        const tier = data.tiers[plot.tierOf(spot.column)];
        told.textContent = say(data.words.told, { query, key: drawable(plot.columnName(spot.column)), weight, tier: tier ? `${tier.glyph} ${tier.name}` : "–" });
      }

      function ask() {
        if (plot.tile || spot.column === null || spot.column > spot.row || spot.row >= plot.limit) return;
        trigger("submit", { kind: "tile", side: index, row: spot.row, column: spot.column });
      }

      over.addEventListener("pointermove", (event) => {
        const cell = at && art.cellAt(over, plot, at, event);
        if (!cell || event.pointerType === "touch") return;
        Object.assign(spot, cell);
        follow();
      });
      over.addEventListener("click", (event) => {
        const cell = at && art.cellAt(over, plot, at, event);
        if (!cell) return;
        const same = cell.row === spot.row && cell.column === spot.column;
        Object.assign(spot, cell);
        follow();
        if (same) ask(); // a pointer is on its cell already; a finger needs a second touch
      });
      over.addEventListener("keydown", (event) => {
        const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
        if (event.key === "Escape" && plot.tile) back();
        else if (event.key === "Escape") Object.assign(spot, { row: plot.newest, column: null });
        else if (event.key === "Enter") ask();
        else if (event.key in moves) {
          const [down, right] = moves[event.key];
          spot.row = Math.max(0, Math.min(plot.rows - 1, spot.row + down));
          spot.column = Math.max(0, Math.min(plot.columns - 1, (spot.column ?? 0) + (spot.column === null ? 0 : right)));
        } else return;
        event.preventDefault();
        follow();
      });
      let width = 0;
      new ResizeObserver(() => {
        if (Math.abs(figure.clientWidth - width) < 2) return;
        width = figure.clientWidth;
        draw();
      }).observe(figure);
      return figure;
    }

    function back() {
      atlas.ask(trigger, { back: true });
    }

    function drawTileBar() {
      tileBar.replaceChildren();
      tileBar.hidden = !data.tile;
      if (!data.tile) return;
      const { first_row: r, rows, first_column: c, columns } = data.tile;
      const values = { first_row: r, last_row: r + rows - 1, first_key: c, last_key: c + columns - 1 };
      const button = make("button", "kv-button", data.words.back);
      button.type = "button";
      button.addEventListener("click", back);
      tileBar.append(make("b", "", data.words.exact), make("span", "", say(data.words.tile, values)), button);
    }

    atlas.listen("map", () => {
      const replay = atlas.replay();
      const now = `${state.step}|${replay?.run}|${JSON.stringify(replay?.spans)}`;
      if (root.dataset.at === now) return;
      root.dataset.at = now;
      prepare();
    });

    return {
      async draw(value) {
        if (!atlas.accept(value)) return;
        data = value;
        buildTools();
        pieces.mode.put(value.mode);
        const has = value.sides.length > 0;
        const began = has || value.missing;
        empty.textContent = value.empty ?? "";
        empty.hidden = !value.empty;
        tools.hidden = !began;
        again.hidden = !value.missing || value.busy;
        stop.hidden = !value.busy;
        key.hidden = maps.hidden = notes.hidden = !has;
        drawTileBar();
        const now = (turn += 1);
        for (const side of value.sides) side.square = square(side, await numbers(side.values));
        if (value.tile) value.tile.grid = unfolded(value.tile, await numbers(value.tile.values));
        if (now !== turn) return;
        root.dataset.head = `${value.layer},${value.head}`;
        root.dataset.sum = String(value.sides[0] ? value.sides[0].square.reduce((s, v) => s + (v || 0), 0).toFixed(1) : 0);
        prepare();
      },
      restyle: prepare,
    };

    function unfolded(tile, packed) {
      return Float32Array.from(packed, (number, n) => {
        const future = tile.first_column + (n % tile.columns) > tile.first_row + Math.floor(n / tile.columns);
        return future ? art.NONE : decoded(tile, number);
      });
    }
  });
})();
