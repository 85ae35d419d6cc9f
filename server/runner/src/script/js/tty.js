// node:tty: nothing is a terminal.
"use strict";
module.exports = { isatty: () => false };
