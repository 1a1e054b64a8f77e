"""The incident report as one HTML file: opens from a disk, asks nobody for anything, prints.

Its tour: `pictures` draws the charts of a window with the dashboard's own functions as SVG, which
`svg` makes small and safe to embed, each with its numbers as a table; `page` writes the document of
`diagnose.incident` out as HTML, in the style of `sheet`; `command` is `stepscope report`.
"""
