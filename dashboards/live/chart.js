// A chart by uPlot, above it the values at the pointer.

export class Chart {
  /** `above`: what stands over the values. */
  constructor(box, ...above) {
    this.readout = document.createElement('p');
    this.readout.className = 'legend readout';
    this.place = document.createElement('div');
    this.place.className = 'chart';
    this.drawn = '';
    box.append(...above, this.readout, this.place);
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.drawn = ''; this.draw(); });
  }

  size() {
    return {width: this.place.clientWidth || 300, height: Math.max(220, this.place.clientHeight)};
  }

  /** Shows the data, anew if `what` is another. `make(color, axis)`: uPlot's options beside those that all charts have. */
  put(what, data, make) {
    if (what !== this.drawn) {
      this.drawn = what;
      this.plot?.destroy();
      const style = getComputedStyle(document.documentElement);
      const color = name => style.getPropertyValue(name).trim();
      const axis = {stroke: color('--quiet'), grid: {stroke: color('--line'), width: 1}, ticks: {show: false}, font: `11px ${color('--sans')}`};
      this.plot = new uPlot({
        ...this.size(), legend: {show: false}, padding: [8, 28, 0, 0],
        cursor: {y: false, drag: {x: false, y: false}, points: {size: 5}},
        hooks: {setCursor: [u => this.describe(u.cursor.idx ?? undefined)]},
        ...make(color, axis),
      }, data, this.place);
    } else {
      this.plot.setData(data);
    }
    this.describe(this.plot.cursor?.idx ?? undefined);
  }

  /** Of a subclass: all anew. */
  draw() {}

  /** Of a subclass: writes the values at the pointer to `readout`; undefined: it is elsewhere. @param {number | undefined} _at */
  describe(_at) {}
}
