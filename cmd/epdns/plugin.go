package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// This file makes the program a plugin of kubectl: under the name kubectl-epdns in a
// directory of PATH, it is "kubectl epdns", and says so in its help and its errors. Under
// the name kubectl_complete-epdns it is what kubectl's own completion asks about it
// (https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).

const (
	ownName        = "epdns"
	pluginName     = "kubectl-epdns"
	pluginComplete = "kubectl_complete-epdns"
)

// calledAs is what the program was called as, and its arguments.
func calledAs(argv []string) (name string, args []string) {
	if len(argv) == 0 {
		return ownName, nil
	}
	switch args := argv[1:]; strings.TrimSuffix(filepath.Base(argv[0]), ".exe") {
	case pluginName:
		return pluginName, args
	case pluginComplete:
		return pluginName, append([]string{cobra.ShellCompRequestCmd}, args...)
	default:
		return ownName, args
	}
}

// ownCommand is a command of ours in a text for people.
var ownCommand = regexp.MustCompile(`(^|[\s("])epdns( -|( (serve|demo|watch|lookup|explain|status|check|completion|man|version|help)\b))`)

// asPlugin has a command and those below it speak of themselves as kubectl's.
func asPlugin(cmd *cobra.Command) {
	if !cmd.HasParent() {
		cmd.Use = pluginName
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl epdns"}
	}
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = ownCommand.ReplaceAllString(*text, "${1}kubectl epdns$2")
	}
	for _, c := range cmd.Commands() {
		asPlugin(c)
	}
}

// programName is how people call the program that a command is of.
func programName(cmd *cobra.Command) string { return cmd.Root().DisplayName() }
