// Sentences, arithmetic and claims of the calculator. Everything is set as text, nothing as markup.
(() => {
  const { make } = window.kvviz;

  function sum({ label, expression, result }) {
    const line = make("div", "kv-sum");
    const right = make("span", "kv-sum-result", `= ${result}`);
    const left = make("span", "kv-sum-left", expression);
    const both = make("p", "kv-sum-line");
    both.append(left, " ", right);
    line.append(make("p", "kv-sum-label", label), both);
    return line;
  }

  window.kvviz.define("sentences", (root) => ({
    draw({ sentences, fits }) {
      root.dataset.fits = String(Boolean(fits));
      root.replaceChildren(...sentences.map((sentence) => make("p", "kv-sentence", sentence)));
    },
  }));

  window.kvviz.define("sums", (root) => ({
    draw({ lines }) {
      root.replaceChildren(...lines.map(sum));
    },
  }));

  window.kvviz.define("claims", (root) => ({
    draw({ claims }) {
      root.replaceChildren(
        ...claims.map(({ said, verdict, kind, answer, lines }) => {
          const box = make("section", "kv-claim");
          box.dataset.kind = kind;
          const head = make("p", "kv-claim-said", `“${said}” `);
          head.append(make("b", "kv-verdict", verdict));
          box.append(head, make("p", "kv-claim-answer", answer), ...lines.map(sum));
          return box;
        }),
      );
    },
  }));
})();
