//go:build linux

package deploy_test

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"epdns/test/image"
	"epdns/test/netns"
	"epdns/test/run"
)

// The image is, for each platform and as others read it, the program and nothing else: static, of
// that platform, of a numeric user, and small.
func TestImage(t *testing.T) {
	dir := builtImage(t)
	layout := "oci:" + filepath.Join(dir, image.Layout) + ":dev"
	for _, test := range []struct {
		arch    string
		machine elf.Machine
	}{{"amd64", elf.EM_X86_64}, {"arm64", elf.EM_AARCH64}} {
		t.Run(test.arch, func(t *testing.T) {
			var config struct {
				Architecture, OS, Created string
				Config                    v1.ImageConfig
			}
			text := command(t, "skopeo", "--override-os=linux", "--override-arch="+test.arch, "inspect", "--config", layout)
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				t.Fatal(err)
			}
			c := config.Config
			if config.Architecture != test.arch || config.OS != "linux" || config.Created != "" || c.User != "65532:65532" ||
				!slices.Equal(c.Entrypoint, []string{"/epdns"}) || c.Cmd != nil ||
				c.Labels[v1.AnnotationVersion] != imageVersion || c.Labels[v1.AnnotationLicenses] != "Apache-2.0" {
				t.Errorf("it is\n%s", text)
			}

			var files []string
			root := filepath.Join(unpacked(t, test.arch), "rootfs")
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && path != root {
					files = append(files, strings.TrimPrefix(path, root))
				}
				return err
			})
			if err != nil || !slices.Equal(files, []string{"/epdns"}) {
				t.Fatalf("its files are %q, %v", files, err)
			}
			program := filepath.Join(root, "epdns")
			switch info, err := os.Stat(program); {
			case err != nil:
				t.Fatal(err)
			case info.Mode() != 0o755 || info.Size() > 64<<20:
				t.Errorf("the program is %v, of %d octets", info.Mode(), info.Size())
			}
			f, err := elf.Open(program)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if libraries, err := f.ImportedLibraries(); f.Machine != test.machine || err != nil || libraries != nil || f.Section(".interp") != nil {
				t.Errorf("the program is of %v and needs %q, %v", f.Machine, libraries, err)
			}
		})
	}
	for _, archive := range []string{"oci-archive:" + filepath.Join(dir, image.Archive) + ":dev", "docker-archive:" + filepath.Join(dir, image.Archive)} {
		if text := command(t, "skopeo", "inspect", archive); !strings.Contains(text, `"Architecture": "`+runtime.GOARCH+`"`) {
			t.Errorf("%s is\n%s", archive, text)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, image.Archive)); err != nil || info.Size() > 40<<20 {
		t.Errorf("the archive: %v, %v", info.Size(), err)
	}
}

// Built elsewhere, from the same source, it has the same octets.
func TestImageAgain(t *testing.T) {
	elsewhere := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "cmd", "dnsserver", "internal", "registry", "zones"} {
		command(t, "cp", "-r", filepath.Join(repository, name), elsewhere)
	}
	first := imageIndex(t, filepath.Join(builtImage(t), image.Layout))
	dir := t.TempDir()
	if err := image.Build(t.Context(), image.Options{Root: elsewhere, Dir: dir, Version: imageVersion, Platforms: []string{"linux/" + runtime.GOARCH}}); err != nil {
		t.Fatal(err)
	}
	again := imageIndex(t, filepath.Join(dir, image.Layout))
	if len(again.Manifests) != 2 {
		t.Fatalf("there are %d manifests, want the image's and that of its bill of materials", len(again.Manifests))
	}
	for _, m := range again.Manifests {
		if !slices.ContainsFunc(first.Manifests, func(f v1.Descriptor) bool { return f.Digest == m.Digest }) {
			t.Errorf("%v, of %s, is not what was built first", m.Digest, m.Platform.Architecture)
		}
	}
}

