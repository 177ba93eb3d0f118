package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for a release: -X main.version=v1.2.3.
var version = ""

// buildInfo says what was built from what.
type buildInfo struct {
	Version   string `json:"version"`
	Revision  string `json:"revision,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

// versionLine says it for people.
func versionLine() string {
	b := readBuildInfo()
	return fmt.Sprintf("epdns %s %s %s", b.Version, b.GoVersion, b.Platform)
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which epdns this is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
				fmt.Fprintln(cmd.OutOrStdout(), versionLine())
				return nil
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(readBuildInfo())
			}
			return usagef("--output %q is not text or json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	completeValues(cmd, "output", "text", "json")
	return cmd
}
