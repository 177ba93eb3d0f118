package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Publish puts text into its part of the page in a file. Empty text only tries whether that can
// be done: better before a measurement than after it.
func Publish(path, part, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if b, err = replace(b, part, text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if text == "" {
		return nil
	}
	return os.WriteFile(path, b, 0o644)
}

// replace puts text between the marks of a part of a page: the comments "<!-- part: begin" and
// "<!-- part: end". What is outside stays.
func replace(page []byte, part, text string) ([]byte, error) {
	begin, end := []byte("<!-- "+part+": begin"), []byte("<!-- "+part+": end")
	from := bytes.Index(page, begin)
	if from >= 0 {
		if close := bytes.Index(page[from:], []byte("-->\n")); close >= 0 {
			from += close + len("-->\n")
			if to := bytes.Index(page[from:], end); to >= 0 {
				return slices.Concat(page[:from], []byte("\n"+text+"\n"), page[from+to:]), nil
			}
		}
	}
	return nil, errors.New("the page has no comments " + string(begin) + " … --> and " + string(end) + " -->")
}
