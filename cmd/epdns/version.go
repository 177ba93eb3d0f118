package main

import (
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
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which epdns this is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			switch output.form {
			case "json":
				return printJSON(cmd.OutOrStdout(), readBuildInfo())
			case "yaml":
				return printYAML(cmd.OutOrStdout(), readBuildInfo())
			}
			fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return nil
		},
	}
	output.register(cmd, "text", "json", "yaml")
	return cmd
}
