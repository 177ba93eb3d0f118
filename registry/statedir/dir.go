package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Dir is a directory with a state. It belongs to one goroutine.
type Dir struct {
	path string
	lock *os.File // nil while it is another process's

	// MaxAge is how old a state may be that is read; 0 is any age.
	MaxAge time.Duration
}

// Names in a Dir.
const (
	stateName = "state"
	badName   = "state.bad"
	lockName  = "lock"
	tempName  = "state.*.new" // as os.CreateTemp takes it
)

// ErrBusy says that another process writes to a directory.
var ErrBusy = errors.New("another process writes to it")

// NewDir is of a directory, which need not exist. It does nothing yet.
func NewDir(path string) *Dir { return &Dir{path: path} }

func (d *Dir) String() string { return d.path }

// Lock makes this process the one that writes, until Close. It makes the directory, if
// there is none but one above it. With ErrBusy another process is. It may be called again.
func (d *Dir) Lock() error {
	if d.lock != nil {
		return nil
	}
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(d.in(lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return err
	}
	d.lock = f
	return nil
}

// Close lets another process write.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	f := d.lock
	d.lock = nil
	return f.Close()
}

func (d *Dir) in(name string) string { return filepath.Join(d.path, name) }

// Write puts a state in the place of the one before. content writes it, in pieces that are
// better not small. It returns the size of the file. Where there is an error, the state
// before is still there. The directory has to be locked.
func (d *Dir) Write(h Header, content func(io.Writer) error) (size int64, err error) {
	if d.lock == nil {
		return 0, ErrBusy
	}
	d.sweep()
	f, err := os.CreateTemp(d.path, tempName) // for the owner alone
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if size, err = write(f, h, content); err != nil {
		return 0, fmt.Errorf("write %s: %w", f.Name(), err)
	}
	if err = f.Sync(); err != nil {
		return 0, err
	}
	if err = f.Close(); err != nil {
		return 0, err
	}
	if err = os.Rename(f.Name(), d.in(stateName)); err != nil {
		return 0, err
	}
	// The name is there for all who look. Only after a crash of the machine could it be
	// the old one's, and that is a state, too.
	return size, syncDir(d.path)
}

// sweep removes what interrupted writes have left.
func (d *Dir) sweep() {
	left, _ := filepath.Glob(filepath.Join(escape(d.path), tempName))
	for _, path := range left {
		os.Remove(path)
	}
}

// escape has a path mean itself in a pattern.
func escape(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Read reads the state of what identity names, as far as content reads it: all of it, or
// it has to return an error. It returns fs.ErrNotExist where there is none, and Unusable
// where there is one that is not to be used: that is then set aside, if the directory is
// locked, unless it is only too old: whoever needs it may say that it is not. The Header is
// right also where the state is only too old or of something else.
func (d *Dir) Read(identity string, content func(io.Reader) error) (Header, error) {
	f, err := os.Open(d.in(stateName))
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	tooOld := false
	h, err := read(f, func(h Header, r io.Reader) error {
		if err := h.check(identity); err != nil {
			return err
		}
		if err := h.checkAge(d.MaxAge, time.Now()); err != nil {
			tooOld = true
			return err
		}
		if err := content(r); err != nil {
			return unusable("it does not hold what it should: %w", err)
		}
		return nil
	})
	if bad := (Unusable{}); errors.As(err, &bad) && !tooOld && d.lock != nil {
		err = errors.Join(err, os.Rename(d.in(stateName), d.in(badName)))
	}
	return h, err
}
