package epdns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// standIn is what stands in a test for what the reader of a page has: a sample for the cluster and
// for each server, free ports, and files of their own.
func (c *pageCheck) standIn(words []string) (args []string, err error) {
	const sample = "registry/manifest/sample"
	value := map[string]func(v string) (string, error){
		"--server": func(v string) (string, error) {
			if strings.HasPrefix(v, "dns://") {
				return "dns://" + c.asks().dns.String(), nil
			}
			return c.asks().http, nil
		},
		"--through":        func(string) (string, error) { return c.asks().dns.String(), nil },
		"--manifests":      func(string) (string, error) { return sample, nil },
		"--listen":         func(string) (string, error) { return "127.0.0.1:0", nil },
		"--http":           func(string) (string, error) { return "127.0.0.1:0", nil },
		"--state-dir":      func(string) (string, error) { return c.t.TempDir(), nil },
		"--dir":            func(string) (string, error) { return c.t.TempDir(), nil },
		"--config":         func(string) (string, error) { return c.file("apiVersion: epdns/v1alpha1\nkind: Config\n") },
		"--cookie-secrets": func(string) (string, error) { return c.file("e5e973e5a6b2a43f48e7dc849e37bfcf\n") },
	}
	given := func(flags ...string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(flags, a) })
	}
	for i := 0; i < len(words); i++ {
		name, v, joined := strings.Cut(words[i], "=")
		stands, ok := value[name]
		switch {
		case name == "--kubeconfig" || name == "--context":
			if !joined {
				i++
			}
			continue
		case words[i] == "NAME":
			args = append(args, "web.shop.registry.local")
			continue
		case !ok:
			args = append(args, words[i])
			continue
		}
		if !joined {
			if i++; i == len(words) {
				return nil, fmt.Errorf("%s of what?", name)
			}
			v = words[i]
		}
		if v, err = stands(v); err != nil {
			return nil, err
		}
		args = append(args, name, v)
	}
	if len(args) == 0 {
		return nil, nil
	}
	switch command := args[0]; {
	case command == "status" && !given("--server"):
		args = append(args, "--server", c.asks().http)
	case slices.Contains([]string{"serve", "watch", "lookup", "explain", "check"}, command) && !given("--server", "--manifests"):
		args = append(args, "--manifests", sample)
	}
	if args[0] == "serve" || args[0] == "demo" {
		for _, flag := range []string{"--listen", "--http"} {
			if !given(flag) {
				args = append(args, flag, "127.0.0.1:0")
			}
		}
	}
	if args[0] == "serve" && !given("--lameduck", "--config-reference") {
		args = append(args, "--lameduck", "0")
	}
	return args, nil
}

// file is one with this text.
func (c *pageCheck) file(text string) (path string, err error) {
	path = filepath.Join(c.t.TempDir(), "file")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// epdns runs the command with stand-ins. What goes on until it is told to end has to say something
// first. Where a page is run with its output, by TestPages, the flags are looked at and no more.
func (c *pageCheck) epdns(words []string) error {
	if slices.Contains(words, "$@") {
		return nil // of a function; its uses are checked
	}
	key := fmt.Sprint(words)
	if c.seen[key] {
		return nil
	}
	c.seen[key] = true
	args, err := c.standIn(words)
	if err != nil {
		return err
	}
	if c.compared {
		args = withHelp(words)
	}
	goesOn := len(args) > 0 && slices.Contains([]string{"serve", "demo", "watch"}, args[0]) &&
		!slices.ContainsFunc(args, func(a string) bool { return a == "--config-reference" || a == "--help" || a == "-h" })
	if !goesOn {
		stdout, stderr, code := once(c.t, environment("HOME="+c.t.TempDir()), args...)
		if code != 0 {
			return fmt.Errorf("run as %q: exit status %d: %s", args, code, stderr)
		}
		if len(words) > 0 && !strings.HasPrefix(words[0], "-") && c.compared && !strings.Contains(stdout, "epdns "+words[0]) {
			return errors.New("there is no such command")
		}
		return nil
	}
	p := launch(c.t, environment(), args...)
	eventually(c.t, func() error {
		if err := p.running(); err != nil {
			c.t.Errorf("run as %q: %v", args, err)
			return nil
		}
		if args[0] == "serve" && !strings.Contains(p.stderr.String(), "zones=") || args[0] != "serve" && p.stdout.String() == "" {
			return fmt.Errorf("run as %q it says nothing", args)
		}
		return nil
	})
	p.stop(c.t, syscall.SIGTERM)
	return nil
}
