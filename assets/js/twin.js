// What a chart shows, as text for those who hear the page: axis titles and names as the figure has them, then
// its numbers. Taken from what was drawn, so that text and picture cannot differ. It says no word of its own.
(() => {
  const MOST_POINTS = 40;
  const MOST_ROWS = 40;

  function plain(markup) {
    return String(markup ?? "").replace(/<br\s*\/?>/g, " ").replace(/<[^>]*>/g, "");
  }

  function number(value) {
    if (typeof value !== "number") return plain(value);
    return Number.isFinite(value) ? value.toLocaleString(document.documentElement.lang || "en", { maximumSignificantDigits: 4 }) : "–";
  }

  /** At most `most` of `list`, evenly spread, the first and the last among them. */
  function some(list, most) {
    if (list.length <= most) return [...list];
    return Array.from({ length: most }, (_, i) => list[Math.round((i * (list.length - 1)) / (most - 1))]);
  }

  function named(axis, place) {
    return axis?._categories?.length ? plain(axis._categories[place] ?? place) : number(place);
  }

  function axisOf(layout, id, letter) {
    return layout[`${letter}axis${(id ?? letter).slice(1)}`];
  }

  function title(axis) {
    return plain(axis?._input?.title?.text ?? ""); // without one of its own, the library has a filler
  }

  /** The heading above one of several charts in a figure. */
  function above(layout, x, y) {
    const within = (at, [low, high]) => at >= low && at <= high;
    const note = (layout.annotations ?? []).find(
      (one) => one.xref === "paper" && one.yref === "paper" && within(one.x, x.domain) && one.y >= y.domain[1] - 0.01,
    );
    return plain(note?.text);
  }

  /** A row of cells: least and most, and where the most is. */
  function cells([{ trace, z }], x, y) {
    const rows = some(z.map((row, i) => [row, i]), MOST_ROWS);
    return rows.map(([row, i]) => {
      const known = [...row].map((value, j) => [value, j]).filter(([value]) => Number.isFinite(value));
      if (!known.length) return null;
      const [most, at] = known.reduce((a, b) => (b[0] > a[0] ? b : a));
      const least = Math.min(...known.map(([value]) => value));
      const [across, down] = [trace.x, trace.y].map((given) => (k) => number(given?.[k] ?? k));
      return `${title(y)} ${down(i)}: ${number(least)} – ${number(most)} (${title(x)} ${across(at)})`;
    });
  }

  /** Place and size of each point: of bars and stacked areas their own size, not where they end. */
  function points(drawn, x, y) {
    const lying = drawn[0].trace.orientation === "h";
    const [along, up] = lying ? [y, x] : [x, y];
    const told = some(drawn, MOST_POINTS)
      .map((p) => [p.p ?? (lying ? p.y : p.x), p.s ?? (lying ? p.x : p.y)])
      .filter(([place, size]) => place !== undefined && size !== undefined);
    return [told.map(([place, size]) => `${named(along, place)}: ${named(up, size)}`).join("; ")];
  }

  /** The lines of a figure that Plotly has drawn into `node`. */
  function twin(node) {
    const layout = node._fullLayout;
    const lines = [];
    for (const drawn of node.calcdata ?? []) {
      const trace = drawn[0]?.trace;
      if (!trace || trace.visible !== true) continue;
      const x = axisOf(layout, trace.xaxis, "x");
      const y = axisOf(layout, trace.yaxis, "y");
      const own = trace._input?.name ? plain(trace.name) : "";
      lines.push([above(layout, x, y), own, [title(x), title(y)].filter(Boolean).join(" × ")].filter(Boolean).join(" · "));
      lines.push(...(trace.type === "heatmap" ? cells(drawn, x, y) : points(drawn, x, y)));
    }
    const said = lines.length ? lines : (layout.annotations ?? []).map((note) => plain(note.text));
    return said.filter(Boolean);
  }

  window.kvviz.twin = twin;
})();
