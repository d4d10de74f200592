"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // Okabe and Ito's colors, in shades that stand out from the page; lines differ in dashes and marks too.
  const COLORS = {
    light: ["#0072b2", "#b34700", "#00795a", "#a3497f", "#7a5c00", "#3b4754"],
    dark: ["#6cb8f0", "#ff9a4d", "#3fd6a5", "#ec9ccb", "#f0d24a", "#c6d0da"],
  };
  const PIECE = 200;
  // With more points their names would cover each other; hovering and the numbers name them then.
  const NAMED = 20;

  function made(name, text, attributes = {}) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  }

  // Plotly takes a few tags in texts for markup; names of runs are texts and nothing else.
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function traced(trace, number, colors) {
    const color = colors[number % colors.length];
    const drawn = { ...trace, name: escaped(trace.name), marker: { ...trace.marker, color: color } };
    if (trace.line) drawn.line = { ...trace.line, color: color };
    if (trace.error_y) drawn.error_y = { ...trace.error_y, color: color };
    if (trace.mode === "markers" && trace.x.length <= NAMED) {
      Object.assign(drawn, { mode: "markers+text", text: trace.customdata.map(escaped), textposition: "bottom center", cliponaxis: false });
    }
    if (trace.customdata) drawn.customdata = trace.customdata.map(escaped);
    const first = trace.customdata ? "%{customdata}" : escaped(trace.name).replace(/[%{}]/g, " ");
    drawn.hovertemplate = `${first}<br>x %{x:,.4~g}<br>y %{y:,.4~g}<extra></extra>`;
    return drawn;
  }

  function draw(figure, printing = false) {
    const chart = data.charts[Number(figure.dataset.chart)];
    const isDark = dark.matches && !printing;
    const ink = isDark ? "#e6eaee" : "#1d2329", line = isDark ? "#3a434c" : "#d5dbe1";
    const place = figure.querySelector(".plot"), colors = isDark ? COLORS.dark : COLORS.light;
    const axis = (title) => ({
      title: { text: escaped(title), standoff: 8 }, gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true,
    });
    const layout = {
      xaxis: axis(chart.x), yaxis: { ...axis(chart.y), rangemode: chart.from_zero ? "tozero" : "normal" },
      font: { color: ink, family: "system-ui, sans-serif", size: 12 }, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 10, r: 10, t: 34, b: 10 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: colors[0] }, showlegend: chart.traces.length > 1,
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom" }, hoverlabel: { align: "left" },
      autosize: true,
    };
    const traces = chart.traces.map((trace, number) => traced(trace, number, colors));
    Plotly.react(place, traces, layout, { responsive: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]] });
  }

  function numbers(figure) {
    const chart = data.charts[Number(figure.dataset.chart)], details = figure.querySelector("details");
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      const rows = chart.traces.flatMap((trace) =>
        trace.x.map((x, index) => [trace.name + (trace.customdata ? `: ${trace.customdata[index]}` : ""), x, trace.y[index]]),
      );
      const cells = rows.map((row) => row.map((cell) => (cell === null ? "" : typeof cell === "number" ? String(Number(cell.toPrecision(6))) : cell)));
      const host = made("div");
      details.append(host);
      table(host, { title: chart.title, headers: ["line", chart.x, chart.y], left: [true, false, false], rows: cells, copied: "" });
    }, { passive: true });
  }

  const numeric = (text) => {
    const found = /^[^\d-]*(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)/.exec(text);
    return found ? Number(found[1].replace(/,/g, "")) : NaN;
  };

  // Cells without a number stay at the end, whichever way the column is sorted.
  function order(rows, column, isText, down) {
    const sign = down ? -1 : 1;
    const key = (row) => (isText ? row[column] : numeric(row[column]));
    return [...rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (isText) return sign * x.localeCompare(y, undefined, { numeric: true });
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return sign * (x - y);
    });
  }

  function cellOf(text, isLeft, isCopied) {
    const cell = made("td", isCopied ? undefined : text, { class: isLeft ? "left" : text.length < 32 ? "number" : "words" });
    if (isCopied) cell.append(made("code", text), " ", made("button", "Copy", { type: "button", class: "copy" }));
    return cell;
  }

  function table(host, found) {
    let shown = found.rows, sorted = { column: -1, down: false }, pieces = 1, filter = "";
    const body = made("tbody"), said = made("span", "", { role: "status" });
    const more = made("button", "Show more", { type: "button", class: "more" });
    const headers = found.headers.map((header, column) => {
      const cell = made("th", undefined, { scope: "col", "aria-sort": "none", ...(found.left[column] ? { class: "left" } : {}) });
      const button = made("button", header, { type: "button" });
      button.addEventListener("click", () => {
        sorted = { column, down: sorted.column === column ? !sorted.down : !found.left[column] };
        update();
      });
      cell.append(button);
      return cell;
    });
    function update() {
      const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
      shown = found.rows.filter((row) => words.every((word) => row.some((cell) => cell.toLowerCase().includes(word))));
      if (sorted.column >= 0) shown = order(shown, sorted.column, found.left[sorted.column], sorted.down);
      headers.forEach((cell, column) =>
        cell.setAttribute("aria-sort", column !== sorted.column ? "none" : sorted.down ? "descending" : "ascending"),
      );
      paint();
    }
    function paint() {
      const part = shown.slice(0, pieces * PIECE);
      body.replaceChildren(...part.map((row) => {
        const line = made("tr");
        line.append(...row.map((cell, column) => cellOf(cell, found.left[column], found.headers[column] === found.copied)));
        return line;
      }));
      more.hidden = part.length === shown.length;
      said.textContent = `${part.length.toLocaleString("en")} of ${found.rows.length.toLocaleString("en")} rows`;
    }
    more.addEventListener("click", () => { pieces += 5; paint(); });
    const all = made("table"), head = made("thead"), line = made("tr"), tools = made("div", undefined, { class: "tools" });
    line.append(...headers);
    head.append(line);
    all.append(made("caption", found.title, { hidden: "" }), head, body);
    if (found.rows.length > 5) {
      const label = made("label", "Filter "), input = made("input", undefined, { type: "search" });
      input.addEventListener("input", () => { filter = input.value; pieces = 1; update(); });
      label.append(input);
      tools.append(label, said);
    }
    const scroll = made("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": found.title });
    scroll.append(all);
    host.append(tools, scroll, more);
    window.addEventListener("beforeprint", () => { pieces = Math.max(pieces, 10); paint(); });
    paint();
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const source = button.parentElement.querySelector("code, span");
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      window.getSelection().selectAllChildren(source); // a page on a disk may not write to the clipboard
      button.textContent = "Selected";
    }
    window.setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  document.querySelectorAll("[data-table]").forEach((host) => table(host, data.tables[Number(host.dataset.table)]));
  const figures = [...document.querySelectorAll("[data-chart]")];
  figures.forEach((figure) => { draw(figure); numbers(figure); });
  dark.addEventListener("change", () => figures.forEach((figure) => draw(figure)));
  window.addEventListener("beforeprint", () => figures.forEach((figure) => draw(figure, true)));
  window.addEventListener("afterprint", () => figures.forEach((figure) => draw(figure)));
})();
