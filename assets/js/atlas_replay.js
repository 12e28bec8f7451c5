// Which configurations and which step are shown: a slider over a run's steps that plays, and the cache at that step.
(() => {
  const { drawable, make, atlas } = window.kvviz;
  const { state, say } = atlas;
  const PLAY_MS = 400;

  window.kvviz.define("atlas-replay", (root, trigger) => {
    const tools = make("div", "kv-replay-tools");
    const play = make("button", "kv-button");
    const range = make("input", "kv-replay-range");
    const told = make("output", "kv-replay-told");
    const memory = make("div", "kv-replay-memory");
    play.type = "button";
    Object.assign(range, { type: "range", min: 0, step: 1 });
    const line = make("div", "kv-replay-line");
    line.append(play, range, told);
    root.replaceChildren(tools, line, memory);
    let data = null;
    let shown = null;
    let timer = 0;

    function go(step) {
      if (!data?.steps) return;
      const to = Math.max(0, Math.min(data.steps - 1, step));
      range.value = to;
      atlas.set({ step: to });
      atlas.ask(trigger, { step: to });
      tell();
    }

    function pause() {
      clearInterval(timer);
      timer = 0;
      tell();
    }

    function start() {
      if (Number(range.value) >= data.steps - 1) go(0);
      timer = setInterval(() => {
        if (Number(range.value) >= data.steps - 1) pause();
        else go(Number(range.value) + 1);
      }, PLAY_MS);
      tell();
    }

    function tell() {
      if (!data) return;
      play.textContent = timer ? `❚❚ ${data.words.pause}` : `▶ ${data.words.play}`;
      const step = Number(range.value);
      const words = step === 0 ? data.words.first_step : say(data.words.step, { step, last: data.steps - 1 });
      told.textContent = data.live ? data.words.live : data.steps ? words : data.words.none;
      range.setAttribute("aria-valuetext", told.textContent);
    }

    function bar(side) {
      const memoryOf = data.memory[side];
      const line = make("div", "kv-memory-line");
      const track = make("div", "kv-memory-track");
      const most = Math.max(...data.memory.map((one) => one.most), 1);
      const names = [];
      memoryOf.tiers.forEach(([tier, n], i) => {
        const part = make("span", "kv-memory-part");
        const style = data.tiers[tier];
        part.style.width = `${(100 * n) / most}%`;
        part.style.background = style.color;
        part.title = `${style.glyph} ${style.name}: ${memoryOf.tier_words[i]}`;
        names.push(`${style.glyph} ${style.name} ${memoryOf.tier_words[i]}`);
        track.append(part);
      });
      const token = data.tokens[side];
      const chosen = make("span", "kv-memory-token");
      if (token) chosen.append(`${data.words.chose} `, make("code", "", drawable(token)));
      const words = make("div", "kv-memory-words", names.join(" · "));
      line.append(make("b", "", data.letters[side]), track, make("span", "kv-memory-total", memoryOf.words), chosen, words);
      return line;
    }

    range.addEventListener("input", () => {
      pause();
      go(Number(range.value));
    });
    play.addEventListener("click", () => (timer ? pause() : start()));

    return {
      draw(value) {
        if (!atlas.accept(value)) return;
        const another = !data || data.run !== value.run;
        data = value;
        if (another) pause();
        if (!shown) {
          const options = ["a", "b", "both"].map((key) => [key, value.words[key]]);
          shown = atlas.choice("atlas-shown", value.words.shown, options, value.shown, (key) => atlas.ask(trigger, { shown: key }));
          tools.append(shown.box);
        }
        shown.put(value.shown);
        const can = value.steps > 0 && !value.live;
        range.disabled = play.disabled = !can;
        range.max = Math.max(0, value.steps - 1);
        if (value.live || another || state.step === null) range.value = value.step ?? value.steps - 1;
        range.setAttribute("aria-label", value.words.name);
        root.dataset.step = value.step ?? value.steps - 1;
        memory.replaceChildren(...(value.steps ? data.memory.map((_, side) => bar(side)) : []));
        atlas.setReplay(value);
        tell();
      },
    };
  });
})();
