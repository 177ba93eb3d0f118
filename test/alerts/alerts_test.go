// Package alerts_test has promtool check the alerts that are shipped, and try them on series
// as they come where something goes wrong.
package alerts_test

import (
	"os/exec"
	"testing"
)

func TestAlerts(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "../../docs/alerts.yaml"},
		{"test", "rules", "testdata/alerts_test.yaml"},
	} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
