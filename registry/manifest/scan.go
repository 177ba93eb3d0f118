package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// stamp tells without reading whether a file has changed.
type stamp struct {
	size int64
	time time.Time
}

// settling is how old a modification time must be to tell two writes apart: file
// systems round it, to two seconds at worst.
const settling = 2 * time.Second

// young says that a file may have changed since without a trace in its stamp.
func (s stamp) young(now time.Time) bool { return now.Sub(s.time).Abs() < settling }

// scan finds the files and their stamps. It fails as a whole: half a directory
// would look like the deletion of the other half.
func (s *Source) scan() (map[string]stamp, error) {
	found := map[string]stamp{}
	if s.single != "" {
		info, err := fs.Stat(s.fsys, s.single)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, fmt.Errorf("%s is a directory now", s.where)
		}
		found[s.single] = stamp{info.Size(), info.ModTime()}
		return found, nil
	}
	root, err := fs.Stat(s.fsys, ".")
	if err != nil {
		return nil, err
	}
	return found, s.scanDir(".", []fs.FileInfo{root}, found)
}

// scanDir follows symbolic links, but not into one of its own parents.
func (s *Source) scanDir(dir string, parents []fs.FileInfo, found map[string]stamp) error {
	entries, err := fs.ReadDir(s.fsys, dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && dir != "." {
			return nil // deleted while we looked
		}
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if !e.IsDir() && e.Type().IsRegular() && !isManifest(e.Name()) {
			continue // spare the stat
		}
		name := path.Join(dir, e.Name())
		info, err := fs.Stat(s.fsys, name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted, or a link to nowhere
			continue
		case err != nil && isManifest(name):
			found[name] = stamp{} // reading it will say what is wrong
			continue
		case err != nil:
			continue
		}
		if info.Mode().IsRegular() && isManifest(name) {
			found[name] = stamp{info.Size(), info.ModTime()}
		}
		if info.IsDir() && !loops(info, parents) {
			if err := s.scanDir(name, append(parents, info), found); err != nil {
				return err
			}
		}
	}
	return nil
}

func loops(info fs.FileInfo, parents []fs.FileInfo) bool {
	for _, p := range parents {
		if os.SameFile(info, p) {
			return true
		}
	}
	return false
}

func isManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
