// Charts with uPlot in the page's colours.
"use strict";

const Charts = (() => {
  const drawn = new Map(), redraw = new Map(); // by the element that contains the chart

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function axis(label, values) {
    return { label, stroke: colour("grey"), grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false }, size: 40, labelSize: 18, labelGap: -4, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", values };
  }

  // value in the legend: under the cursor, or the last one without a cursor
  const last = (show) => (plot, value, row, at) => show(at ?? plot.data[0].length - 1, plot.data[row]);
  const thousands = (at, column) => Math.round(column[at]).toLocaleString("en");
  const digits = (at, column) => column[at].toFixed(2);

  const short = (plot, values) => values.map((value) => (value === null ? "" : value.toLocaleString("en")));

  function put(target, options, columns) {
    drawn.get(target)?.destroy();
    target.replaceChildren();
    const width = Math.min(720, target.parentElement.clientWidth);
    drawn.set(target, new uPlot({ width, ...options }, columns, target));
  }

  // Intervals with one hardest comparison; those shorter than 1/50 of the range are merged into the previous.
  function stretches(samples, weakest) {
    const least = (samples[samples.length - 1] - samples[0]) / 50, found = [];
    for (let start = 0, at = 1; at <= weakest.length; at += 1) {
      if (at < weakest.length && weakest[at] === weakest[start]) continue;
      const from = samples[start], to = samples[Math.min(at, samples.length - 1)], before = found[found.length - 1];
      if (before && (before.name === weakest[start] || to - from < least)) before.to = to;
      else found.push({ from, to, name: weakest[start] });
      start = at;
    }
    return found;
  }

  // The number and name of a comparison where they fit, otherwise its number; the page lists all names.
  function fitting(ctx, number, name, room) {
    const whole = `${number} ${name}`;
    if (ctx.measureText(whole).width <= room) return whole;
    return ctx.measureText(`${number}`).width <= room ? `${number}` : "";
  }

  // Draws the names of the intervals above the curve.
  function strip(names, weakest) {
    return (plot) => {
      const { ctx, bbox } = plot, ratio = devicePixelRatio, top = bbox.top - 24 * ratio;
      ctx.save();
      ctx.font = `${12 * ratio}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      stretches(plot.data[0], weakest).forEach(({ from, to, name }, place) => {
        const left = plot.valToPos(from, "x", true), right = plot.valToPos(to, "x", true);
        ctx.fillStyle = colour(place % 2 ? "rule" : "band");
        ctx.fillRect(left, top, Math.max(right - left - 1, 1), 18 * ratio);
        ctx.fillStyle = colour("ink");
        ctx.fillText(fitting(ctx, name + 1, names[name], right - left - 8 * ratio), left + 5 * ratio, top + 9 * ratio);
      });
      ctx.restore();
    };
  }

  function evidence() {
    const target = document.getElementById("evidence"), source = document.getElementById("evidence-data");
    if (!target || !source) return;
    redraw.set(target, evidence);
    const { samples, evidence: level, needed, weakest, names } = JSON.parse(source.dataset.columns);
    const most = Math.max(...needed, ...level), least = Math.max(Math.min(0, ...level), -0.5 * Math.max(...needed));
    put(target, {
      height: 300, padding: [34, 24, 0, 0],
      scales: { x: { time: false }, y: { range: [least, most * 1.1] } },
      axes: [axis("samples", short), axis("evidence (nats)")],
      series: [
        { label: "after samples", value: last(thousands) },
        { label: "evidence", stroke: colour("blue"), width: 2, value: last((at) => level[at].toFixed(2)) },
        { label: "needed", stroke: colour("orange"), width: 2, dash: [6, 4], points: { show: false }, value: last(digits) },
        { label: "hardest comparison", paths: () => null, points: { show: false }, scale: "name", value: last((at) => names[weakest[at]]) },
      ],
      hooks: { draw: [strip(names, weakest)] },
    }, [samples, level.map((value) => Math.max(value, least)), needed, weakest]);
  }

  function ended(target, points, bound) {
    redraw.set(target, () => ended(target, points, bound));
    const line = (plot) => {
      if (!(bound > 0)) return;
      const { ctx, bbox } = plot, x = plot.valToPos(bound, "x", true);
      ctx.save();
      ctx.strokeStyle = colour("orange");
      ctx.lineWidth = 2 * devicePixelRatio;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.restore();
    };
    put(target, {
      height: 280, padding: [12, 24, 0, 0], scales: { x: { time: false, range: (plot, low, high) => [0, high * 1.05] }, y: { range: [0, 100] } },
      axes: [axis("samples", short), axis("% of runs ended")],
      series: [
        { label: "by samples", value: last(thousands) },
        { label: "% ended", stroke: colour("blue"), width: 2, points: { show: true, size: 7, fill: colour("blue") }, value: last((at, column) => column[at].toFixed(0)) },
      ],
      hooks: { draw: [line] },
    }, [points.map((point) => point[0]), points.map((point) => point[1])]);
  }

  // Redraws for another width or colour scheme; removes charts that are no longer on the page.
  function again() {
    for (const [target, draw] of redraw) {
      if (target.isConnected) draw();
      else redraw.delete(target);
    }
  }

  return { evidence, ended, again };
})();
