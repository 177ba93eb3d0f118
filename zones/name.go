package zones

import (
	"bytes"
	"fmt"
	"strings"
)

// Names are kept in wire form (RFC 1035 section 3.1), lower-cased once (RFC 4343),
// the root label's octet included.

const (
	maxName  = 255 // octets of a name in wire form, RFC 1035 section 2.3.4
	maxLabel = 63
)

// ParseName reads a domain name written as text, with or without the final dot,
// into lower-case wire form. Labels are taken literally; there are no escapes.
// The empty string and "." are the root.
func ParseName(text string) ([]byte, error) {
	rest := strings.TrimSuffix(text, ".")
	wire := make([]byte, 0, len(rest)+2)
	for rest != "" {
		label, next, more := strings.Cut(rest, ".")
		switch {
		case label == "" || more && next == "":
			return nil, fmt.Errorf("name %q has an empty label", text)
		case len(label) > maxLabel:
			return nil, fmt.Errorf("name %q has a label of more than %d octets", text, maxLabel)
		}
		wire = appendLabel(wire, label)
		rest = next
	}
	if wire = append(wire, 0); len(wire) > maxName {
		return nil, fmt.Errorf("name %q has more than %d octets", text, maxName)
	}
	return wire, nil
}

// appendLabel adds one label, lower-cased. It must be one: of 1 to 63 octets.
func appendLabel(dst []byte, label string) []byte {
	if label == "" || len(label) > maxLabel {
		panic(fmt.Sprintf("zones: %q is not a label", label))
	}
	dst = append(dst, byte(len(label)))
	for i := range len(label) {
		dst = append(dst, lower(label[i]))
	}
	return dst
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// nameText writes a wire name as text for people, with the final dot.
func nameText(wire []byte) string {
	if len(wire) <= 1 {
		return "."
	}
	var b strings.Builder
	for len(wire) > 0 && wire[0] != 0 {
		n := int(wire[0])
		b.Write(wire[1 : 1+n])
		b.WriteByte('.')
		wire = wire[1+n:]
	}
	return b.String()
}

// countLabels counts the labels of a wire name, the root not counted.
func countLabels(wire []byte) (n int) {
	for i := 0; wire[i] != 0; i += 1 + int(wire[i]) {
		n++
	}
	return n
}

// nameLen is how many octets the wire name at the start of b takes. It must be
// whole and without pointers.
func nameLen(b []byte) (n int) {
	for b[n] != 0 {
		n += 1 + int(b[n])
	}
	return n + 1
}

// within says whether a wire name is at or below another, label by label.
func within(name, apex []byte) bool {
	off := len(name) - len(apex)
	if off < 0 || !bytes.Equal(name[off:], apex) {
		return false
	}
	i := 0
	for i < off {
		i += 1 + int(name[i])
	}
	return i == off
}
