"""One page a file. Each has `draw(page)`, which is given what to show; `app` routes to it."""
