// Filter, sort and choose. Without this the page shows the same, unfolded by hand.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  const natural = new Intl.Collator("en", { numeric: true });

  // Of thousands of rows the first ones are in the page, and more where somebody scrolls: a
  // browser takes seconds for all of them. `rows` are all, in the order that is chosen.
  const STEP = 100;
  const tables = new Map();

  function windowed(table) {
    const body = table.tBodies[0];
    const box = table.closest(".scroll");
    const one = { rows: [...body.rows], limit: STEP };
    // The page hides those until now, so that they are never laid out.
    for (const row of one.rows) row.classList.remove("later");
    const fit = () => body.replaceChildren(...shownOf(one).slice(0, one.limit));
    // Rows that are there stay: one that is taken out and put back loses the focus.
    const grow = () => body.append(...shownOf(one).slice(body.rows.length, one.limit));
    one.reset = () => {
      one.limit = STEP;
      fit();
      one.keepChosen?.();
    };
    one.reveal = (row) => {
      if (row.isConnected) return;
      one.limit = shownOf(one).indexOf(row) + STEP;
      grow();
    };
    box.addEventListener("scroll", () => {
      if (box.scrollTop + 2 * box.clientHeight < box.scrollHeight || one.limit > one.rows.length) {
        return;
      }
      one.limit += STEP;
      grow();
    }, { passive: true });
    addEventListener("beforeprint", () => body.replaceChildren(...shownOf(one)));
    addEventListener("afterprint", fit);
    tables.set(table, one);
    fit();
  }

  function shownOf(one) {
    return one.rows.filter((row) => !row.hidden);
  }

  function linksOf(section) {
    const { rows } = tables.get(section.querySelector(".rows"));
    return rows.map((row) => row.querySelector("a")).filter(Boolean);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!head.dataset.sort) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        // Numbers are of interest from the largest on.
        const first = head.dataset.sort === "number" ? "descending" : "ascending";
        const other = first === "descending" ? "ascending" : "descending";
        const now = was === first ? other : first;
        for (const one of heads) one.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", now);
        const one = tables.get(table);
        const rows = sorted(one?.rows ?? [...body.rows], column, head.dataset.sort, now);
        if (!one) body.append(...rows);
        else {
          one.rows = rows;
          one.reset();
        }
      });
    });
  }

  function sorted(rows, column, kind, order) {
    const sign = order === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [row, keyOf(row.cells[column], kind)]);
    keyed.sort(([, a], [, b]) => {
      if (kind === "text") return sign * natural.compare(a, b);
      // What has no number comes last in either order.
      if (a === null || b === null) return (a === null) - (b === null);
      return a === b ? 0 : sign * (a < b ? -1 : 1);
    });
    return keyed.map(([row]) => row);
  }

  function keyOf(cell, kind) {
    if (kind === "text") return cell.querySelector(".name").textContent;
    const key = cell.dataset.key;
    return key === "" ? null : key === "inf" ? Infinity : Number(key);
  }

  // One tensor of each checkpoint is shown; its link is the one that Tab gets to.
  function choose(link) {
    const tensor = targetOf(link.hash).closest(".tensor");
    const section = tensor.closest(".tensors");
    for (const one of linksOf(section)) {
      one.tabIndex = -1;
      one.removeAttribute("aria-current");
    }
    for (const one of section.querySelectorAll(".tensor.shown")) one.classList.remove("shown");
    link.tabIndex = 0;
    link.setAttribute("aria-current", "true");
    tensor.classList.add("shown");
    tensor.open = true;
    return tensor;
  }

  function reveal(link, section) {
    tables.get(section.querySelector(".rows")).reveal(link.closest("tr"));
  }

  // Ids are of what can be unfolded, so that browsers unfold it without a script too.
  function targetOf(hash) {
    return document.getElementById(hash.slice(1));
  }

  // A link to a tensor or a checkpoint, wherever it stands.
  function follow(hash) {
    const target = targetOf(hash);
    const checkpoint = target?.closest(".checkpoint");
    if (!checkpoint) return false;
    checkpoint.open = true;
    const section = target.closest(".tensors");
    const row = section && linksOf(section).find((link) => link.hash === hash);
    if (row) {
      reveal(row, section);
      row.closest("tr").scrollIntoView({ block: "nearest" });
      choose(row).scrollIntoView({ block: "nearest" });
    } else checkpoint.scrollIntoView();
    return true;
  }

  function choosing(section) {
    const body = section.querySelector(".rows tbody");
    const links = () => linksOf(section).filter((link) => !link.closest("tr").hidden);
    body.addEventListener("click", (event) => {
      const link = event.target.closest("tr").querySelector("a");
      if (!link || event.target.closest("a")) return;
      choose(link).scrollIntoView({ block: "nearest" });
      link.focus({ preventScroll: true });
    });
    body.addEventListener("keydown", (event) => {
      const all = links();
      const at = all.indexOf(event.target);
      const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (at < 0 || next === undefined) return;
      event.preventDefault();
      const link = all[Math.min(Math.max(next, 0), all.length - 1)];
      reveal(link, section);
      choose(link);
      link.focus({ preventScroll: true });
      link.closest("tr").scrollIntoView({ block: "nearest" });
    });
    const [first] = links();
    if (first) choose(first);
    // What is chosen is in the page, where Tab gets to it.
    tables.get(section.querySelector(".rows")).keepChosen = () => {
      const all = links();
      const here = all.filter((link) => link.isConnected);
      if (!all.length || here.some((link) => link.hasAttribute("aria-current"))) return;
      const [link] = here.length ? here : all;
      reveal(link, section);
      choose(link);
    };
  }

  function filtering(box) {
    const count = document.getElementById("count");
    const nothing = document.getElementById("nothing");
    const checkpoints = [...document.querySelectorAll(".checkpoint")].map((element) => ({
      element,
      open: element.open,
      listed: document.querySelector(`nav a[href="#${element.querySelector(".body")?.id}"]`),
      own: textOf(element.querySelector("summary")) + textOf(element.querySelector(".flags")),
      path: textOf(element.querySelector("summary h2")),
      rows: [...element.querySelectorAll(".rows")].flatMap((table) => tables.get(table).rows)
        .map((row) => ({ row, text: textOf(row.cells[0]) })),
    }));
    const all = checkpoints.reduce((sum, one) => sum + one.rows.length, 0);
    let filtered = false;

    function apply() {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      let found = 0;
      for (const one of checkpoints) {
        const whole = words.every((word) => one.path.includes(word));
        let hits = 0;
        for (const { row, text } of one.rows) {
          const hit = whole || words.every((w) => text.includes(w) || one.path.includes(w));
          row.hidden = !hit;
          hits += hit;
        }
        const hit = whole || hits > 0 || words.every((word) => one.own.includes(word));
        if (words.length && !filtered) one.open = one.element.open;
        one.element.hidden = !hit;
        if (words.length || filtered) one.element.open = (words.length && hits) || one.open;
        if (one.listed) one.listed.closest("tr").hidden = !hit;
        shown += hits;
        found += hit;
      }
      for (const one of tables.values()) one.reset();
      filtered = words.length > 0;
      nothing.hidden = found > 0;
      const { noun } = count.dataset;
      const told = (number) => number.toLocaleString("en");
      count.value = `${filtered ? `${told(shown)} of ` : ""}${told(all)} ${noun}`;
    }
    box.addEventListener("input", apply);
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, textarea, select");
      if (event.key !== "/" || typing || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      box.focus();
      box.select();
    });
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !box.value) return;
      event.preventDefault();
      box.value = "";
      apply();
    });
    apply();
  }

  function textOf(element) {
    return element ? ` ${element.textContent.toLowerCase()} ` : "";
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("table.sortable")) sortable(table);
    for (const table of document.querySelectorAll("table.rows")) windowed(table);
    for (const section of document.querySelectorAll(".tensors")) choosing(section);
    const box = document.getElementById("filter");
    if (box) filtering(box);
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#"]');
      if (link && follow(link.hash)) event.preventDefault();
    });
    if (location.hash) follow(location.hash);
  });
})();
