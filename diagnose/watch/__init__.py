"""`stepscope watch`: tells what changes in the life of findings, on a terminal and to webhooks.

Its tour: `news` reads what is new and holds back what nobody is to be told; `telling` is a notice
as a line, `payloads` as a message (generic, Slack), `alerts` as Alertmanager takes it; `outlet` is
where notices go;
`webhook` delivers, signed, with patience and without ever holding up the rest; `watching` is the
loop, `commands` the command.
"""
