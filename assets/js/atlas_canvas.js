// Drawing one large attention map: cells, names of queries and keys, tier bands, the bars of one row, a crosshair.
// A plot is {rows, columns, values (NaN: none), rowName(i), columnName(j), tierOf(j), bands, low, high, log, ramp}.
(() => {
  const { color, drawable, atlas } = window.kvviz;
  const BANDS = 34;
  const BARS = 96;
  const GAP = 10;
  const NAMES = 86;
  const LABEL_PITCH = 14;
  const NONE = NaN;

  /** Where a value lies on the colour scale, 0 to 1. */
  function share(plot, value) {
    if (!plot.log) return Math.max(0, Math.min(1, (value - plot.low) / (plot.high - plot.low || 1)));
    const decades = Math.log10(Math.max(value, 1e-12) / plot.high);
    return Math.max(0, Math.min(1, 1 + decades / plot.decades));
  }

  function layout(plot, room) {
    const narrow = room < 460;
    const left = narrow ? 74 : 118;
    const most = Math.min(room - left - 6, 760);
    const width = Math.max(most, plot.columns * (narrow ? 1.2 : 1));
    const cell = width / plot.columns;
    const height = Math.min(cell * plot.rows, 760);
    return { left, top: BANDS, width, height, cell, line: height / plot.rows, total: left + width + 6, bars: BANDS + height + GAP, end: BANDS + height + GAP + BARS + NAMES };
  }

  function picture(plot) {
    const canvas = document.createElement("canvas");
    canvas.width = plot.columns;
    canvas.height = plot.rows;
    const ctx = canvas.getContext("2d");
    const pixels = ctx.createImageData(plot.columns, plot.rows);
    for (let i = 0; i < plot.values.length; i += 1) {
      if (Number.isNaN(plot.values[i])) continue;
      const place = 3 * Math.round(255 * share(plot, plot.values[i]));
      pixels.data.set(plot.ramp.subarray(place, place + 3), 4 * i);
      pixels.data[4 * i + 3] = 255;
    }
    ctx.putImageData(pixels, 0, 0);
    return canvas;
  }

  function fitted(ctx, words, room) {
    if (ctx.measureText(words).width <= room) return words;
    let cut = words;
    while (cut.length > 1 && ctx.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
    return `${cut}…`;
  }

  function every(step, count) {
    const stride = Math.max(1, Math.ceil(LABEL_PITCH / step));
    return Array.from({ length: Math.ceil(count / stride) }, (_, i) => i * stride);
  }

  function names(ctx, plot, at) {
    ctx.font = `12px ${color("--kv-font")}`;
    ctx.fillStyle = color("--kv-ink");
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    for (const i of every(at.line, plot.rows)) {
      ctx.fillText(fitted(ctx, drawable(plot.rowName(i)), at.left - 10), at.left - 6, at.top + (i + 0.5) * at.line);
    }
    for (const j of every(at.cell, plot.columns)) {
      ctx.save();
      ctx.translate(at.left + (j + 0.5) * at.cell, at.bars + BARS + 6);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(fitted(ctx, drawable(plot.columnName(j)), NAMES - 8), 0, 0);
      ctx.restore();
    }
  }

  function bands(ctx, plot, at) {
    ctx.textBaseline = "middle";
    ctx.textAlign = "center";
    for (const { tier, start, stop } of plot.bands) {
      const style = plot.tiers[tier];
      const [x, w] = [at.left + start * at.cell, (stop - start) * at.cell];
      ctx.fillStyle = style.color;
      ctx.strokeStyle = style.color;
      ctx.lineWidth = 1.5;
      if (style.filled) ctx.fillRect(x, at.top - 13, Math.max(w - 1, 1.5), 10);
      else ctx.strokeRect(x + 0.75, at.top - 12.25, Math.max(w - 2, 1), 8.5);
      ctx.fillStyle = color("--kv-ink");
      ctx.font = `13px ${color("--kv-font")}`;
      const full = `${style.glyph} ${style.name}`;
      const words = ctx.measureText(full).width < w - 4 ? full : style.glyph;
      ctx.fillText(words, Math.max(x + w / 2, at.left + 6), at.top - 23);
      if (start <= 0) continue;
      ctx.setLineDash([4, 4]);
      ctx.lineWidth = 1.5;
      ctx.strokeStyle = "#ffffff";
      ctx.globalCompositeOperation = "source-atop"; // on the cells only
      ctx.beginPath();
      ctx.moveTo(x, at.top);
      ctx.lineTo(x, at.top + at.height);
      ctx.stroke();
      ctx.globalCompositeOperation = "source-over";
      ctx.setLineDash([]);
    }
  }

  /** Everything that stays while the pointer moves. */
  function drawBase(canvas, plot, room) {
    const at = layout(plot, room);
    const ctx = atlas.scaled(canvas, at.total, at.end);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(picture(plot), at.left, at.top, at.width, at.height);
    bands(ctx, plot, at);
    names(ctx, plot, at);
    ctx.strokeStyle = color("--kv-line");
    ctx.lineWidth = 1;
    ctx.strokeRect(at.left - 0.5, at.top - 0.5, at.width + 1, at.height + 1);
    return at;
  }

  function row(plot, i) {
    return plot.values.subarray(i * plot.columns, (i + 1) * plot.columns);
  }

  function drawBars(ctx, plot, at, i) {
    const values = row(plot, i);
    const most = plot.signed ? plot.high : Math.max(...Array.from(values, (v) => (Number.isNaN(v) ? 0 : v)), 1e-6);
    const scale = { ...plot, high: most, low: plot.signed ? plot.low : 0 };
    ctx.strokeStyle = color("--kv-line");
    ctx.strokeRect(at.left - 0.5, at.bars - 0.5, at.width + 1, BARS + 1);
    values.forEach((value, j) => {
      if (Number.isNaN(value)) return;
      const height = share(scale, value) * (BARS - 4);
      if (height < 0.3) return;
      const style = plot.tiers[plot.tierOf(j)];
      ctx.fillStyle = style ? style.color : color("--kv-quiet");
      ctx.fillRect(at.left + j * at.cell + (at.cell > 4 ? 0.5 : 0), at.bars + BARS - height, Math.max(at.cell - (at.cell > 4 ? 1 : 0), 0.8), height);
    });
    ctx.font = `12px ${color("--kv-font")}`;
    ctx.fillStyle = color("--kv-quiet");
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillText(plot.show(most), at.left - 6, at.bars + 7);
    ctx.fillText(plot.log ? plot.show(most * 10 ** -plot.decades) : plot.show(scale.low), at.left - 6, at.bars + BARS - 6);
    ctx.fillStyle = color("--kv-ink");
    ctx.fillText(fitted(ctx, plot.barsName, at.left - 10), at.left - 6, at.bars + BARS / 2);
  }

  function tag(ctx, words, x, y, align) {
    const width = ctx.measureText(words).width + 8;
    ctx.fillStyle = color("--kv-ink");
    ctx.fillRect(align === "right" ? x - width : x, y - 9, width, 18);
    ctx.fillStyle = color("--kv-panel");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(words, (align === "right" ? x - width : x) + 4, y);
  }

  /** What follows the pointer: bars of the row, and the crosshair when there is a column. */
  function drawOver(canvas, plot, at, spot) {
    const ctx = atlas.scaled(canvas, at.total, at.end);
    drawBars(ctx, plot, at, spot.row);
    if (spot.column === null) return;
    const [x, y] = [at.left + (spot.column + 0.5) * at.cell, at.top + (spot.row + 0.5) * at.line];
    for (const [style, width] of [["#000000", 3], ["#ffffff", 1.4]]) {
      ctx.strokeStyle = style;
      ctx.lineWidth = width;
      ctx.beginPath();
      ctx.moveTo(at.left, y);
      ctx.lineTo(at.left + at.width, y);
      ctx.moveTo(x, at.top);
      ctx.lineTo(x, at.bars + BARS);
      ctx.stroke();
    }
    ctx.font = `12px ${color("--kv-font")}`;
    tag(ctx, fitted(ctx, drawable(plot.rowName(spot.row)), at.left - 14), at.left - 2, y, "right");
    ctx.save();
    ctx.translate(x, at.bars + BARS + 2);
    ctx.rotate(-Math.PI / 2);
    tag(ctx, fitted(ctx, drawable(plot.columnName(spot.column)), NAMES - 10), 0, 0, "right");
    ctx.restore();
  }

  /** The cell under a pointer, or null. */
  function cellAt(canvas, plot, at, event) {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - at.left) / at.cell);
    const line = Math.floor((event.clientY - box.top - at.top) / at.line);
    if (column < 0 || column >= plot.columns || line < 0 || line >= plot.rows) return null;
    return { row: line, column };
  }

  atlas.canvas = { NONE, share, drawBase, drawOver, cellAt, row };
})();
