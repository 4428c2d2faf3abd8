// Checks of an open page: axe-core, text that is cut off or overlaps, contrast of the text of drawings.
"use strict";

window.pageChecks = (() => {
  async function violations() {
    // drawings are hidden from assistive technology; `contrast` measures their text
    const found = await axe.run({ exclude: [["svg"]] }, { resultTypes: ["violations"], preload: false });
    return found.violations.map((one) => {
      const places = one.nodes.map((node) => node.target.join(" "));
      return `${one.id}: ${places.slice(0, 3).join("; ")}`;
    });
  }

  const drawings = () => [...document.querySelectorAll("svg")].filter((one) => one.checkVisibility());

  // Text that its own box cuts off.
  function cut() {
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
      if (!element.checkVisibility() || element.closest(".unseen, .skip, svg, option, select")) continue;
      const style = getComputedStyle(element);
      const cuts = ["hidden", "clip"].includes(style.overflowX) || style.textOverflow === "ellipsis";
      if (cuts && element.textContent.trim() && element.scrollWidth > element.clientWidth + 1)
        found.push(`${element.tagName}.${element.className}: ${element.scrollWidth} > ${element.clientWidth}`);
    }
    return found;
  }

  const SMALLEST = 9; // pixels of a letter's height in a drawing

  // Text of drawings that is too small to read.
  function small() {
    const found = [];
    for (const drawing of drawings()) {
      const scale = drawing.getBoundingClientRect().width / (drawing.viewBox.baseVal.width || 1);
      for (const text of drawing.querySelectorAll("text")) {
        const size = parseFloat(getComputedStyle(text).fontSize) * scale;
        if (size < SMALLEST) { found.push(`a drawing has “${text.textContent}” in ${size.toFixed(1)} px`); break; }
      }
    }
    return found;
  }

  // Text of drawings that is shortened, outside of its drawing, or on other text.
  function clipped() {
    const found = cut();
    for (const drawing of drawings()) {
      const frame = drawing.getBoundingClientRect();
      const texts = [...drawing.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
      texts.forEach(([words, box], at) => {
        const beside = box.left < frame.left - 1 || box.right > frame.right + 1;
        if (words.includes("…") || beside || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
          found.push(`a drawing cuts “${words}”`);
        for (const [other, next] of texts.slice(at + 1)) {
          const across = Math.min(box.right, next.right) - Math.max(box.left, next.left);
          const down = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
          if (across > 2 && down > 5) found.push(`“${words}” on “${other}”`);
        }
      });
    }
    return found;
  }

  function parse(colour) {
    const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
    return [red, green, blue];
  }

  const over = (front, alpha, back) => front.map((part, at) => alpha * part + (1 - alpha) * back[at]);

  // Relative luminance as WCAG 2 defines it.
  function luminance(colour) {
    const [red, green, blue] = colour.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  const opacity = (style) => Number(style.fillOpacity) * Number(style.opacity);
  const holds = (area, x, y) => area.left <= x && x <= area.right && area.top <= y && y <= area.bottom;

  // How many texts of drawings there are, and those with a contrast below 4.5 to what lies behind them.
  function contrast() {
    const paper = parse(getComputedStyle(document.body).backgroundColor), found = [];
    let measured = 0;
    for (const drawing of drawings()) {
      const shapes = [];
      for (const one of drawing.querySelectorAll("path, rect, text")) {
        const style = getComputedStyle(one), box = one.getBoundingClientRect();
        if (one.tagName !== "text") {
          const filled = style.fill !== "none" && box.width > 8 && box.height > 8 && !one.closest("defs, clipPath");
          if (filled) shapes.push([box, parse(style.fill), opacity(style)]);
          continue;
        }
        const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
        const under = shapes.filter(([area]) => holds(area, x, y));
        const behind = under.reduce((back, [, colour, alpha]) => over(colour, alpha, back), paper);
        const ink = over(parse(style.fill), opacity(style), behind);
        const [low, high] = [luminance(ink), luminance(behind)].sort((a, b) => a - b);
        const ratio = (high + 0.05) / (low + 0.05);
        measured += 1;
        if (ratio < 4.5) found.push(`“${one.textContent}” ${ratio.toFixed(2)}:1`);
      }
    }
    return [measured, found];
  }

  return { violations, clipped, contrast, small };
})();
