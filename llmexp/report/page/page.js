"use strict";
(() => {
  const tables = JSON.parse(document.getElementById("data").textContent);
  const PIECE = 200;

  function made(name, text, attributes = {}) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  }

  // Names of points go to the first place beside their point that nothing else takes; without one the pointer tells them.
  const PLACES = [["start", 9, -5], ["end", -9, -5], ["start", 9, 14], ["end", -9, 14], ["middle", 0, -11], ["middle", 0, 20]];
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;

  function place(plot) {
    const frame = plot.getBoundingClientRect(), taken = [...plot.querySelectorAll("use")].map((mark) => mark.getBoundingClientRect());
    for (const label of plot.querySelectorAll(".label")) {
      label.style.visibility = "";
      const found = PLACES.some(([anchor, dx, dy]) => {
        for (const [key, value] of [["text-anchor", anchor], ["dx", dx], ["dy", dy]]) label.setAttribute(key, value);
        const box = label.getBoundingClientRect();
        const isFree = box.left >= frame.left && box.right <= frame.right + 16 && taken.every((other) => apart(box, other));
        if (isFree) taken.push(box);
        return isFree;
      });
      if (!found) label.style.visibility = "hidden";
    }
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

  function cellOf(text, isLeft, isCopied, isName) {
    const style = { class: isLeft ? "left" : text.length < 32 ? "number" : "words", ...(isName ? { scope: "row" } : {}) };
    const cell = made(isName ? "th" : "td", isCopied ? undefined : text, style);
    if (isCopied) cell.append(made("code", text), " ", made("button", "Copy", { type: "button", class: "copy" }));
    return cell;
  }

  function table(host, found) {
    // The first words that tell rows apart name them.
    const named = found.headers.findIndex((header, column) =>
      found.left[column] && header !== found.copied && new Set(found.rows.map((row) => row[column])).size > 1);
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
        line.append(...row.map((cell, column) =>
          cellOf(cell, found.left[column], found.headers[column] === found.copied, column === named)));
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
    host.append(...(tools.childElementCount ? [tools] : []), scroll, more);
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

  document.querySelectorAll("[data-table]").forEach((host) => table(host, tables[Number(host.dataset.table)]));
  const plots = [...document.querySelectorAll(".xy")], folded = [...document.querySelectorAll("details")];
  const watch = new ResizeObserver((changed) => changed.forEach((one) => place(one.target)));
  plots.forEach((plot) => watch.observe(plot));

  // Paper shows what is folded.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = folded.filter((part) => !part.open);
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));
})();