// imageIndex is the index of all manifests of the one image in a layout.
func imageIndex(t *testing.T, layout string) (index v1.Index) {
	t.Helper()
	var top v1.Index
	text, err := os.ReadFile(filepath.Join(layout, v1.ImageIndexFile))
	if err == nil {
		err = json.Unmarshal(text, &top)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 {
		t.Fatalf("%s has %d images", layout, len(top.Manifests))
	}
	readBlob(t, layout, top.Manifests[0], &index)
	return index
}

// readBlob is what a layout has under a descriptor.
func readBlob(t *testing.T, layout string, d v1.Descriptor, into any) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(layout, v1.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded()))
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each bill of materials has the modules that its program says it has, and refers to its image. It
// goes where the image goes.
func TestImageBills(t *testing.T) {
	dir := builtImage(t)
	copied := filepath.Join(t.TempDir(), "copied")
	command(t, "skopeo", "--insecure-policy", "copy", "--all", "oci:"+filepath.Join(dir, image.Layout)+":dev", "oci:"+copied+":v1")
	index := imageIndex(t, copied)
	images := map[string]v1.Descriptor{}
	bills := 0
	for _, d := range index.Manifests {
		if d.Platform.OS != "unknown" {
			images[d.Digest.String()] = d
		}
	}
	for _, d := range index.Manifests {
		var m v1.Manifest
		readBlob(t, copied, d, &m)
		if m.Subject == nil {
			continue
		}
		bills++
		of, ok := images[m.Subject.Digest.String()]
		if !ok {
			t.Errorf("a bill of materials is of %v, which is no image", m.Subject.Digest)
			continue
		}
		var bill struct {
			BOMFormat  string
			Metadata   struct{ Component struct{ Version string } }
			Components []struct{ Name, Version, PURL string }
		}
		content := readBlob(t, copied, m.Layers[0], &bill)
		beside, err := os.ReadFile(filepath.Join(dir, image.BillOfMaterials("linux/"+of.Platform.Architecture)))
		if err != nil || !bytes.Equal(beside, content) {
			t.Errorf("the file of %s is another one: %v", of.Platform.Architecture, err)
		}
		info, err := buildinfo.ReadFile(filepath.Join(unpacked(t, of.Platform.Architecture), "rootfs", "epdns"))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"stdlib " + info.GoVersion}
		for _, m := range info.Deps {
			want = append(want, m.Path+" "+m.Version)
		}
		var got []string
		for _, c := range bill.Components {
			got = append(got, c.Name+" "+c.Version)
			if !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
				t.Errorf("%s is %s", c.Name, c.PURL)
			}
		}
		if bill.BOMFormat != "CycloneDX" || bill.Metadata.Component.Version != imageVersion || !slices.Equal(got, want) {
			t.Errorf("the bill of %s, of %s, has\n%s\nand the program\n%s", of.Platform.Architecture, bill.Metadata.Component.Version,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if len(images) != 2 || bills != 2 {
		t.Errorf("there are %d images and %d bills of materials", len(images), bills)
	}
}

// The container, as unprivileged as can be, does what the program does.
func TestImageRuns(t *testing.T) {
	if netns.Mapped() {
		t.Skip("the image's user is none here: run the tests as root")
	}
	web := want{answer: []string{"A 10.244.1.11", "A 10.244.2.12"}, ttl: 5}
	deployed(t)
	shop, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cluster := podOf(t, kube, "apis/apps/v1/namespaces/"+namespace+"/deployments/epdns").contained(t, "--lameduck=0")
	for _, test := range []struct {
		what string
		c    contained
		name string
		want want
	}{
		{"a cluster", cluster, "web.shop.registry.local.", web},
		{"manifests", contained{
			args:  []string{"serve", "--manifests=/manifests", "--http=:9153", "--lameduck=0"},
			files: map[string]string{"/manifests/shop.yaml": string(shop)},
			user:  nobody,
		}, "web.shop.registry.local.", web},
		{"the sample", contained{args: []string{"demo", "--listen=:5300", "--http=:9153"}, user: nobody},
			"db-0.db.data.registry.local.", want{answer: []string{"A 10.244.1.10"}, ttl: 5}},
	} {
		t.Run(test.what, func(t *testing.T) {
			p := run.ForTest(t, test.c.command(t))
			p.Eventually(t, func() error {
				_, err := run.Get("http://127.0.0.1:9153/readyz")
				return err
			})
			test.want.check(t, "127.0.0.1:5300", test.name, "A")
		})
	}

	t.Run("nothing to do", func(t *testing.T) {
		out, err := contained{user: nobody}.command(t).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Usage:") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("its version", func(t *testing.T) {
		out, err := contained{args: []string{"version"}, user: nobody}.command(t).CombinedOutput()
		if want := "epdns " + imageVersion + " " + runtime.Version() + " linux/" + runtime.GOARCH + "\n"; err != nil || string(out) != want {
			t.Errorf("%v, %q, want %q", err, out, want)
		}
	})
	t.Run("a mistake", func(t *testing.T) {
		err := contained{args: []string{"server"}, user: nobody}.command(t).Run()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
			t.Errorf("%v, want exit status 2", err)
		}
	})
}

// The commands of deploy/README.md take the image to a registry.
func TestImagePush(t *testing.T) {
	dir := builtImage(t)
	config := filepath.Join(t.TempDir(), "registry.yaml")
	const registry = "127.0.0.1:5000"
	err := os.WriteFile(config, []byte("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: "+
		filepath.Join(filepath.Dir(config), "registry")+"}}\nhttp: {addr: '"+registry+"'}\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", config)
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	run.ForTest(t, cmd).Eventually(t, func() error {
		_, err := run.Get("http://" + registry + "/v2/")
		return err
	})
	commands, _ := block(t, section(t, "An image"), "sh")
	pushed := 0
	for line := range strings.Lines(commands) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "   #")
		if !strings.HasPrefix(line, "skopeo copy ") {
			continue
		}
		pushed++
		// The registry here has no certificate.
		line = strings.ReplaceAll(line, "registry.example", registry)
		line = strings.ReplaceAll(line, "build/", dir+"/")
		line = strings.Replace(line, "skopeo copy", "skopeo --insecure-policy copy --dest-tls-verify=false", 1)
		command(t, "sh", "-c", line)
	}
	if pushed == 0 {
		t.Fatalf("no command pushes anything:\n%s", commands)
	}
	text := command(t, "skopeo", "--override-os=linux", "--override-arch=arm64", "inspect", "--tls-verify=false", "docker://"+registry+"/epdns:v1")
	if !strings.Contains(text, `"Architecture": "arm64"`) || !strings.Contains(text, imageVersion) {
		t.Errorf("there is\n%s", text)
	}
	// Everything is there under the digest that it has here, the bills of materials too.
	there := command(t, "skopeo", "inspect", "--tls-verify=false", "--raw", "docker://"+registry+"/epdns:v1")
	here := command(t, "skopeo", "inspect", "--raw", "oci:"+filepath.Join(dir, image.Layout)+":dev")
	if there != here {
		t.Errorf("the registry has\n%s\nand the layout\n%s", there, here)
	}
}
