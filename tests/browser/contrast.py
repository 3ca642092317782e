"""WCAG 2.1's contrast, measured on what the browser really shows."""

# Every visible text with a ratio below what WCAG AA asks: 4.5, or 3 for large text.
TOO_FAINT = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const channel = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((value) => channel(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
      if (color[3] > 0) throw new Error("half transparent: " + at.tagName);
    }
    return [255, 255, 255];
  };
  const found = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    const text = node.textContent.trim();
    if (!text || !element.checkVisibility()) continue;
    if (element.closest(".hidden, .skip, option")) continue;
    seen++;
    const shades = [luminance(parse(style.color)), luminance(ground(element))];
    const ratio = (Math.max(...shades) + 0.05) / (Math.min(...shades) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const where = `${element.tagName}.${element.className}: ${text.slice(0, 40)}`;
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${where}`);
  }
  return { seen, found };
}"""
