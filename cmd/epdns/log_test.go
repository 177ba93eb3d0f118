package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// What client-go says is a line of our log, and the level of the log holds for it, too.
func TestClientsLinesAreInTheLog(t *testing.T) {
	var out bytes.Buffer
	f := logFlags{level: "warn", format: "json"}
	log, err := f.logger(&out)
	if err != nil {
		t.Fatal(err)
	}
	joinLogs(log)
	defer klog.ClearLogger()
	klog.InfoS("all is well")
	klog.ErrorS(errors.New("odd"), "something is not", "what", "it")
	klog.Flush()
	if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, `"level":"ERROR","msg":"something is not","from":"client-go"`) || !strings.Contains(s, `"what":"it"`) {
		t.Errorf("the log is\n%s", s)
	}
	out.Reset()
	f.at.Set(slog.LevelInfo)
	klog.InfoS("all is well")
	if !strings.Contains(out.String(), "all is well") {
		t.Errorf("with another level, the log is %q", out.String())
	}
}
