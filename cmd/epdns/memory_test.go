package main

import (
	"io"
	"log/slog"
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		what  string
		files map[string]string
		want  int64
	}{
		{"no control groups", nil, math.MaxInt64},
		{"a container, version 2", map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "536870912\n",
		}, 536870912},
		{"no limit, version 2", map[string]string{
			"proc/self/cgroup":           "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "max\n",
		}, math.MaxInt64},
		{"the least of several", map[string]string{
			"proc/self/cgroup":             "0::/a/b/c\n",
			"sys/fs/cgroup/a/memory.max":   "2000\n",
			"sys/fs/cgroup/a/b/memory.max": "1000\n",
			"sys/fs/cgroup/x/memory.max":   "10\n",
		}, 1000},
		{"outside the root that is seen", map[string]string{
			"proc/self/cgroup":           "0::/../../x\n",
			"sys/fs/cgroup/x/memory.max": "700\n",
		}, 700},
		{"a container, version 1, with the host's path", map[string]string{
			"proc/self/cgroup":                           "9:pids:/kubepods/pod1/c1\n5:memory,hugetlb:/kubepods/pod1/c1\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n",
		}, 134217728},
		{"no limit, version 1", map[string]string{
			"proc/self/cgroup":                           "5:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, math.MaxInt64},
		{"nonsense", map[string]string{
			"proc/self/cgroup":         "what\n0::\n:::\n",
			"sys/fs/cgroup/memory.max": "-1\n",
		}, math.MaxInt64},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memoryLimit(root); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// What the environment says is left as it is.
func TestMemoryOfTheEnvironment(t *testing.T) {
	percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(1<<40)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	t.Setenv("GOGC", "77")
	t.Setenv("GOMEMLIMIT", "1TiB")
	limitGarbage()
	limitMemory(quiet)
	if p, l := debug.SetGCPercent(77), debug.SetMemoryLimit(-1); p != 77 || l != 1<<40 {
		t.Errorf("GOGC is %d and GOMEMLIMIT %d", p, l)
	}
	t.Setenv("GOGC", "")
	limitGarbage()
	if p := debug.SetGCPercent(77); p != garbageShare {
		t.Errorf("GOGC is %d, want %d", p, garbageShare)
	}
}
