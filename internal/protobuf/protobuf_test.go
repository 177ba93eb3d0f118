package protobuf

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// tell writes down the fields of a message: the texts that are in field 1, the numbers
// in field 2, the messages in field 3 and the entries in field 4.
func tell(m Message) string {
	var out []string
	for m.Next() {
		switch m.Field {
		case 1:
			out = append(out, fmt.Sprintf("%q", m.Text()))
		case 2:
			out = append(out, fmt.Sprint(m.Number()))
		case 3:
			out = append(out, "{"+tell(m.Message())+"}")
		case 4:
			key, value := m.Entry()
			out = append(out, key+"="+value)
		default:
			out = append(out, fmt.Sprintf("#%d", m.Field))
		}
	}
	if err := m.Err(); err != nil {
		out = append(out, err.Error())
	}
	return strings.Join(out, " ")
}

func TestMessage(t *testing.T) {
	for _, c := range []struct{ octets, want string }{
		{"", ""},
		{"\x0a\x02hi\x10\x05\x0a\x00", `"hi" 5 ""`},
		{"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "18446744073709551615"},
		{"\x10\x80\x00", "0"},
		{"\x1a\x04\x0a\x02hi\x10\x01", `{"hi"} 1`},
		{"\x1a\x02\x0a\x02\x10\x01", "{field 1 is longer than what it is in: unexpected EOF} 1"},
		{"\x22\x06\x0a\x01k\x12\x01v", "k=v"},
		{"\x22\x06\x12\x01v\x0a\x01k", "k=v"},
		{"\x22\x00", "="},
		{"\x2912345678\x2d1234\x10\x01", "#5 #5 1"},
		{"\x2b\x33\x08\x07\x34\x0a\x01x\x2c\x10\x01", "#5 1"}, // a group in a group
		{"\x0a\x05hi", "field 1 is longer than what it is in: unexpected EOF"},
		{"\x10", "after field 2: unexpected EOF"},
		{"\x29123", "field 5 is longer than what it is in: unexpected EOF"},
		{"\x2b\x08\x01", "after field 5: unexpected EOF"},
		{"\x2c", "field 5 is of wire type 4"},
		{"\x0e", "field 1 is of wire type 6"},
		{"\x00\x01", "field number 0"},
		{"\x08\x01\x10\x01", `"" field 1 is of wire type 0`},
		{"\x12\x01x\x10\x01", "0 field 2 is of wire type 2"},
		{"\x22\x02\x08\x01", "= field 4: entry of a map: field 1 is of wire type 0"},
		{"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "after field 2: a number has no end"},
	} {
		if got := tell(Read([]byte(c.octets))); got != c.want {
			t.Errorf("%q: %s, want %s", c.octets, got, c.want)
		}
	}
}

// Where octets are missing, the error says so to errors.Is.
func TestMessageCutShort(t *testing.T) {
	const whole = "\x0a\x02hi"
	for n := 1; n < len(whole); n++ {
		m := Read([]byte(whole[:n]))
		for m.Next() {
		}
		if !errors.Is(m.Err(), io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", whole[:n], m.Err())
		}
	}
}
