package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// outputFlag chooses the form of what a command prints. JSON and YAML have the same fields,
// which docs describe and which stay.
type outputFlag struct {
	form  string
	forms []string // the first is the default
}

// register has a command take these forms.
func (f *outputFlag) register(cmd *cobra.Command, forms ...string) {
	f.forms = forms
	cmd.Flags().StringVarP(&f.form, "output", "o", forms[0], f.list())
	completeValues(cmd, "output", forms...)
}

func (f *outputFlag) list() string {
	last := len(f.forms) - 1
	return strings.Join(f.forms[:last], ", ") + " or " + f.forms[last]
}

func (f *outputFlag) check() error {
	if !slices.Contains(f.forms, f.form) {
		return usagef("--output %q is not %s", f.form, f.list())
	}
	return nil
}

// printJSON prints an object on a line.
func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// printYAML prints the object that JSON would have.
func printYAML(w io.Writer, v any) error {
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = w.Write(text)
	return err
}
