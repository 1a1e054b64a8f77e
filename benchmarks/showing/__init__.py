"""How fast the dashboard shows a log: `visits` in a browser, `building` of charts without one."""
