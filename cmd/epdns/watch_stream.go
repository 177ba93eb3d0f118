package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"time"
)

// This file is the form of /watch: server-sent events, as in the HTML standard,
// section 9.2 (https://html.spec.whatwg.org/multipage/server-sent-events.html).
//
//	data: {"time":…,"type":"ADDED",…}       a change
//
//	event: waiting                          at the start, where the server has yet to
//	data:                                   read what exists: all else comes then
//
//	event: services                         how many Services that are watched exist:
//	data: 1                                 behind all that is there at the start, and
//	                                        whenever the number is another
//
//	: alive                           in silent times

// heartbeat is how long a stream is silent at most: less than proxies wait, which
// is a minute for the most part.
const heartbeat = 15 * time.Second

const (
	eventStream   = "text/event-stream"
	eventChange   = "" // the kind that browsers call "message"
	eventServices = "services"
	eventWaiting  = "waiting"
)

// maxEvent is more than a change can be: names have at most 253 octets, a slice
// has at most 100 ports, and what was comes along.
const maxEvent = 1 << 20

// event is a server-sent event.
type event struct{ name, data string }

// appendEvent appends the form of an event. Its data has no line breaks.
func appendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	return append(append(append(dst, "data: "...), data...), "\n\n"...)
}

// eventReader reads a stream. Lines end with LF or CRLF; the standard's CR alone
// is nobody's.
type eventReader struct{ lines *bufio.Scanner }

func newEventReader(r io.Reader) *eventReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxEvent)
	return &eventReader{s}
}

var errLongEvent = errors.New("an event is too long")

// next returns the next event that has data, or io.EOF. An event that the end of
// the stream cuts off is none.
func (r *eventReader) next() (event, error) {
	var name string
	var data []byte
	has := false
	for r.lines.Scan() {
		line := bytes.TrimSuffix(r.lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if has {
				return event{name, string(data)}, nil
			}
			name = ""
			continue
		}
		field, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch field { // a comment's is empty; id and retry are of no use here
		case "event":
			name = value
		case "data":
			if has {
				data = append(data, '\n')
			}
			has = true
			if data = append(data, value...); len(data) > maxEvent {
				return event{}, errLongEvent
			}
		}
	}
	switch err := r.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return event{}, errLongEvent
	case err != nil:
		return event{}, err
	}
	return event{}, io.EOF
}
