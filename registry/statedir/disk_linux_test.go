package statedir

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// envDisk says that the process has mounts of its own.
const envDisk = "EPDNS_TEST_STATE_DISK"

// A disk that is full, or can't be written to any more, leaves the state before, and is
// used again when it can be.
func TestDisk(t *testing.T) {
	if os.Getenv(envDisk) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDisk$", "-test.v")
		cmd.Env = append(os.Environ(), envDisk+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, syscall.EPERM):
			t.Skip("no right to have mounts of its own")
		case err != nil:
			t.Errorf("%v\n%s", err, out)
		case strings.Contains(string(out), "--- SKIP"):
			t.Skipf("%s", out)
		}
		return
	}
	dir := t.TempDir()
	mount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size=256k"); err != nil {
			t.Skipf("mount: %v", err)
		}
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Skipf("make mounts private: %v", err)
	}
	mount(0)
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	d := NewDir(dir)
	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	write1(t, d, header(), "before")
	big := func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return err
	}
	if _, err := d.Write(header(), big); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if _, got, err := read1(d, identity); err != nil || got != "before" {
		t.Errorf("there is %q, %v", got, err)
	}
	if got := names(t, d); !slices.Equal(got, []string{"lock", "state"}) {
		t.Errorf("there are %q", got)
	}
	d.Close()
	mount(syscall.MS_REMOUNT | syscall.MS_RDONLY)
	if err := d.Lock(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("the lock of a disk that is read only: %v", err)
	}
	if _, got, err := read1(d, identity); err != nil || got != "before" {
		t.Errorf("there is %q, %v", got, err)
	}
	mount(syscall.MS_REMOUNT)
	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}
	write1(t, d, header(), "after")
	if _, got, err := read1(d, identity); err != nil || got != "after" {
		t.Errorf("there is %q, %v", got, err)
	}
}
