// One cell a token: colour and shape say where its K and V are, the bar below how much the newest token looks at it.
(() => {
  const { color, drawable, inflate, make, numbers } = window.kvviz;
  const SIZES = [[300, 17], [900, 13], [3000, 10], [Infinity, 8]];
  const BAR = 3;

  function polygon(ctx, points, x, y, r) {
    ctx.beginPath();
    points.forEach(([px, py], i) => (i ? ctx.lineTo(x + px * r, y + py * r) : ctx.moveTo(x + px * r, y + py * r)));
    ctx.closePath();
  }

  const STAR = Array.from({ length: 10 }, (_, i) => {
    const angle = (i * Math.PI) / 5 - Math.PI / 2;
    const radius = i % 2 ? 0.5 : 1.1;
    return [Math.cos(angle) * radius, Math.sin(angle) * radius];
  });
  const PATHS = {
    "diamond": (ctx, x, y, r) => polygon(ctx, [[0, -1.05], [1.05, 0], [0, 1.05], [-1.05, 0]], x, y, r),
    "square": (ctx, x, y, r) => polygon(ctx, [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]], x, y, r),
    "triangle-up": (ctx, x, y, r) => polygon(ctx, [[0, -1], [1, 0.85], [-1, 0.85]], x, y, r),
    "triangle-down": (ctx, x, y, r) => polygon(ctx, [[0, 1], [1, -0.85], [-1, -0.85]], x, y, r),
    "star": (ctx, x, y, r) => polygon(ctx, STAR, x, y, r),
    "circle": (ctx, x, y, r) => {
      ctx.beginPath();
      ctx.arc(x, y, r * 0.92, 0, 2 * Math.PI);
    },
    "x": (ctx, x, y, r) => {
      ctx.beginPath();
      for (const side of [-1, 1]) {
        ctx.moveTo(x - 0.75 * r, y - 0.75 * side * r);
        ctx.lineTo(x + 0.75 * r, y + 0.75 * side * r);
      }
    },
  };
  PATHS["circle-open"] = PATHS.circle;

  function drawShape(ctx, style, x, y, r) {
    (PATHS[style.shape] ?? PATHS.circle)(ctx, x, y, r);
    if (style.filled) {
      ctx.fillStyle = style.color;
      ctx.fill();
      ctx.lineWidth = 0.75;
      ctx.strokeStyle = color("--kv-edge");
    } else {
      ctx.lineWidth = Math.max(1.4, r / 4);
      ctx.strokeStyle = style.color;
    }
    ctx.stroke();
  }

  function scaled(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return ctx;
  }

  window.kvviz.define("strip", (root) => {
    const scroller = make("div", "kv-strip-scroll");
    const canvas = make("canvas", "kv-strip-canvas");
    const empty = make("p", "kv-empty");
    const legend = make("ul", "kv-legend");
    const tip = make("div", "kv-tip");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    tip.setAttribute("role", "status");
    tip.hidden = true;
    scroller.append(canvas);
    root.replaceChildren(scroller, empty, legend, tip);
    let data = null;
    let focus = -1;
    let grid = { size: 1, columns: 1 };

    function style(code) {
      return data.legend.find((entry) => entry.code === code);
    }

    function drawCells() {
      if (!data || !root.clientWidth || !data.count) return;
      const size = SIZES.find(([most]) => data.count <= most)[1];
      const pitch = size + 1;
      const width = scroller.clientWidth;
      const columns = Math.max(1, Math.floor(width / pitch));
      const lineHeight = pitch + BAR + 1;
      const rows = Math.ceil(data.count / columns);
      grid = { size, pitch, columns, lineHeight };
      const ctx = scaled(canvas, width, rows * lineHeight + 2);
      const styles = new Map(data.legend.map((entry) => [entry.code, entry]));
      const ink = color("--kv-ink");
      for (let i = 0; i < data.count; i += 1) {
        const left = (i % columns) * pitch;
        const top = Math.floor(i / columns) * lineHeight + 1;
        if (i >= data.prompt) {
          ctx.fillStyle = color("--kv-generated");
          ctx.fillRect(left, top, pitch, size);
        }
        drawShape(ctx, styles.get(data.tiers[i]), left + size / 2, top + size / 2, size / 2 - 1.5);
        const share = (data.received[i] ?? 0) * data.received_unit;
        const bar = Math.sqrt(Math.min(1, share)) * size;
        if (bar >= 0.75) {
          ctx.fillStyle = ink;
          ctx.fillRect(left, top + size + 0.5, bar, BAR - 1);
        }
      }
      if (focus >= 0 && focus < data.count) ring(ctx, ink);
    }

    function ring(ctx, ink) {
      const { size, pitch, columns, lineHeight } = grid;
      ctx.lineWidth = 2;
      ctx.strokeStyle = ink;
      ctx.strokeRect((focus % columns) * pitch, Math.floor(focus / columns) * lineHeight + 1, size, size);
    }

    function percent(share) {
      return `${(100 * share).toFixed(share < 0.001 ? 3 : 2)} %`;
    }

    function lines(i) {
      const entry = style(data.tiers[i]);
      const words = data.words;
      const side = i < data.prompt ? words.prompt : words.generated;
      const place = entry.locations.length ? ` · ${entry.locations.join(", ")}` : "";
      const share = i < data.received.length ? percent(data.received[i] * data.received_unit) : words.none;
      return [
        `${words.position}: ${i} · ${side}`,
        `${words.tier}: ${entry.glyph} ${entry.name}${place}`,
        `${words.bits}: ${entry.bits_text}`,
        `${words.bytes}: ${entry.bytes_text}`,
        `${words.received}: ${share}`,
        data.kind,
      ];
    }

    function show(i) {
      if (!data || i < 0 || i >= data.count) {
        hide();
        return;
      }
      focus = i;
      drawCells();
      tip.replaceChildren(make("code", "kv-tip-token", drawable(data.labels[i])), ...lines(i).map((line) => make("div", "", line)));
      tip.hidden = false;
      const { pitch, columns, lineHeight } = grid;
      const left = (i % columns) * pitch;
      const top = Math.floor(i / columns) * lineHeight - scroller.scrollTop + scroller.offsetTop + lineHeight + 4;
      tip.style.top = `${top}px`;
      tip.style.left = `${Math.max(0, Math.min(left, root.clientWidth - tip.offsetWidth - 4))}px`;
    }

    function hide() {
      if (focus < 0 && tip.hidden) return;
      focus = -1;
      tip.hidden = true;
      drawCells();
    }

    function cellAt(event) {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / grid.pitch);
      const row = Math.floor((event.clientY - box.top) / grid.lineHeight);
      return column < grid.columns ? row * grid.columns + column : -1;
    }

    function keep(i) {
      const top = Math.floor(i / grid.columns) * grid.lineHeight;
      if (top < scroller.scrollTop) scroller.scrollTop = top;
      const bottom = top + grid.lineHeight + 2;
      if (bottom > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = bottom - scroller.clientHeight;
    }

    canvas.addEventListener("pointermove", (event) => show(cellAt(event)));
    canvas.addEventListener("pointerdown", (event) => show(cellAt(event)));
    canvas.addEventListener("pointerleave", hide);
    canvas.addEventListener("blur", hide);
    canvas.addEventListener("keydown", (event) => {
      if (!data?.count) return;
      const last = data.count - 1;
      const now = focus < 0 ? last : focus;
      const moves = {
        ArrowRight: focus < 0 ? last : now + 1, ArrowLeft: now - 1, ArrowDown: now + grid.columns,
        ArrowUp: now - grid.columns, Home: 0, End: last,
      };
      if (event.key === "Escape") hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      const next = Math.max(0, Math.min(last, moves[event.key]));
      keep(next);
      show(next);
    });

    function drawLegend() {
      const entries = data.legend.map((entry) => {
        const item = make("li");
        const swatch = make("canvas");
        drawShape(scaled(swatch, 16, 16), entry, 8, 8, 6.5);
        item.title = entry.meaning;
        item.append(swatch, make("span", "", entry.name));
        if (entry.tokens !== null) item.append(make("b", "", String(entry.tokens)));
        return item;
      });
      if (data.count) entries.push(make("li", "kv-legend-note", data.bar_note));
      legend.replaceChildren(...entries);
    }

    /** The three long lists as they were before they were packed. */
    async function unpacked(next) {
      const text = new TextDecoder().decode(await inflate(next.labels));
      const halves = await numbers(next.received);
      const count = halves.length / 2;
      const received = Array.from({ length: count }, (_, i) => halves[i] + 65536 * halves[count + i]);
      const tiers = [];
      for (let i = 0; i < next.tiers.length; i += 2) tiers.push(...Array(next.tiers[i + 1]).fill(next.tiers[i]));
      return { ...next, labels: text.split("\n"), received, tiers };
    }

    let turn = 0;
    new ResizeObserver(drawCells).observe(root);
    return {
      async draw(packed) {
        const now = (turn += 1);
        const next = await unpacked(packed);
        if (now !== turn) return;
        const follow = scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 8;
        data = next;
        root.dataset.count = String(data.count);
        empty.textContent = data.empty;
        empty.hidden = !data.empty;
        scroller.hidden = !data.count;
        canvas.setAttribute("aria-label", data.name);
        drawLegend();
        drawCells();
        if (follow) scroller.scrollTop = scroller.scrollHeight;
        if (!tip.hidden) show(focus);
      },
      restyle() {
        if (!data) return;
        drawLegend();
        drawCells();
      },
    };
  });
})();
