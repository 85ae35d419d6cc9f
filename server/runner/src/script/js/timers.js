// node:timers.
"use strict";
const timers = require("piw:timers");
module.exports = { ...timers };
