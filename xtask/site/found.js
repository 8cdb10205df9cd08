// How many results the search shows for the query in the address, once there are any.
(async () => {
  for (let wait = 0; wait < 100; wait += 1) {
    const count = document.querySelectorAll("#mdbook-searchresults li").length;
    if (count > 0) return count;
    await new Promise((next) => setTimeout(next, 100));
  }
  return 0;
})();
