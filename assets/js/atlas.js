// What the views of the Attention tab share: the locked head, the shown step, colours, and how the page asks.
// One request is on its way at a time; what is asked for meanwhile is merged and sent when the answer has come.
(() => {
  const PATIENCE_MS = 4000;
  const listeners = new Map();
  const state = { layer: 0, head: 0, locked: true, step: null, shown: "a", mode: "probability", known: false };
  let replay = null;
  let sent = 0;
  let answered = 0;
  let waiting = null;
  let next = null;

  /** A view hears of changes under its name; mounted again, it replaces itself. */
  function listen(name, heard) {
    listeners.set(name, heard);
  }

  function set(changes) {
    Object.assign(state, changes);
    for (const heard of listeners.values()) heard(state);
  }

  /** Ask for a change of what is shown. */
  function ask(trigger, change) {
    next = { trigger, change: { ...next?.change, ...change } };
    if (!waiting) send();
  }

  function send() {
    if (!next) return;
    const { trigger, change } = next;
    next = null;
    sent += 1;
    waiting = setTimeout(settle, PATIENCE_MS);
    trigger("click", { change, seq: sent });
  }

  function settle() {
    clearTimeout(waiting);
    waiting = null;
    send();
  }

  /** Every value carries the number of the newest request it knows of; older ones are out of date. */
  function accept(value) {
    if (value.seq < answered) return false;
    answered = value.seq;
    if (waiting && value.seq >= sent) settle();
    return true;
  }

  /** The head that the page opens with; later the page itself knows better. */
  function begin(pick) {
    if (!state.known) Object.assign(state, pick, { known: true });
  }

  function setReplay(value) {
    if (replay && replay.run !== value.run) state.step = null;
    replay = value;
    set({ shown: value.shown });
  }

  function channels(color) {
    return [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  }

  /** 256 colours of the sequential palette, three bytes each. */
  function ramp(palette) {
    const stops = palette.map(channels);
    const table = new Uint8Array(256 * 3);
    for (let i = 0; i < 256; i += 1) {
      const place = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      for (let c = 0; c < 3; c += 1) {
        table[3 * i + c] = Math.round(stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (place - low));
      }
    }
    return table;
  }

  /** A canvas of a size in CSS pixels, cleared, as sharp as the screen. */
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

  /** ``{name}`` fields filled in. */
  function say(template, values = {}) {
    return template.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  }

  /** A group of radio buttons; answers with the element and a way to set it. */
  function choice(name, legend, options, chosen, choose) {
    const { make } = window.kvviz;
    const box = make("fieldset", "kv-choice");
    box.append(make("legend", "", legend));
    const inputs = options.map(([value, words]) => {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name, value, checked: value === chosen });
      input.addEventListener("change", () => choose(value));
      label.append(input, make("span", "", words));
      box.append(label);
      return input;
    });
    const put = (value) => inputs.forEach((input) => (input.checked = input.value === value));
    return { box, put };
  }

  window.kvviz.atlas = {
    state, listen, set, ask, accept, begin, setReplay, ramp, scaled, say, choice,
    replay: () => replay,
  };
})();
