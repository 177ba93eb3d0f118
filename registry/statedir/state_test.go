package statedir

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const identity = "https://cluster.example, all namespaces"

// locked is a directory that is this process's to write.
func locked(t *testing.T) *Dir {
	t.Helper()
	d := NewDir(filepath.Join(t.TempDir(), "[new]*"))
	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func header() Header {
	now := time.Now().Round(0)
	return Header{Identity: identity, AsOf: now.Add(-time.Minute), Written: now, Serial: 0xfffffffe}
}

func write1(t *testing.T, d *Dir, h Header, content string) int64 {
	t.Helper()
	size, err := d.Write(h, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func read1(d *Dir, identity string) (h Header, content string, err error) {
	h, err = d.Read(identity, func(r io.Reader) error {
		b, err := io.ReadAll(r)
		content = string(b)
		return err
	})
	return h, content, err
}

// names are the files there.
func names(t *testing.T, d *Dir) (out []string) {
	t.Helper()
	list, err := os.ReadDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteAndRead(t *testing.T) {
	d := locked(t)
	if _, _, err := read1(d, identity); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before there is one: %v", err)
	}
	for _, content := range []string{"", "one", strings.Repeat("many", 1<<20)} {
		want := header()
		size := write1(t, d, want, content)
		h, got, err := read1(d, identity)
		if err != nil || got != content || h.Identity != want.Identity || h.Serial != want.Serial || !h.AsOf.Equal(want.AsOf) || !h.Written.Equal(want.Written) {
			t.Errorf("%+v with %d octets and %v, of %+v with %d", h, len(got), err, want, len(content))
		}
		info, err := os.Stat(d.in(stateName))
		if err != nil || info.Size() != size || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v", info, err)
		}
	}
	if got := names(t, d); !slices.Equal(got, []string{"lock", "state"}) {
		t.Errorf("there are %q", got)
	}
	if info, err := os.Stat(d.path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", info, err)
	}
}

// What is not to be used is said to be so, and put where people can look at it.
func TestUnusable(t *testing.T) {
	const content = "all that is known"
	for _, c := range []struct {
		what   string
		change func(t *testing.T, d *Dir)
		says   string
		known  bool // the header counts
	}{
		{"of another cluster", func(t *testing.T, d *Dir) {
			h := header()
			h.Identity = "elsewhere"
			write1(t, d, h, content)
		}, "it is the state of elsewhere, not of " + identity, true},
		{"too old", func(t *testing.T, d *Dir) {
			h := header()
			h.AsOf = h.AsOf.Add(-time.Hour)
			write1(t, d, h, content)
		}, "ago, and may be 1h0m0s old", true},
		{"empty", func(t *testing.T, d *Dir) { overwrite(t, d, nil) }, "it ends too early", false},
		{"something else", func(t *testing.T, d *Dir) { overwrite(t, d, bytes.Repeat([]byte("x"), 1000)) }, "it is no such file", false},
		{"of another form", func(t *testing.T, d *Dir) {
			b := contentOf(t, d)
			binary.BigEndian.PutUint32(b[len(magic):], version+1)
			overwrite(t, d, b)
		}, "its form has number 2, and 1 is read", false},
		{"cut", func(t *testing.T, d *Dir) {
			b := contentOf(t, d)
			overwrite(t, d, b[:len(b)-1])
		}, "its content has 16 octets and should have 17", false},
		{"longer", func(t *testing.T, d *Dir) { overwrite(t, d, append(contentOf(t, d), 0)) }, "its content has 18 octets and should have 17", false},
		{"damaged", func(t *testing.T, d *Dir) {
			b := contentOf(t, d)
			b[len(b)-1] ^= 1
			overwrite(t, d, b)
		}, "it is damaged: its checksum is wrong", false},
		{"much too long", func(t *testing.T, d *Dir) {
			if err := os.Truncate(d.in(stateName), maxSize+1); err != nil {
				t.Fatal(err)
			}
		}, "octets are more than it may have", false},
		{"a directory", func(t *testing.T, d *Dir) {
			if err := errors.Join(os.Remove(d.in(stateName)), os.Mkdir(d.in(stateName), 0o700)); err != nil {
				t.Fatal(err)
			}
		}, "it is no regular file", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := locked(t)
			d.MaxAge = time.Hour
			write1(t, d, header(), content)
			if err := os.WriteFile(d.in(badName), []byte("an older one"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.change(t, d)
			other := NewDir(d.path) // which has not the right to set it aside
			other.MaxAge = d.MaxAge
			for _, d := range []*Dir{other, d} {
				h, got, err := read1(d, identity)
				if bad := (Unusable{}); !errors.As(err, &bad) || !strings.Contains(bad.Error(), c.says) || got != "" {
					t.Errorf("it read %q, %v", got, err)
				}
				if known := h.Serial == header().Serial; known != c.known {
					t.Errorf("the header is %+v", h)
				}
			}
			if c.what == "a directory" { // which no file's name is given to
				return
			}
			want := []string{"lock", "state.bad"}
			if c.what == "too old" { // for others it may not be
				want = []string{"lock", "state", "state.bad"}
				d.MaxAge = 0
				if _, got, err := read1(d, identity); err != nil || got != content {
					t.Errorf("it read %q, %v", got, err)
				}
				d.MaxAge = time.Hour
			}
			if got := names(t, d); !slices.Equal(got, want) {
				t.Errorf("there are %q", got)
			}
			write1(t, d, header(), content)
			if _, got, err := read1(d, identity); err != nil || got != content {
				t.Errorf("the next one is %q, %v", got, err)
			}
		})
	}
}

// Whichever octet is damaged, nothing of the file is used.
func TestDamageAnywhere(t *testing.T) {
	d := locked(t)
	write1(t, d, header(), "all that is known")
	whole := contentOf(t, d)
	for i := range whole {
		for _, flip := range []byte{1, 0x80, 0xff} {
			b := slices.Clone(whole)
			b[i] ^= flip
			overwrite(t, d, b)
			h, got, err := read1(d, identity)
			if bad := (Unusable{}); !errors.As(err, &bad) || got != "" || h != (Header{}) {
				t.Errorf("octet %d ^ %#x: %+v, %q, %v", i, flip, h, got, err)
			}
		}
		overwrite(t, d, whole[:i])
		if _, got, err := read1(d, identity); !errors.As(err, new(Unusable)) || got != "" {
			t.Errorf("cut at %d: %q, %v", i, got, err)
		}
	}
}

// What the content's reader does not like is not to be used, either.
func TestContentIsRefused(t *testing.T) {
	d := locked(t)
	write1(t, d, header(), "all that is known")
	wrong := errors.New("this is nonsense")
	_, err := d.Read(identity, func(io.Reader) error { return wrong })
	if !errors.As(err, new(Unusable)) || !errors.Is(err, wrong) {
		t.Errorf("it says %v", err)
	}
	if got := names(t, d); !slices.Equal(got, []string{"lock", "state.bad"}) {
		t.Errorf("there are %q", got)
	}
}

// A write that fails leaves the state before, and nothing else.
func TestWriteFails(t *testing.T) {
	d := locked(t)
	write1(t, d, header(), "before")
	full := &os.PathError{Op: "write", Path: "state", Err: syscall.ENOSPC}
	for _, content := range []func(io.Writer) error{
		func(w io.Writer) error {
			return errors.Join(func() error { _, err := w.Write([]byte("half")); return err }(), full)
		},
		func(w io.Writer) error {
			_, err := w.Write(make([]byte, 1)) // and more than there may be, without having it
			w.(*counted).n = maxSize
			if err == nil {
				_, err = w.Write(make([]byte, 1))
			}
			return err
		},
	} {
		if _, err := d.Write(header(), content); err == nil {
			t.Error("there was no error")
		}
		if _, got, err := read1(d, identity); err != nil || got != "before" {
			t.Errorf("there is %q, %v", got, err)
		}
		if got := names(t, d); !slices.Equal(got, []string{"lock", "state"}) {
			t.Errorf("there are %q", got)
		}
	}
	if err := os.WriteFile(d.in("state.123.new"), nil, 0o600); err != nil { // of a write that was ended
		t.Fatal(err)
	}
	write1(t, d, header(), "after")
	if got := names(t, d); !slices.Equal(got, []string{"lock", "state"}) {
		t.Errorf("there are %q", got)
	}
}

// One writes, all read.
func TestLock(t *testing.T) {
	d := locked(t)
	write1(t, d, header(), "one")
	if err := d.Lock(); err != nil {
		t.Errorf("again: %v", err)
	}
	other := NewDir(d.path)
	if err := other.Lock(); !errors.Is(err, ErrBusy) {
		t.Errorf("the lock of another: %v", err)
	}
	if _, err := other.Write(header(), func(io.Writer) error { return nil }); !errors.Is(err, ErrBusy) {
		t.Errorf("a write without the lock: %v", err)
	}
	if _, got, err := read1(other, identity); err != nil || got != "one" {
		t.Errorf("it reads %q, %v", got, err)
	}
	d.Close()
	if err := other.Lock(); err != nil {
		t.Errorf("when the other has ended: %v", err)
	}
	other.Close()
	for _, path := range []string{"/proc/no/such", filepath.Join(d.in(stateName), "below")} {
		if err := NewDir(path).Lock(); err == nil {
			t.Errorf("%s is a directory", path)
		}
	}
}

const envWriter = "EPDNS_TEST_STATE_WRITER"

// TestWriter is the process that TestKilled ends.
func TestWriter(t *testing.T) {
	path := os.Getenv(envWriter)
	if path == "" {
		t.Skip("it is not that process")
	}
	d := NewDir(path)
	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		line := []byte(fmt.Sprintf("%06d\n", n))
		if _, err := d.Write(header(), func(w io.Writer) error {
			for range 1000 + n%500 {
				if _, err := w.Write(line); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("written")
	}
}

// Whenever a writer is killed, there is a whole state, and the next one can write.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	d := NewDir(dir)
	seen := map[string]bool{}
	for i := range 40 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestWriter$", "-test.v")
		cmd.Env = append(os.Environ(), envWriter+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for begun := 0; begun <= i%4; { // it is in the write after as many
			if !lines.Scan() {
				t.Fatalf("it has ended: %v", lines.Err())
			}
			if lines.Text() == "written" {
				begun++
			}
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		cmd.Process.Kill()
		cmd.Wait()
		_, got, err := read1(d, identity)
		if err != nil || len(got) < 7000 || got != strings.Repeat(got[:7], len(got)/7) {
			t.Fatalf("there are %d octets, %v", len(got), err)
		}
		seen[got[:7]] = true
	}
	if len(seen) < 4 {
		t.Errorf("it was killed after %d different writes", len(seen))
	}
	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}
	write1(t, d, header(), "")
	d.Close()
	if got := names(t, d); !slices.Equal(got, []string{"lock", "state"}) {
		t.Errorf("there are %q", got)
	}
}

func contentOf(t *testing.T, d *Dir) []byte {
	t.Helper()
	b, err := os.ReadFile(d.in(stateName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func overwrite(t *testing.T, d *Dir, b []byte) {
	t.Helper()
	if err := os.WriteFile(d.in(stateName), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func FuzzRead(f *testing.F) {
	d := NewDir(f.TempDir())
	if err := d.Lock(); err != nil {
		f.Fatal(err)
	}
	for _, content := range []string{"", "all that is known"} {
		if _, err := d.Write(header(), func(w io.Writer) error { _, err := io.WriteString(w, content); return err }); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(d.in(stateName))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		overwrite(t, d, b)
		h, got, err := read1(d, identity)
		if err == nil && (h.Identity != identity || !bytes.HasSuffix(b, []byte(got))) {
			t.Errorf("%+v with %q", h, got)
		}
	})
}
