// Package protobuf reads messages in the wire format of Protocol Buffers, of which the
// caller knows the fields. It makes no copy of anything, and what it is not asked for
// costs no more than to step over it.
package protobuf

import (
	"fmt"
	"io"
	"unsafe"
)

// Message reads the fields of a message in the order in which they come:
//
//	for m.Next() {
//		switch m.Field {
//		case 1:
//			name = m.Text()
//		case 2:
//			for inner := m.Message(); inner.Next(); { … }
//		}
//	}
//	return m.Err()
//
// Whatever the octets are, it reads them to an end, and takes for well-formed what the
// generated code of the API types does.
type Message struct {
	// Field is the number of the field that Next has read.
	Field int32

	wire   wire
	number uint64
	from   int // where its octets begin
	at     int // where the next field does
	octets []byte
	err    error
}

// wire is how a value is written. Groups are history, but still have to be stepped over.
type wire uint8

const (
	wireNumber     wire = 0
	wireFixed64    wire = 1
	wireOctets     wire = 2
	wireGroup      wire = 3
	wireEndOfGroup wire = 4
	wireFixed32    wire = 5
)

// Read returns a reader of the message that octets are. They must not change while what
// Octets and Text return is in use.
func Read(octets []byte) Message { return Message{octets: octets} }

// Next reads a field and says whether there was one.
func (m *Message) Next() bool {
	rest := m.octets[m.at:]
	if len(rest) == 0 {
		return false
	}
	// Most fields have a low number and few octets: tag and length are one octet each.
	if len(rest) >= 2 && rest[0] >= 1<<3 && rest[0]&0x87 == byte(wireOctets) && rest[1] < 0x80 && int(rest[1]) <= len(rest)-2 {
		m.Field, m.wire = int32(rest[0]>>3), wireOctets
		m.from = m.at + 2
		m.at = m.from + int(rest[1])
		return true
	}
	tag := m.varint()
	m.Field = int32(tag >> 3)
	if m.Field <= 0 {
		m.fail(fmt.Errorf("field number %d", m.Field))
		return false
	}
	m.value(wire(tag & 7))
	return m.err == nil
}

// Err says why Next found no more fields: nil at the end of the message.
func (m *Message) Err() error { return m.err }

// Number is the value of a field that is a number of any kind, or a truth value. Like
// the other methods that return values, it makes Err one of a field of another type.
func (m *Message) Number() uint64 {
	m.is(wireNumber)
	return m.number
}

// Octets is the value of a field that has a length. It is a part of the message.
func (m *Message) Octets() []byte {
	m.is(wireOctets)
	return m.octets[m.from:m.at:m.at]
}

// Text is Octets as a text, which changes when they do: clone what is kept.
func (m *Message) Text() string {
	b := m.Octets()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Message is Octets as a message, which has an Err of its own.
func (m *Message) Message() Message { return Read(m.Octets()) }

// Entry is Octets as an entry of a map of texts.
func (m *Message) Entry() (key, value string) {
	e := m.Message()
	for e.Next() {
		switch e.Field {
		case 1:
			key = e.Text()
		case 2:
			value = e.Text()
		}
	}
	if err := e.Err(); err != nil {
		m.fail(fmt.Errorf("field %d: entry of a map: %w", m.Field, err))
	}
	return key, value
}

// is makes nothing of a value that is not of the wire type.
func (m *Message) is(w wire) {
	if m.wire != w {
		m.mistyped()
	}
}

func (m *Message) mistyped() { m.fail(fmt.Errorf("field %d is of wire type %d", m.Field, m.wire)) }

// value reads a value of a wire type.
func (m *Message) value(w wire) {
	switch m.wire = w; w {
	case wireNumber:
		m.number = m.varint()
	case wireOctets:
		m.step(m.varint())
	case wireFixed64:
		m.step(8)
	case wireFixed32:
		m.step(4)
	case wireGroup:
		for depth := 1; depth > 0 && m.err == nil; {
			switch w := wire(m.varint() & 7); w {
			case wireGroup:
				depth++
			case wireEndOfGroup:
				depth--
			default:
				m.value(w)
			}
		}
		m.wire = wireGroup
	default:
		m.mistyped()
	}
}

// step goes over the octets of a value.
func (m *Message) step(n uint64) {
	if m.from = m.at; n > uint64(len(m.octets)-m.at) {
		m.fail(fmt.Errorf("field %d is longer than what it is in: %w", m.Field, io.ErrUnexpectedEOF))
		return
	}
	m.at += int(n)
}

func (m *Message) varint() uint64 {
	if b := m.octets[m.at:]; len(b) > 0 && b[0] < 0x80 {
		m.at++
		return uint64(b[0])
	}
	return m.longVarint()
}

func (m *Message) longVarint() (v uint64) {
	const longest = 10 // octets, of which the last is one bit
	for i, b := range m.octets[m.at:] {
		if i == longest {
			m.fail(fmt.Errorf("after field %d: a number has no end", m.Field))
			return 0
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			m.at += i + 1
			return v
		}
	}
	m.fail(fmt.Errorf("after field %d: %w", m.Field, io.ErrUnexpectedEOF))
	return 0
}

// fail ends the reading. The first error counts.
func (m *Message) fail(err error) {
	if m.err == nil {
		m.err = err
	}
	m.octets, m.from, m.at, m.number = nil, 0, 0, 0
}
