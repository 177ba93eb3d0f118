package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/cache"
)

// This file reads the answer to a LIST as it comes. client-go would read it whole,
// decode it whole and have every object until the last of them is stored.

// listReader reads one answer.
type listReader struct {
	kind *kind
	keep cache.TransformFunc // what is kept of an API object; it must be a runtime.Object
	each func(runtime.Object)
	meta metav1.ListMeta
	n    int    // items so far
	buf  []byte // of the item in protobuf that is being read
}

// protobufMark is what an answer in protobuf begins with, before a runtime.Unknown.
var protobufMark = []byte("k8s\x00")

// readList returns a list of what is kept of each item: what keep makes of an API object,
// or a digest where the kind has a decoder for the octets that came. came is told how many
// more have come, now and then.
func readList(body io.Reader, k *kind, keep cache.TransformFunc, came func(n int)) (runtime.Object, error) {
	const often = 256
	out := &internalversion.List{}
	var err error
	out.ListMeta, err = readItems(body, k, keep, func(o runtime.Object) {
		if out.Items = append(out.Items, o); len(out.Items)%often == 0 {
			came(often)
		}
	})
	if err != nil {
		return nil, err
	}
	came(len(out.Items) % often)
	return out, nil
}

// readItems calls each for what is kept of each item, and returns what is said of the list.
func readItems(body io.Reader, k *kind, keep cache.TransformFunc, each func(runtime.Object)) (metav1.ListMeta, error) {
	l := &listReader{kind: k, keep: keep, each: each}
	// Items have a few kilobytes; the body comes in frames of 16.
	in := bufio.NewReaderSize(body, 32<<10)
	read := l.json
	if mark, err := in.Peek(len(protobufMark)); err == nil && bytes.Equal(mark, protobufMark) {
		in.Discard(len(mark))
		read = l.protobuf
	}
	kind, err := read(in)
	switch {
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // it had not come to its end
	case err == nil && kind != k.name+"List":
		err = fmt.Errorf("its kind is %q, not %q", kind, k.name+"List")
	}
	if err != nil {
		return l.meta, fmt.Errorf("reading a list of %ss: %w", k.name, err)
	}
	return l.meta, nil
}

// item takes one item from its wire form, which is valid during the call.
func (l *listReader) item(decode func(o runtime.Object) error) error {
	o := l.kind.example.DeepCopyObject()
	if err := decode(o); err != nil {
		return fmt.Errorf("items[%d]: %w", l.n, err)
	}
	kept, err := l.keep(o)
	if err != nil {
		return fmt.Errorf("items[%d]: %w", l.n, err)
	}
	l.take(kept.(runtime.Object))
	return nil
}

func (l *listReader) take(o runtime.Object) {
	l.n++
	l.each(o)
}

// unmarshaler is what all API types are.
type unmarshaler interface{ Unmarshal([]byte) error }

// Fields of runtime.Unknown and of all lists.
const (
	unknownTypeMeta, unknownRaw = 1, 2
	listMeta, listItems         = 1, 2
)

func (l *listReader) protobuf(in *bufio.Reader) (kind string, err error) {
	var what runtime.TypeMeta
	found := false
	err = fields(in, -1, func(field uint64, size int64) error {
		switch field {
		case unknownTypeMeta:
			return l.message(in, size, &what)
		case unknownRaw:
			found = true
			return fields(in, size, func(field uint64, size int64) error {
				switch field {
				case listMeta:
					return l.message(in, size, &l.meta)
				case listItems:
					if l.kind.decode != nil {
						return l.decodeItem(in, size)
					}
					return l.item(func(o runtime.Object) error { return l.message(in, size, o.(unmarshaler)) })
				}
				return skip(in, size)
			})
		}
		return skip(in, size)
	})
	if err == nil && !found {
		err = io.ErrUnexpectedEOF
	}
	return what.Kind, err
}

