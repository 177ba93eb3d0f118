package main

//go:generate env UPDATE=1 go test -count=1 -run ^TestReferencePage$ .

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"epdns/zones"
)

// docs/reference.md is made here, of the types that the file is read into, of reference.yaml,
// the flags of serve and the keys that a reload may not change.

const referencePage = "../../docs/reference.md"

const referenceHead = `# Configuration reference

Every key of the configuration file and every flag of ` + "`epdns serve`" + `. [configuration.md](configuration.md) tells how they
belong together, with examples. This page is made from the program by ` + "`go generate ./cmd/epdns`" + `; a test compares them.

` + "`epdns serve --config-reference`" + ` prints the same as a file with comments, and ` + "`epdns check --config FILE`" + ` says what is wrong
with one.

- A **duration** is Go's, such as ` + "`1m30s`" + `, or a bare number of seconds.
- A **prefix**, **address** or **name** is text; what form it has is said where it is meant.
- A change of the file takes effect **at once** while epdns runs ([how](configuration.md#changes-while-it-runs)), but for keys
  that say **restart**: a file that changes one of those is not used until then.
- A flag beats its key.

## The file

| key | type | default | flag | a change | meaning |
|---|---|---|---|---|---|
`

const referenceKnobs = `
## Values of Services

What a zone sets in ` + "`zones[].defaults`" + `, a rule in ` + "`zones[].rules[].set`" + ` and a Service by an annotation
([who beats whom](configuration.md#values-of-services)). The annotation begins with ` + "`annotationPrefix`" + `. A change takes effect at once.
[ranking.md](ranking.md) has an example of each.

| key | annotation | type | default | meaning |
|---|---|---|---|---|
`

const referenceFlags = `
## Flags without a key

| flag | type | default | meaning |
|---|---|---|---|
`

// TestReferencePage: the page is what this program can be told. UPDATE=1 in the environment
// writes it.
func TestReferencePage(t *testing.T) {
	want := makeReferencePage(t)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	have, need := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for _, line := range need {
		if !slices.Contains(have, line) {
			t.Errorf("%s lacks the line\n%s", referencePage, line)
		}
	}
	for _, line := range have {
		if !slices.Contains(need, line) {
			t.Errorf("%s has the line, which nothing stands for,\n%s", referencePage, line)
		}
	}
	t.Errorf("%s is not what the program says; go generate ./cmd/epdns writes it", referencePage)
}

func makeReferencePage(t *testing.T) string {
	t.Helper()
	var page strings.Builder
	flags := newServe().Flags()
	withKey := map[string]bool{}
	page.WriteString(referenceHead)
	for _, r := range referenceKeys(t) {
		if strings.HasPrefix(r.key, knobsKey) {
			continue
		}
		typ := typeOf(t, reflect.ValueOf(*defaultConfig()), r.key)
		change := "at once"
		if lasts(r.key) {
			change = "restart"
		}
		if typ == "keys" || r.key == "apiVersion" || r.key == "kind" {
			change = ""
		}
		flag := ""
		for _, f := range flagKeys {
			if f.key != r.key {
				continue
			}
			if flags.Lookup(f.flag) == nil {
				t.Errorf("%s stands for --%s, which there is not", r.key, f.flag)
			}
			withKey[f.flag] = true
			flag = asCode("--" + f.flag)
		}
		tableRow(&page, asCode(r.key), typ, asCode(r.value), flag, change, tableCell(r.means))
	}
	for _, f := range flagKeys {
		if !withKey[f.flag] {
			t.Errorf("flag --%s stands for the key %s, which there is not", f.flag, f.key)
		}
	}

	page.WriteString(referenceKnobs)
	for _, k := range zones.Knobs() {
		tableRow(&page, asCode(k.Name), asCode(defaultConfig().Prefix+"/"+k.Name), typeOfKnob(k), asCode(k.Default), tableCell(k.Means))
	}

	page.WriteString(referenceFlags)
	flags.VisitAll(func(f *pflag.Flag) {
		if !withKey[f.Name] {
			tableRow(&page, asCode("--"+f.Name), flagTypes[f.Value.Type()], asCode(f.DefValue), tableCell(strings.ToUpper(f.Usage[:1])+f.Usage[1:]+"."))
		}
	})
	return page.String()
}

const knobsKey = "zones[].defaults."

// flagTypes are what this page calls pflag's.
var flagTypes = map[string]string{"bool": "true or false", "string": "text", "stringArray": "list of text", "duration": "duration"}

func tableRow(page *strings.Builder, cells ...string) {
	fmt.Fprintf(page, "| %s |\n", strings.Join(cells, " | "))
}

func asCode(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// tableCell is a text in a table of Markdown.
func tableCell(s string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "|", `\|`).Replace(s)
}

// lasts says whether a key holds until a restart.
func lasts(key string) bool {
	return slices.ContainsFunc((&settings{}).lasting(), func(l lasting) bool {
		return l.key == key || isBelow(key, l.key)
	})
}

// typeOf is what the key of a config holds.
func typeOf(t *testing.T, v reflect.Value, key string) string {
	t.Helper()
	name, rest, below := strings.Cut(key, ".")
	name, list := strings.CutSuffix(name, "[]")
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") != name {
			continue
		}
		f := v.Field(i)
		switch {
		case list:
			return typeOf(t, f.Index(0), rest)
		case below:
			return typeOf(t, f, rest)
		}
		return typeName(f)
	}
	t.Fatalf("no field has the key %s", key)
	return ""
}

func typeName(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		return "keys"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		if item := v.Type().Elem(); item.Kind() == reflect.Struct {
			var keys []string
			for i := range item.NumField() {
				keys = append(keys, asCode(item.Field(i).Tag.Get("yaml")))
			}
			return "list of keys: " + strings.Join(keys, ", ")
		}
		return "list of text"
	}
	// Text whose default is a duration is one.
	if parseDuration(v.String(), new(time.Duration)) == nil {
		return "duration"
	}
	return "text"
}

// typeOfKnob goes by what the knob takes.
func typeOfKnob(k zones.Knob) string {
	switch {
	case k.Check("1m") == nil:
		return "duration"
	case k.Check("1") == nil:
		return "whole number"
	}
	return "text"
}
