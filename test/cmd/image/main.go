// Command image makes an OCI image of epdns without a container engine; see package image for what
// comes of it. Run "image help" for its usage.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"epdns/test/cmd/internal/cli"
	"epdns/test/image"
	"epdns/test/run"
)

const usage = `image builds epdns and makes an OCI image of it, without a container engine: a layout
that skopeo and others push, the same as one file that docker loads, and a bill of
materials for each platform. The files are named on stdout.

  image [--out DIR] [--tag TAG] [--version VERSION] [--platform P]...

  --out DIR          where to (default: build/ in the repository)
  --tag TAG          tag of the image (default dev, which deploy/ names)
  --version VERSION  what "epdns version" says (default: as git describes the checkout)
  --platform P       such as linux/arm64; repeat for several
                     (default linux/amd64 and linux/arm64)
`

var command = cli.Command{Name: "image", Usage: usage, Run: build}

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }

func build(args []string, stdout, stderr io.Writer) error {
	var o image.Options
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	fs.StringVar(&o.Dir, "out", "", "")
	fs.StringVar(&o.Tag, "tag", "dev", "")
	fs.StringVar(&o.Version, "version", "", "")
	fs.Func("platform", "", func(p string) error {
		o.Platforms = append(o.Platforms, p)
		return image.CheckPlatform(p)
	})
	if err := cli.Parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return cli.Mistakef("no argument is expected: %q", fs.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.Root, err = run.Repository(); err != nil {
		return err
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Root, "build")
	}
	if o.Version == "" {
		if o.Version, err = git(ctx, "describe", "--tags", "--always", "--dirty"); err != nil {
			return err
		}
	}
	if o.Revision, err = git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	if err := image.Build(ctx, o); err != nil {
		return err
	}
	for _, name := range o.Files() {
		fmt.Fprintln(stdout, filepath.Join(o.Dir, name))
	}
	fmt.Fprintf(stderr, "%s:%s is epdns %s\n", image.Name, o.Tag, o.Version)
	return nil
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
