// Every head's map as a thumbnail: layers across, heads down. The pointer enlarges one, a click or a key locks it.
(() => {
  const { color, make, atlas } = window.kvviz;
  const { state, say } = atlas;
  const GAP = 2;
  const LEFT = 34;
  const TOP = 22;
  const LEAST_THUMB = 26;
  const MOST_THUMB = 58;
  const DWELL_MS = 160;
  const PREVIEW = 168;

  async function coloured(data) {
    const image = new Image();
    image.src = `data:image/png;base64,${data.sprite}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    const ctx = canvas.getContext("2d", { willReadFrequently: true });
    ctx.drawImage(image, 0, 0);
    const pixels = ctx.getImageData(0, 0, image.width, image.height);
    const ramp = atlas.ramp(data.palette);
    for (let i = 0; i < pixels.data.length; i += 4) {
      const level = pixels.data[i];
      if (!level) {
        pixels.data[i + 3] = 0;
        continue;
      }
      const place = Math.round(((level - 1) / (data.levels - 1)) * 255);
      for (let c = 0; c < 3; c += 1) pixels.data[i + c] = ramp[3 * place + c];
    }
    ctx.putImageData(pixels, 0, 0);
    return canvas;
  }

  window.kvviz.define("atlas-thumbs", (root, trigger) => {
    const words = make("div", "kv-atlas-sentences");
    const empty = make("p", "kv-empty");
    const layout = make("div", "kv-thumbs-layout");
    const scroller = make("div", "kv-thumbs-scroll");
    const canvas = make("canvas", "kv-thumbs-canvas");
    const side = make("div", "kv-thumbs-side");
    const preview = make("canvas", "kv-thumbs-preview");
    const told = make("div", "kv-thumbs-told");
    const help = make("p", "kv-look");
    const pages = make("div", "kv-thumbs-pages");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    told.setAttribute("role", "status");
    side.append(preview, told);
    scroller.append(canvas);
    layout.append(scroller, side);
    root.replaceChildren(words, empty, layout, pages, help);
    let data = null;
    let picture = null;
    let hover = null;
    let cell = LEAST_THUMB;
    let dwell = 0;
    let drawing = 0;
    let scrolled = -1;

    const here = (at) => at && at.layer >= data.first && at.layer < data.first + data.layers && at.head < data.heads;

    function place(at) {
      return [LEFT + (at.layer - data.first) * (cell + GAP), TOP + at.head * (cell + GAP)];
    }

    function redraw() {
      if (!data || !picture || !root.clientWidth) return;
      const room = scroller.clientWidth - LEFT - 2;
      cell = Math.max(LEAST_THUMB, Math.min(MOST_THUMB, Math.floor(room / data.layers) - GAP));
      const width = LEFT + data.layers * (cell + GAP) + 2;
      const height = TOP + data.heads * (cell + GAP) + 2;
      const ctx = atlas.scaled(canvas, width, height);
      ctx.imageSmoothingEnabled = false;
      ctx.font = `12px ${color("--kv-font")}`;
      ctx.fillStyle = color("--kv-quiet");
      ctx.textBaseline = "middle";
      ctx.textAlign = "center";
      const layers = Array.from({ length: data.layers }, (_, i) => data.first + i);
      for (const layer of layers) ctx.fillText(`${layer}`, LEFT + (layer - data.first) * (cell + GAP) + cell / 2, TOP / 2 + 2);
      ctx.textAlign = "right";
      for (let head = 0; head < data.heads; head += 1) ctx.fillText(`${head}`, LEFT - 7, TOP + head * (cell + GAP) + cell / 2);
      for (const layer of layers) {
        for (let head = 0; head < data.heads; head += 1) drawThumb(ctx, { layer, head }, ...place({ layer, head }), cell);
      }
      if (here(hover)) ring(ctx, hover, 2, []);
      if (here(state)) ring(ctx, state, 3, state.locked ? [] : [4, 3]);
    }

    function drawThumb(ctx, at, x, y, size) {
      const [w, h] = [data.size + 1, data.size];
      ctx.fillStyle = color("--kv-sunken");
      ctx.fillRect(x, y, size, size);
      ctx.drawImage(picture, (at.layer - data.first) * w, at.head * h, w, h, x, y, size, size);
    }

    function ring(ctx, at, width, dash) {
      const [x, y] = place(at);
      ctx.setLineDash(dash);
      ctx.lineWidth = width + 2;
      ctx.strokeStyle = color("--kv-panel");
      ctx.strokeRect(x - 1, y - 1, cell + 2, cell + 2);
      ctx.lineWidth = width;
      ctx.strokeStyle = color("--kv-run-b");
      ctx.strokeRect(x - 1, y - 1, cell + 2, cell + 2);
      ctx.setLineDash([]);
    }

    function percent(numbers, at) {
      return numbers ? `${(numbers[at.layer * data.heads + at.head] / 10).toFixed(1)} %` : "–";
    }

    function enlarge() {
      if (!data || !picture) return;
      const at = here(hover) ? hover : state;
      if (!here(at)) return;
      const ctx = atlas.scaled(preview, PREVIEW, PREVIEW);
      ctx.imageSmoothingEnabled = false;
      drawThumb(ctx, at, 0, 0, PREVIEW);
      const lines = [make("b", "", say(data.words.head, at))];
      data.letters.forEach((letter, i) => {
        const values = { letter, first: percent(data.masses[i].first, at), sink: percent(data.masses[i].sink, at) };
        lines.push(make("div", "", say(data.words.first, values)), make("div", "", say(data.words.sink, values)));
      });
      const key = at === hover && !(hover.layer === state.layer && hover.head === state.head) ? "pointed" : state.locked ? "locked" : "unlocked";
      lines.push(make("div", "kv-thumbs-state", data.words[key]));
      told.replaceChildren(...lines);
      preview.setAttribute("aria-hidden", "true");
    }

    function lock(at, locked = true) {
      const layer = Math.max(0, Math.min(data.n_layers - 1, at.layer));
      const head = Math.max(0, Math.min(data.heads - 1, at.head));
      clearTimeout(dwell);
      atlas.set({ layer, head, locked });
      atlas.ask(trigger, { layer, head });
      keepVisible();
    }

    function keepVisible() {
      if (!here(state)) return;
      const [x] = place(state);
      if (x < scroller.scrollLeft + LEFT) scroller.scrollLeft = x - LEFT - cell;
      if (x + cell > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = x + 2 * cell - scroller.clientWidth;
    }

    function thumbAt(event) {
      const box = canvas.getBoundingClientRect();
      const layer = Math.floor((event.clientX - box.left - LEFT) / (cell + GAP)) + (data?.first ?? 0);
      const head = Math.floor((event.clientY - box.top - TOP) / (cell + GAP));
      const at = { layer, head };
      return data?.sprite && layer >= data.first && head >= 0 && here(at) ? at : null;
    }

    function point(at) {
      if (at?.layer === hover?.layer && at?.head === hover?.head) return;
      hover = at;
      clearTimeout(dwell);
      if (at && !state.locked) dwell = setTimeout(() => lock(at, false), DWELL_MS);
      redraw();
      enlarge();
    }

    canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(thumbAt(event)));
    canvas.addEventListener("pointerleave", () => point(null));
    canvas.addEventListener("click", (event) => {
      const at = thumbAt(event);
      if (at) lock(at);
    });
    canvas.addEventListener("keydown", (event) => {
      if (!data?.sprite) return;
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const ends = { Home: { layer: 0, head: 0 }, End: { layer: data.n_layers - 1, head: data.heads - 1 } };
      if (event.key === "Escape") atlas.set({ locked: false });
      else if (event.key === "Enter" || event.key === " ") lock(hover ?? state);
      else if (event.key in ends) lock(ends[event.key]);
      else if (event.key in moves) {
        hover = null;
        lock({ layer: state.layer + moves[event.key][0], head: state.head + moves[event.key][1] });
      } else return;
      event.preventDefault();
    });

    function drawPages() {
      const step = data.page_layers;
      pages.replaceChildren();
      if (step >= data.n_layers) return;
      for (let first = 0; first < data.n_layers; first += step) {
        const button = make("button", "kv-button", say(data.words.page, { first, last: Math.min(data.n_layers, first + step) - 1 }));
        button.type = "button";
        button.setAttribute("aria-pressed", String(first === data.first));
        button.addEventListener("click", () => lock({ layer: first, head: state.head }));
        pages.append(button);
      }
    }

    new ResizeObserver(redraw).observe(root);
    atlas.listen("thumbs", () => {
      canvas.dataset.lock = `${state.layer},${state.head},${state.locked}`;
      redraw();
      enlarge();
    });
    return {
      async draw(value) {
        if (!atlas.accept(value)) return;
        atlas.begin(value.pick);
        data = value;
        const has = Boolean(value.sprite);
        empty.textContent = value.empty;
        empty.hidden = !value.empty;
        layout.hidden = pages.hidden = help.hidden = !has;
        words.replaceChildren(...value.sentences.map((sentence) => make("p", "", sentence)));
        canvas.setAttribute("aria-label", value.name);
        help.textContent = `${value.words[value.letters?.length > 1 ? "both" : "one"]} ${value.words.help}`;
        canvas.dataset.lock = `${state.layer},${state.head},${state.locked}`;
        if (!has) return;
        const turn = (drawing += 1);
        const made = await coloured(value);
        if (turn !== drawing) return;
        picture = made;
        if (state.layer >= value.n_layers || state.head >= value.heads) atlas.set(value.pick);
        root.dataset.frames = String(Number(root.dataset.frames ?? 0) + 1);
        drawPages();
        redraw();
        enlarge();
        if (scrolled !== value.first) keepVisible();
        scrolled = value.first;
      },
      restyle() {
        redraw();
        enlarge();
      },
    };
  });
})();
