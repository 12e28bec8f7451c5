// A plotly figure that is updated in place: zoom and hover survive new frames. Colours of text, grid and hover
// are the page's own, taken when drawn.
(() => {
  const { color, drawable, make } = window.kvviz;

  function libraryReady() {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    return new Promise((resolve) => {
      const timer = setInterval(() => {
        if (!window.Plotly) return;
        clearInterval(timer);
        resolve(window.Plotly);
      }, 50);
    });
  }

  const NARROW = 460;
  /** A pointer that moved farther than this was dragging. */
  const CLICK_PX = 4;
  const TELL_MS = 1000;
  /** A click this near means a point. */
  const NEAR_PX = 14;

  /** Beside words there is less height than below them. */
  const BESIDE = matchMedia("(min-width: 901px)");
  const LETTER_PX = 7;

  /** ``words`` in lines of about ``most`` letters. */
  function wrapped(words, most) {
    const lines = [""];
    for (const word of words.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push(word);
      else lines.push(`${lines.pop()} ${word}`.trim());
    }
    return lines.join("<br>");
  }

  /** A layout in a lower picture: the legend keeps to its edge, and what stands upright has the room it needs. */
  function lowered(layout, height) {
    const low = { ...layout, height };
    if (layout.legend) low.legend = { ...layout.legend, xref: "container", yref: "container", y: 0, yanchor: "bottom" };
    for (const [name, axis] of Object.entries(layout)) {
      if (axis.categoryarray && name.startsWith("y")) low[name] = { ...axis, dtick: 1, tickfont: { ...axis.tickfont, size: 12 } };
      if (!/^yaxis\d*$/.test(name) || !axis.title?.text) continue;
      low[name] = { ...axis, title: { ...axis.title, text: wrapped(axis.title.text, (0.55 * height) / LETTER_PX) } };
    }
    return low;
  }

  function layoutOf({ figure, height_beside: beside }) {
    return beside && BESIDE.matches ? lowered(figure.layout, beside) : figure.layout;
  }

  /** Smaller words where there is little room, so that titles side by side do not meet. */
  function fitted(layout, width) {
    if (width >= NARROW) return layout;
    const small = (font) => ({ ...font, size: 11 });
    const narrow = { ...layout, font: small(layout.font), legend: { ...layout.legend, font: small(layout.legend?.font) } };
    if (layout.annotations) narrow.annotations = layout.annotations.map((note) => ({ ...note, font: small(note.font) }));
    return narrow;
  }

  function themedLayout(layout, selected) {
    const ink = color("--kv-ink");
    const grid = color("--kv-grid");
    const themed = { ...layout, autosize: true };
    themed.font = { ...layout.font, color: ink, family: color("--kv-font") };
    themed.hoverlabel = {
      ...layout.hoverlabel,
      bgcolor: color("--kv-raised"),
      bordercolor: color("--kv-line"),
      font: { color: ink, family: color("--kv-font"), size: 13 },
    };
    themed.modebar = { bgcolor: "rgba(0,0,0,0)", color: color("--kv-quiet"), activecolor: ink };
    if (matchMedia("(pointer: coarse)").matches) themed.dragmode = false;
    for (const name of Object.keys(layout)) {
      if (!/^[xy]axis\d*$/.test(name)) continue;
      const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, tickcolor: grid, ...layout[name] };
      if (Array.isArray(axis.ticktext)) axis.ticktext = axis.ticktext.map((label) => drawable(String(label)));
      themed[name] = axis;
    }
    if (selected) themed.shapes = [...(layout.shapes ?? []), ...outline(selected)];
    return themed;
  }

  /** A copy for the library to keep (it writes into what it is given). */
  function drawableTrace(trace) {
    const copy = structuredClone(trace);
    for (const axis of ["x", "y"]) {
      if (Array.isArray(copy[axis])) copy[axis] = copy[axis].map((at) => (typeof at === "string" ? drawable(at) : at));
    }
    return copy;
  }

  function outline({ layer, head }) {
    const box = { type: "rect", x0: head - 0.5, x1: head + 0.5, y0: layer - 0.5, y1: layer + 0.5 };
    return [
      { ...box, line: { color: color("--kv-panel"), width: 5 } },
      { ...box, line: { color: color("--kv-ink"), width: 2.5 } },
    ];
  }

  window.kvviz.define("plot", (root, trigger) => {
    const node = make("div", "kv-plot");
    const heading = make("h3", "kv-plot-heading");
    const spoken = make("div", "kv-spoken");
    root.replaceChildren(heading, node, spoken);
    let telling = 0;
    let value = null;
    let selected = null;
    let busy = false;
    let reserved = false;
    let again = false;

    async function react() {
      if (!value || !root.clientWidth) return;
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      try {
        const library = await libraryReady();
        do {
          again = false;
          const { data, config } = value.figure;
          const layout = layoutOf(value);
          node.style.height = `${layout.height}px`;
          const reserves = layout.legend?.yref === "container";
          // the library keeps the margin of a legend that is gone
          if (reserved && !reserves) library.purge(node);
          reserved = reserves;
          await library.react(node, data.map(drawableTrace), themedLayout(fitted(layout, root.clientWidth), selected), config);
        } while (again);
        tellTwin();
        node.dataset.frames = String(Number(node.dataset.frames ?? 0) + 1);
      } finally {
        busy = false;
      }
    }

    /** The text beside the picture follows it once a second at most: frames come faster than anybody hears. */
    function tellTwin() {
      if (telling) return;
      telling = setTimeout(() => {
        telling = 0;
        spoken.replaceChildren(...window.kvviz.twin(node).map((line) => make("p", "", line)));
      }, TELL_MS);
    }

    /** The heatmap cell under the pointer. The library's own click tells the cell that was hovered last,
        which lags behind a quick hand and is lost when a frame comes between press and release. */
    function cellAt({ clientX, clientY }) {
      const cells = value?.pick && node.calcdata?.find(([first]) => first.trace?.type === "heatmap")?.[0].z;
      if (!cells) return null;
      const { xaxis, yaxis } = node._fullLayout;
      const box = node.getBoundingClientRect();
      const head = Math.round(xaxis.p2c(clientX - box.left - xaxis._offset));
      const layer = Math.round(yaxis.p2c(clientY - box.top - yaxis._offset));
      return cells[layer]?.[head] === undefined ? null : { layer, head };
    }

    /** The named point (its ``customdata``) nearest to the pointer, if it is near. */
    function pointAt({ clientX, clientY }) {
      if (!value?.points || !node.calcdata) return null;
      const { xaxis, yaxis } = node._fullLayout;
      const box = node.getBoundingClientRect();
      let nearest = null;
      let least = NEAR_PX;
      for (const points of node.calcdata) {
        const names = points[0].trace?.customdata;
        if (!names) continue;
        points.forEach((point, i) => {
          const x = box.left + xaxis._offset + xaxis.c2p(point.x);
          const y = box.top + yaxis._offset + yaxis.c2p(point.y);
          const distance = Math.hypot(clientX - x, clientY - y);
          if (distance < least) [least, nearest] = [distance, names[i]];
        });
      }
      return nearest;
    }

    let pressed = null;
    node.addEventListener("pointerdown", (event) => (pressed = event.isPrimary && event.button === 0 ? event : null), true);
    window.addEventListener("pointercancel", () => (pressed = null));
    window.addEventListener("pointerup", (event) => {
      const from = pressed;
      pressed = null;
      if (!from || Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > CLICK_PX) return;
      const point = pointAt(event);
      if (point !== null) trigger("click", { point });
      const cell = cellAt(event);
      if (!cell) return;
      selected = cell;
      trigger("click", selected);
      react();
    });

    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(root.clientWidth - width) < 2) return;
      width = root.clientWidth;
      react();
    }).observe(root);

    return {
      draw(next) {
        root.classList.toggle("kv-void", !next.figure);
        if (!next.figure) return;
        value = next;
        node.classList.toggle("kv-choose", Boolean(next.points));
        selected = next.pick ?? null;
        heading.textContent = next.heading ?? "";
        heading.hidden = !next.heading;
        root.setAttribute("role", "group");
        root.setAttribute("aria-label", next.name);
        react();
      },
      restyle: react,
    };
  });
})();
