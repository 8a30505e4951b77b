// Every scenario by its name. A name says what the service does, and is the name of the test.
"use strict";
module.exports = Object.assign(
  {},
  ...["sending", "receiving", "deferred", "deleting", "sessions", "topics", "failures"].map((part) => require(`./${part}`)),
);