// fields calls each for the fields of a protobuf message of some size, or where that is
// negative of all that there is. Each must take the octets of its field. Of what is
// read here all fields have a length; others are nothing that we know.
func fields(in *bufio.Reader, size int64, each func(field uint64, size int64) error) error {
	for size != 0 {
		tag, n, err := uvarint(in)
		if err == io.EOF && size < 0 {
			return nil
		} else if err != nil {
			return err
		}
		const lengthDelimited = 2
		if tag&7 != lengthDelimited {
			return fmt.Errorf("field %d is of wire type %d", tag>>3, tag&7)
		}
		length, m, err := uvarint(in)
		if err != nil {
			return noEOF(err)
		}
		if size >= 0 {
			if size -= n + m; size < 0 || length > uint64(size) {
				return fmt.Errorf("field %d is longer than what it is in", tag>>3)
			}
			size -= int64(length)
		}
		if length > maxField {
			return fmt.Errorf("field %d has %d octets", tag>>3, length)
		}
		if err := each(tag>>3, int64(length)); err != nil {
			return noEOF(err)
		}
	}
	return nil
}

// maxField is more octets than any list has.
const maxField = 1 << 40

// uvarint reads a number and tells its length.
func uvarint(in *bufio.Reader) (v uint64, n int64, err error) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			if n > 0 {
				err = noEOF(err)
			}
			return 0, n, err
		}
		v |= uint64(b&0x7f) << (7 * n)
		if n++; b < 0x80 {
			return v, n, nil
		}
		if n == binary.MaxVarintLen64 {
			return 0, n, errors.New("a number has no end")
		}
	}
}

// noEOF is for an end where more was to come.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func skip(in *bufio.Reader, size int64) error {
	_, err := io.CopyN(io.Discard, in, size)
	return err
}

// maxMessage is how large one object may be. The API server takes none of more than
// three megabytes.
const maxMessage = 64 << 20

// octets reads some octets into buf, where they are until the next ones come.
func (l *listReader) octets(in *bufio.Reader, size int64) ([]byte, error) {
	if size > maxMessage {
		return nil, fmt.Errorf("an object of %d octets", size)
	}
	if int64(cap(l.buf)) < size {
		l.buf = make([]byte, size)
	}
	l.buf = l.buf[:size]
	_, err := io.ReadFull(in, l.buf)
	return l.buf, err
}

// message reads a message of some size. Decoded objects have no part of buf.
func (l *listReader) message(in *bufio.Reader, size int64, to unmarshaler) error {
	octets, err := l.octets(in, size)
	if err != nil {
		return err
	}
	return to.Unmarshal(octets)
}

// decodeItem reads an item of a kind that has a decoder of its own.
func (l *listReader) decodeItem(in *bufio.Reader, size int64) error {
	octets, err := l.octets(in, size)
	if err != nil {
		return fmt.Errorf("items[%d]: %w", l.n, err)
	}
	d, err := l.kind.decode(octets)
	if err != nil {
		return fmt.Errorf("items[%d]: %w", l.n, err)
	}
	l.take(digest{d, readVersion(octets)})
	return nil
}

func (l *listReader) json(in *bufio.Reader) (kind string, err error) {
	d := json.NewDecoder(in)
	if err := delim(d, '{'); err != nil {
		return "", err
	}
	var raw json.RawMessage
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "kind":
			err = d.Decode(&kind)
		case "metadata":
			err = d.Decode(&l.meta)
		case "items":
			err = l.jsonItems(d)
		default:
			err = d.Decode(&raw)
		}
		if err != nil {
			return "", err
		}
	}
	return kind, delim(d, '}')
}

func (l *listReader) jsonItems(d *json.Decoder) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil // of an empty list
	case t != json.Delim('['):
		return fmt.Errorf("items begin with %v", t)
	}
	var raw json.RawMessage
	for d.More() {
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := l.item(func(o runtime.Object) error { return utiljson.Unmarshal(raw, o) }); err != nil {
			return err
		}
	}
	return delim(d, ']')
}

// delim reads one of the four brackets.
func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err == nil && t != want {
		err = fmt.Errorf("%v where there should be %v", t, want)
	}
	return err
}
