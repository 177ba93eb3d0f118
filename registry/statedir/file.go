package statedir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"time"
)

// A file begins with these octets, numbers with the highest first:
//
//	magic     12 octets
//	version    4: of all that follows
//	check      4: CRC-32C of all that follows
//	length     8: of the content
//	asOf       8: Unix nanoseconds
//	written    8
//	serial     4
//	reserved   4: zero
//	identity   2: its length, and it
//	content
const (
	magic = "epdns state\n"

	// version rises when a file of the form before, header or content, would be
	// misread.
	version = 1

	startSize = len(magic) + 4 + 4 // what is not among what is checked
	fixedSize = 8 + 8 + 8 + 4 + 4 + 2
)

// maxSize is of a file that is read or written. A million endpoints take a twentieth.
const maxSize = 1 << 30

// buffered is how much is checked at once.
const buffered = 256 << 10

// Header is what is known of a state without reading it.
type Header struct {
	Identity string    // of what it is a state, less than 64 KiB
	AsOf     time.Time // until when it was known to be right
	Written  time.Time
	Serial   uint32 // the last one given
}

// Unusable says why a file is not to be used.
type Unusable struct{ Err error }

func (u Unusable) Error() string { return u.Err.Error() }

func (u Unusable) Unwrap() error { return u.Err }

func unusable(format string, args ...any) error { return Unusable{fmt.Errorf(format, args...)} }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write fills an empty file.
func write(f *os.File, h Header, content func(io.Writer) error) (size int64, err error) {
	if len(h.Identity) >= 1<<16 {
		return 0, errors.New("the identity is too long")
	}
	fixed := make([]byte, 0, fixedSize+len(h.Identity))
	fixed = append(fixed, make([]byte, 8)...) // the length, when it is known
	fixed = binary.BigEndian.AppendUint64(fixed, uint64(h.AsOf.UnixNano()))
	fixed = binary.BigEndian.AppendUint64(fixed, uint64(h.Written.UnixNano()))
	fixed = binary.BigEndian.AppendUint32(fixed, h.Serial)
	fixed = binary.BigEndian.AppendUint32(fixed, 0)
	fixed = binary.BigEndian.AppendUint16(fixed, uint16(len(h.Identity)))
	fixed = append(fixed, h.Identity...)
	before := int64(startSize + len(fixed))
	if _, err := f.Seek(before, io.SeekStart); err != nil {
		return 0, err
	}
	c := counted{w: f, sum: crc32.New(castagnoli), most: maxSize - before}
	if err := content(&c); err != nil {
		return 0, err
	}
	binary.BigEndian.PutUint64(fixed, uint64(c.n))
	start := make([]byte, 0, before)
	start = append(start, magic...)
	start = binary.BigEndian.AppendUint32(start, version)
	// The content first, since it is known first.
	start = binary.BigEndian.AppendUint32(start, crc32.Update(c.sum.Sum32(), castagnoli, fixed))
	_, err = f.WriteAt(append(start, fixed...), 0)
	return before + c.n, err
}

// counted sums up what is written.
type counted struct {
	w       io.Writer
	sum     hash.Hash32
	n, most int64
}

func (c *counted) Write(p []byte) (int, error) {
	if c.n+int64(len(p)) > c.most {
		return 0, fmt.Errorf("more than %d octets are too much", int64(maxSize))
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.sum.Write(p[:n])
	return n, err
}

// read checks a file, and hands its content to use when it is known to be what was
// written. That means reading it twice, of which the second time is from memory.
func read(f *os.File, use func(Header, io.Reader) error) (h Header, err error) {
	info, err := f.Stat()
	if err != nil {
		return h, err
	}
	if !info.Mode().IsRegular() {
		return h, unusable("it is no regular file")
	}
	if info.Size() > maxSize {
		return h, unusable("%d octets are more than it may have", info.Size())
	}
	start := make([]byte, startSize)
	if err := readFull(f, start); err != nil {
		return h, err
	}
	if string(start[:len(magic)]) != magic {
		return h, unusable("it is no such file")
	}
	if v := binary.BigEndian.Uint32(start[len(magic):]); v != version {
		return h, unusable("its form has number %d, and %d is read", v, version)
	}
	fixed := make([]byte, fixedSize)
	if err := readFull(f, fixed); err != nil {
		return h, err
	}
	length := binary.BigEndian.Uint64(fixed)
	identity := make([]byte, binary.BigEndian.Uint16(fixed[fixedSize-2:]))
	if err := readFull(f, identity); err != nil {
		return h, err
	}
	before := int64(startSize + fixedSize + len(identity))
	if length != uint64(info.Size()-before) {
		return h, unusable("its content has %d octets and should have %d", info.Size()-before, length)
	}
	sum := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(sum, io.LimitReader(f, int64(length)), make([]byte, buffered)); err != nil {
		return h, err
	}
	sum.Write(fixed)
	sum.Write(identity)
	if sum.Sum32() != binary.BigEndian.Uint32(start[startSize-4:]) {
		return h, unusable("it is damaged: its checksum is wrong")
	}
	h = Header{
		Identity: string(identity),
		AsOf:     time.Unix(0, int64(binary.BigEndian.Uint64(fixed[8:]))),
		Written:  time.Unix(0, int64(binary.BigEndian.Uint64(fixed[16:]))),
		Serial:   binary.BigEndian.Uint32(fixed[24:]),
	}
	return h, use(h, io.NewSectionReader(f, before, int64(length)))
}

// readFull reads what an undamaged file has.
func readFull(f *os.File, b []byte) error {
	_, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unusable("it ends too early")
	}
	return err
}

// check says whether a state is of what is asked for.
func (h *Header) check(identity string) error {
	if h.Identity != identity {
		return unusable("it is the state of %s, not of %s", h.Identity, identity)
	}
	return nil
}

// checkAge says whether a state is young enough. One from the future was written before a
// clock was set back: how old it is, nobody knows.
func (h *Header) checkAge(maxAge time.Duration, now time.Time) error {
	if age := now.Sub(h.AsOf); maxAge > 0 && age > maxAge {
		return unusable("it is as of %s, %s ago, and may be %s old",
			h.AsOf.UTC().Format(time.RFC3339), age.Round(time.Second), maxAge)
	}
	return nil
}
