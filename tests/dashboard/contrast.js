// Returns every visible text of the page that stands out too little from its ground (WCAG 2.2 AA):
// under 4.5, or under 3 where it is large (24 px, or 18.66 px and bold). Disabled controls and
// canvases are left out: WCAG asks nothing of the former, and the latter hold no text for a browser.
() => {
  const parse = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    if (text.startsWith("color(srgb")) {
      return [...parts.slice(0, 3).map((part) => part * 255), parts[3] ?? 1];
    }
    return [parts[0], parts[1], parts[2], parts[3] ?? 1];
  };
  const over = (top, ground) =>
    [0, 1, 2].map((i) => top[i] * top[3] + ground[i] * (1 - top[3])).concat(1);
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((part) => {
      const c = part / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const groundOf = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers[layers.length - 1][3] === 1) { break; }
    }
    return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255, 1]);
  };
  // A word on a bar of a chart has the last bar drawn below it for its ground.
  const barBelow = (element, box, ground) => {
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    let colour = ground;
    for (const bar of element.closest("svg").querySelectorAll(".mark-rect path")) {
      const at = bar.getBoundingClientRect();
      const isBelow = bar.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING;
      const isIn = at.left <= x && x <= at.right && at.top <= y && y <= at.bottom;
      const style = getComputedStyle(bar);
      if (!isBelow || !isIn || style.fill === "none") { continue; }
      const fill = parse(style.fill);
      fill[3] *= Number(style.fillOpacity) * opacityOf(bar);
      colour = over(fill, colour);
    }
    return colour;
  };
  const opacityOf = (element) => {
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) {
      opacity *= Number(getComputedStyle(at).opacity);
    }
    return opacity;
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const text = node.textContent.trim();
    if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) {
      continue;
    }
    const box = element.getBoundingClientRect();
    // The value over a slider's thumb belongs to the thumb, and is drawn above it, on the page.
    const isOff = element.closest(
      "[disabled], [aria-disabled=true], style, script, canvas, [data-testid=stSliderThumbValue]"
    );
    if (isOff || box.width < 1 || box.height < 1) { continue; }
    const style = getComputedStyle(element);
    const isDrawn = element.closest("svg") !== null;
    const colour = parse(isDrawn && style.fill !== "none" ? style.fill : style.color);
    colour[3] *= opacityOf(element);
    const page = groundOf(element);
    const ground = isDrawn ? barBelow(element, box, page) : page;
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const got = ratio(over(colour, ground), ground);
    // Words of a chart in its marks' colours are labels beside them: graphics, for which 3 is asked.
    if (got < (isLarge || isDrawn ? 3 : 4.5) - 0.005) {
      found.set(text.slice(0, 60), Math.round(got * 100) / 100);
    }
  }
  return Object.fromEntries(found);
}
