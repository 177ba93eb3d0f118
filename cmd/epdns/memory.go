package main

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// This file says how much memory Go may take. Who sets GOGC or GOMEMLIMIT knows better.

// garbageShare is the garbage that there may be, in hundredths of what is kept, once all
// that exists has been read. Go's own is 100. What a change leaves behind is little
// beside a cluster, so that half of that is not collected much more often in seconds,
// and the first list is better read with more room.
const garbageShare = 50

// ballastSize is how much is asked for and never written to, so that it takes no memory. The
// collector takes it for something kept: of a small cluster half of what is kept would be
// collected again and again.
const ballastSize = 8 << 20

// limitGarbage is for when all that exists has been read, and none of it is compiled.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
}

// limitMemory is for the start. It has Go collect its garbage in time where the container,
// or whatever the process is in, would be ended for it. A part of that memory is left for
// what Go does not count: the sockets' and the program's own. What it returns is to be kept
// until the end.
func limitMemory(log *slog.Logger) (ballast []byte) {
	most := memoryLimit(os.DirFS("/"))
	if os.Getenv("GOMEMLIMIT") == "" && most < math.MaxInt64 {
		limit := most / 10 * 9
		debug.SetMemoryLimit(limit)
		log.Info("memory", "limit", most, "GOMEMLIMIT", limit)
	}
	// Go's limit counts the ballast.
	if os.Getenv("GOGC") == "" && debug.SetMemoryLimit(-1) >= 16*ballastSize {
		return make([]byte, ballastSize) // now, while all memory is fresh and need not be cleared
	}
	return nil
}

// unlimited is what cgroups of version 1 have, less a page, where there is no limit.
const unlimited = 1 << 62

// memoryLimit is how many octets the control groups allow that this process is in, of
// either version: the least of its own and those above. It is MaxInt64 where none has a
// limit. In a container the group's path may be that on the host, of which only the last
// part is there, as the root.
func memoryLimit(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	text, _ := fs.ReadFile(root, "proc/self/cgroup") // other systems have none
	for line := range strings.Lines(string(text)) {
		// number:controllers:path, without controllers for version 2
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		dir, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" {
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
		}
		for group = path.Join("/", group); ; group = path.Dir(group) {
			text, _ := fs.ReadFile(root, path.Join(dir, group, file))
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && n > 0 && n < unlimited { // else it is not there, or "max"
				least = min(least, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}
