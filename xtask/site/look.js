// What `cargo xtask site --check` asks every page: what it has, what is missing, and what is too wide.
(async () => {
  await document.fonts.ready;
  const images = [...document.images];
  images.forEach((image) => (image.loading = "eager"));
  await Promise.allSettled(images.map((image) => image.decode()));

  // What sticks out of the window and cannot be scrolled into it.
  const width = document.documentElement.clientWidth;
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const reachable = (element) =>
    element.parentElement && (scrolls(element.parentElement) || reachable(element.parentElement));
  const wide = [...(document.querySelector("main") ?? document.body).querySelectorAll("*")].filter(
    (element) => element.getBoundingClientRect().right > width + 1 && !reachable(element),
  );

  return {
    ids: [...document.querySelectorAll("[id]")].map((element) => element.id),
    links: [...document.querySelectorAll("a[href]")].map((link) => decodeURIComponent(link.href)),
    images: images.filter((image) => image.naturalWidth === 0).map((image) => image.src),
    foreign: performance
      .getEntriesByType("resource")
      .map((entry) => entry.name)
      .filter((name) => !name.startsWith("file:") && !name.startsWith("data:")),
    wide: wide.slice(0, 3).map((element) => element.outerHTML.slice(0, 80)),
  };
})();
