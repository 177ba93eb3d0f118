package main

import "errors"

// errReaderGone is why a command ends whose output nobody reads any more.
var errReaderGone = errors.New("nobody reads what is printed")
