package manifest

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// document is one document of a file, as JSON or with the reason why it is none.
type document struct {
	place place
	json  []byte
	err   error

	text  []byte // as it is written
	first int    // the line of the file where text begins
	root  *yamlv3.Node
}

// written is the document as it is written, or nil where it cannot be taken apart so.
// Lines are those of the file less first-1.
func (d *document) written() *yamlv3.Node {
	if d.root == nil {
		d.root = &yamlv3.Node{}
		if yamlv3.Unmarshal(d.text, d.root) != nil {
			d.root = &yamlv3.Node{}
		}
	}
	if len(d.root.Content) == 0 {
		return nil
	}
	return d.root.Content[0]
}

// split cuts a file into documents. Those that hold nothing but comments are not
// counted.
func split(name string, data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	named := strings.HasSuffix(name, ".json")
	if named || bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		// What begins with a brace may be YAML's flow style as well.
		if docs, ok := splitJSON(data); ok || named {
			return docs
		}
	}
	return splitYAML(data)
}

// splitJSON reads JSON values, one after the other.
func splitJSON(data []byte) (docs []document, ok bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		begin := d.InputOffset()
		begin += int64(len(data[begin:]) - len(bytes.TrimLeft(data[begin:], " \t\r\n")))
		var raw json.RawMessage
		err := d.Decode(&raw)
		if err == io.EOF {
			return docs, true
		}
		at := line(data, begin)
		docs = append(docs, document{place: place{document: n, line: at}, json: raw, err: err, text: raw, first: at})
		if err != nil {
			return docs, false
		}
	}
}

func line(data []byte, offset int64) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// splitYAML cuts at the document markers, which stand at the beginning of a line
// whatever is around them (YAML 1.2.2, 9.1.2).
func splitYAML(data []byte) (docs []document) {
	var (
		text    []byte // of the document so far
		first   int    // its first line
		content int    // its first line that says something, 0: none yet
		head    bool   // it begins with directives
	)
	begin := func(line int) { text, first, content, head = nil, line, 0, false }
	end := func() {
		if content > 0 {
			docs = append(docs, convert(text, first, place{document: len(docs) + 1, line: content}))
		}
	}
	begin(1)
	n := 0
	for l := range bytes.Lines(data) {
		n++
		rest, marker := cutMarker(l, "---")
		if marker {
			if content > 0 || !head { // else the marker ends the directives
				end()
				begin(n)
			}
		} else if _, last := cutMarker(l, "..."); last {
			end()
			begin(n + 1)
			continue
		} else {
			rest = bytes.TrimSpace(l)
		}
		switch {
		case len(rest) == 0 || rest[0] == '#':
		case content == 0 && l[0] == '%':
			head = true
		case content == 0:
			content = n
		}
		text = append(text, l...)
	}
	end()
	return docs
}

// cutMarker returns what follows a document marker on its line.
func cutMarker(l []byte, marker string) (rest []byte, ok bool) {
	if !bytes.HasPrefix(l, []byte(marker)) {
		return nil, false
	}
	rest = l[len(marker):]
	if len(rest) > 0 && !strings.ContainsRune(" \t\r\n", rune(rest[0])) {
		return nil, false
	}
	return bytes.TrimSpace(rest), true
}

// convert makes JSON of a YAML document that begins at line first. The error's line
// is that of the file.
func convert(text []byte, first int, at place) document {
	doc := document{place: at, text: text, first: first}
	if doc.json, doc.err = yaml.YAMLToJSON(text); doc.err == nil {
		return doc
	}
	// The parser counts from where it begins: let it begin where the file does.
	padded := append(bytes.Repeat([]byte("\n"), first-1), text...)
	if _, err := yaml.YAMLToJSON(padded); err != nil {
		doc.err = err
	}
	doc.err = trimmedError{doc.err}
	return doc
}

// trimmedError leaves out what the library says of itself.
type trimmedError struct{ error }

func (e trimmedError) Error() string {
	return strings.TrimPrefix(e.error.Error(), "error converting YAML to JSON: ")
}
func (e trimmedError) Unwrap() error { return e.error }
