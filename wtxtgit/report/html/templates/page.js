// Filter, sort and choose. Without this the page shows the same, unfolded by hand.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  // Of thousands of rows a hundred are in the page, and more where somebody scrolls: a browser
  // takes seconds for all of them. A list has the rows of a table, all of them, in the order that
  // is chosen; those in the page are the ones from `from` to `to` of those that the filter hits.
  const STEP = 100;
  const lists = new Map();
  const choosers = new Map();

  function listed(table) {
    const body = table.tBodies[0];
    const box = table.closest(".scroll");
    const list = {
      rows: [...body.rows].map((row) => ({
        row, link: row.querySelector("a"), text: textOf(row.cells[0]), keys: [], hit: true,
      })),
      from: 0,
      to: STEP,
      scrolled: false,
    };
    // The page hides those until now, so that they are never laid out.
    for (const one of list.rows) one.row.classList.remove("later");
    const hits = () => list.rows.filter((one) => one.hit);
    const show = (from, to) => {
      [list.from, list.to] = [from, to];
      body.replaceChildren(...rowsOf(hits().slice(from, to)));
    };
    // Rows that are there stay: one that is taken out and put back loses the focus.
    const extend = (from, to) => {
      const all = hits();
      const above = rowsOf(all.slice(from, list.from));
      body.append(...rowsOf(all.slice(list.to, to)));
      [list.from, list.to] = [from, to];
      if (above.length) {
        const height = box.scrollHeight;
        body.prepend(...above);
        box.scrollTop += box.scrollHeight - height;
      }
      list.moved?.();
    };
    list.reset = () => {
      // Where nobody scrolled, it would only have the browser lay out what is about to change.
      if (list.scrolled) box.scrollTop = 0;
      list.scrolled = false;
      show(0, STEP);
      list.ordered?.();
      list.moved?.();
    };
    list.reveal = (one) => {
      const at = one.row.isConnected ? -1 : hits().indexOf(one);
      if (at < 0) return;
      const from = Math.max(0, Math.min(list.from, at - STEP / 2));
      const to = Math.max(list.to, at + STEP);
      if (list.from - from <= STEP && to - list.to <= STEP) extend(from, to);
      else {
        show(Math.max(0, at - STEP / 2), at + STEP / 2);
        list.moved?.();
      }
    };
    box.addEventListener("scroll", () => {
      list.scrolled = true;
      const above = list.from > 0 && box.scrollTop < box.clientHeight;
      const below = list.to < list.rows.length
        && box.scrollTop + 2 * box.clientHeight >= box.scrollHeight;
      if (!above && !below) return;
      extend(Math.max(0, list.from - (above ? STEP : 0)), list.to + (below ? STEP : 0));
    }, { passive: true });
    addEventListener("beforeprint", () => body.replaceChildren(...rowsOf(hits())));
    addEventListener("afterprint", () => show(list.from, list.to));
    lists.set(table, list);
    show(0, STEP);
  }

  function rowsOf(some) {
    return some.map((one) => one.row);
  }

  function sortable(table) {
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
        const list = lists.get(table);
        sort(list.rows, column, head.dataset.sort, now);
        list.reset();
      });
    });
  }

  function sort(rows, column, kind, order) {
    const sign = order === "ascending" ? 1 : -1;
    for (const one of rows) one.keys[column] ??= keyOf(one.row.cells[column], kind);
    rows.sort(({ keys: { [column]: a } }, { keys: { [column]: b } }) => {
      // What has no number comes last in either order.
      if (a === "" || b === "") return (a === "") - (b === "");
      return a === b ? 0 : sign * (a < b ? -1 : 1);
    });
  }

  // Names count as people do: before a number stands how long it is. Compared as they are, these
  // take a twentieth of the time that a collator takes.
  function keyOf(cell, kind) {
    if (kind === "text") {
      return ` ${cell.querySelector(".name").textContent.toLowerCase()}`.replace(
        /0*(\d+)/g, (_, digits) => String.fromCharCode(0x30 + digits.length) + digits);
    }
    const number = Number(cell.dataset.key.replace("inf", "Infinity"));
    return cell.dataset.key === "" || Number.isNaN(number) ? "" : number;
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
    const chooser = choosers.get(target.closest(".tensors"));
    const one = chooser?.list.rows.find(({ link }) => link?.hash === hash);
    if (one) {
      chooser.list.reveal(one);
      one.row.scrollIntoView({ block: "nearest" });
      chooser.choose(one).scrollIntoView({ block: "nearest" });
    } else checkpoint.scrollIntoView();
    return true;
  }

  // One tensor of each checkpoint is shown. Tab gets to one link of its table: that of the tensor,
  // or the first one while that is not in the page.
  function choosing(section) {
    const table = section.querySelector(".rows");
    const body = table.tBodies[0];
    const list = lists.get(table);
    const linked = list.rows.filter((one) => one.link);
    const ofRow = new Map(linked.map((one) => [one.row, one]));
    let chosen = null;
    let stop = null;
    for (const one of linked) one.link.tabIndex = -1;

    function stopAt(one) {
      if (stop) stop.link.tabIndex = -1;
      stop = one;
      stop.link.tabIndex = 0;
    }

    function choose(one) {
      if (chosen) {
        chosen.link.removeAttribute("aria-current");
        tensorOf(chosen).classList.remove("shown");
      }
      chosen = one;
      stopAt(one);
      one.link.setAttribute("aria-current", "true");
      const tensor = tensorOf(one);
      tensor.classList.add("shown");
      tensor.open = true;
      return tensor;
    }

    body.addEventListener("click", (event) => {
      const one = ofRow.get(event.target.closest("tr"));
      if (!one || event.target.closest("a")) return;
      choose(one).scrollIntoView({ block: "nearest" });
      one.link.focus({ preventScroll: true });
    });
    body.addEventListener("keydown", (event) => {
      const all = list.rows.filter((one) => one.link && one.hit);
      const at = all.findIndex((one) => one.link === event.target);
      const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (at < 0 || next === undefined) return;
      event.preventDefault();
      const one = all[Math.min(Math.max(next, 0), all.length - 1)];
      list.reveal(one);
      choose(one);
      one.link.focus({ preventScroll: true });
      one.row.scrollIntoView({ block: "nearest" });
    });
    list.moved = () => {
      if (stop?.row.isConnected) return;
      const here = ofRow.get(body.querySelector("a")?.closest("tr"));
      if (chosen?.row.isConnected) stopAt(chosen);
      else if (here) stopAt(here);
    };
    // What is chosen is in the page, if any that can be is.
    list.ordered = () => {
      if (chosen?.row.isConnected) return;
      const one = [...body.rows].map((row) => ofRow.get(row)).find(Boolean)
        ?? (chosen?.hit ? null : list.rows.find(({ link, hit }) => link && hit));
      if (one) choose(one);
    };
    choosers.set(section, { list, choose });
    list.ordered();
  }

  function tensorOf(one) {
    return targetOf(one.link.hash).closest(".tensor");
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
      rows: [...element.querySelectorAll(".rows")].flatMap((table) => lists.get(table).rows),
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
        for (const row of one.rows) {
          row.hit = whole || words.every((w) => row.text.includes(w) || one.path.includes(w));
          hits += row.hit;
        }
        const hit = whole || hits > 0 || words.every((word) => one.own.includes(word));
        if (words.length && !filtered) one.open = one.element.open;
        one.element.hidden = !hit;
        if (words.length || filtered) one.element.open = (words.length && hits) || one.open;
        if (one.listed) one.listed.closest("tr").hidden = !hit;
        shown += hits;
        found += hit;
      }
      for (const { list } of choosers.values()) list.reset();
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
    for (const table of document.querySelectorAll("table.sortable")) {
      listed(table);
      sortable(table);
    }
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
