package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Options say what is built, and where to.
type Options struct {
	Root      string   // of the repository
	Dir       string   // what lies there from an earlier build is replaced
	Tag       string   // of the image; empty is "dev", which deploy/ names
	Version   string   // of epdns; empty is the tag
	Revision  string   // the commit; empty where it is not known
	Platforms []string // such as linux/arm64; none is [Platforms]
}

// Platforms are those on which epdns reads and writes datagrams in batches. Others of Linux can be
// given.
var Platforms = []string{"linux/amd64", "linux/arm64"}

// Name is what the image is called where it has no registry, as deploy/ has it.
const Name = "epdns"

// What lies in the directory of a build.
const (
	Layout  = Name + ".oci"
	Archive = Name + ".oci.tar"
)

// BillOfMaterials is the file of a platform's.
func BillOfMaterials(platform string) string {
	return Name + "-" + strings.ReplaceAll(platform, "/", "-") + ".cdx.json"
}

// Build builds epdns for each platform and makes an image of it.
func Build(ctx context.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	// Half a layout must not look like one.
	half, err := os.MkdirTemp(o.Dir, Layout+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	if err := os.Chmod(half, 0o755); err != nil {
		return err
	}
	l, err := newLayout(half)
	if err != nil {
		return err
	}
	var images, bills []v1.Descriptor
	for _, platform := range o.Platforms {
		image, bill, err := o.addPlatform(ctx, l, platform)
		if err != nil {
			return fmt.Errorf("image for %s: %w", platform, err)
		}
		images, bills = append(images, image), append(bills, bill)
	}
	if err := l.finish(o, slices.Concat(images, bills)); err != nil {
		return err
	}
	if err := l.archive(filepath.Join(o.Dir, Archive)); err != nil {
		return err
	}
	final := filepath.Join(o.Dir, Layout)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(half, final)
}

// reference is what a tag may be (distribution specification), so that nobody finds out when he
// pushes it.
var reference = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func (o *Options) setDefaults() error {
	if o.Tag == "" {
		o.Tag = "dev"
	}
	if o.Version == "" {
		o.Version = o.Tag
	}
	o.Platforms = o.platforms()
	if !reference.MatchString(o.Tag) {
		return fmt.Errorf("%q is no tag of an image: letters, digits, _, . and -, at most 128", o.Tag)
	}
	// It becomes a part of a linker's flag.
	if strings.ContainsAny(o.Version, " \t\n'\"") {
		return fmt.Errorf("%q is no version: it has blanks or quotes", o.Version)
	}
	for i, p := range o.Platforms {
		if _, err := parsePlatform(p); err != nil {
			return err
		}
		if slices.Contains(o.Platforms[:i], p) {
			return fmt.Errorf("platform %s is given twice", p)
		}
	}
	if len(o.Platforms) == 0 {
		return errors.New("no platform is given")
	}
	return nil
}

// Files are what is in the directory after a build.
func (o Options) Files() []string {
	files := []string{Layout, Archive}
	for _, p := range o.platforms() {
		files = append(files, BillOfMaterials(p))
	}
	return files
}

func (o Options) platforms() []string {
	if o.Platforms == nil {
		return Platforms
	}
	return o.Platforms
}

// CheckPlatform says what is wrong with the name of a platform.
func CheckPlatform(text string) error {
	_, err := parsePlatform(text)
	return err
}

// parsePlatform reads linux/amd64 or linux/arm/v7.
func parsePlatform(text string) (p v1.Platform, err error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "linux" || slices.Contains(parts, "") {
		return p, fmt.Errorf("%q is no platform such as linux/arm64 or linux/arm/v7", text)
	}
	p = v1.Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	} else if p.Architecture == "arm64" {
		p.Variant = "v8" // the only one there is, which other tools write too
	}
	return p, nil
}

// addPlatform adds one platform's image and its bill of materials.
func (o *Options) addPlatform(ctx context.Context, l *layout, platform string) (image, bill v1.Descriptor, err error) {
	p, err := parsePlatform(platform)
	if err != nil {
		return image, bill, err
	}
	program, err := o.compile(ctx, p)
	if err != nil {
		return image, bill, err
	}
	if image, err = l.addImage(o, p, program); err != nil {
		return image, bill, err
	}
	text, err := billOfMaterials(program, o.Version, platform)
	if err != nil {
		return image, bill, err
	}
	name := BillOfMaterials(platform)
	if err := os.WriteFile(filepath.Join(o.Dir, name), text, 0o644); err != nil {
		return image, bill, err
	}
	bill, err = l.addBill(name, text, image)
	return image, bill, err
}

// compile builds the program and returns it.
func (o *Options) compile(ctx context.Context, p v1.Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "epdns-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, Name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath",
		// The commit comes from git, which is there if whoever calls us knows it.
		fmt.Sprintf("-buildvcs=%t", o.Revision != ""),
		"-ldflags=-s -w -X main.version="+o.Version,
		"-o", bin, "./cmd/epdns")
	cmd.Dir = o.Root
	// Neither a workspace, nor flags, nor a level of processor of the caller's may have a say.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+p.OS, "GOARCH="+p.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOARM="+strings.TrimPrefix(p.Variant, "v"), "PWD="+o.Root)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build epdns: %w\n%s", err, out)
	}
	return os.ReadFile(bin)
}
