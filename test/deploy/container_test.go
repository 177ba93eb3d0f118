//go:build linux

package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"epdns/test/cluster"
	"epdns/test/image"
)

// This file runs the image's program in a container, with runc, which is what containerd and
// CRI-O run containers with.

// nobody is the user of the image.
const nobody = 65532

// imageDir is where the image lies, built once. Its version is one that no git says.
var imageDir = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(repository)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(epdns), "image")
	return dir, image.Build(context.Background(), image.Options{Root: root, Dir: dir, Version: imageVersion})
})

const imageVersion = "v0.0.0-test"

func builtImage(t *testing.T) (dir string) {
	t.Helper()
	dir, err := imageDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs a program to its end and returns what it printed.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, &stderr)
	}
	return string(out)
}

// unpacked is the image for a platform, unpacked by umoci once: a bundle, which is what runtimes
// take.
func unpacked(t *testing.T, arch string) (bundle string) {
	t.Helper()
	dir := builtImage(t)
	bundle = filepath.Join(dir, "bundle-"+arch)
	if _, err := os.Stat(bundle); err == nil {
		return bundle
	}
	one := filepath.Join(dir, "only-"+arch)
	command(t, "skopeo", "--insecure-policy", "--override-os=linux", "--override-arch="+arch,
		"copy", "oci:"+filepath.Join(dir, image.Layout)+":dev", "oci:"+one+":dev")
	command(t, "umoci", "unpack", "--image", one+":dev", bundle)
	return bundle
}

// contained is a container of the image.
type contained struct {
	args, env []string
	files     map[string]string // in the container, and what it contains
	writable  []string          // directories, as emptyDirs are
	user      int
	may       []string // capabilities, without the CAP_
}

// command is that of the container. It is in the network of the test and has what Pod security
// "restricted" leaves: a root that cannot be written, no capability, and none to be had.
func (c contained) command(t *testing.T) *exec.Cmd {
	t.Helper()
	from := unpacked(t, runtime.GOARCH)
	text, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var config struct {
		Version  string         `json:"ociVersion"`
		Process  map[string]any `json:"process"`
		Root     object         `json:"root"`
		Hostname string         `json:"hostname"`
		Mounts   []object       `json:"mounts"`
		Linux    map[string]any `json:"linux"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for _, arg := range c.args {
		config.Process["args"] = append(config.Process["args"].([]any), arg)
	}
	for _, env := range c.env {
		config.Process["env"] = append(config.Process["env"].([]any), env)
	}
	config.Process["terminal"] = false
	config.Process["noNewPrivileges"] = true
	config.Process["user"] = object{"uid": c.user, "gid": c.user}
	capabilities := object{}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		capabilities[set] = c.may
	}
	config.Process["capabilities"] = capabilities
	config.Root = object{"path": "rootfs", "readonly": true}
	config.Linux["namespaces"] = slices.DeleteFunc(config.Linux["namespaces"].([]any), func(n any) bool {
		return n.(object)["type"] == "network"
	})

	bundle := t.TempDir()
	// A root of its own, in which the runtime makes what is mounted over.
	command(t, "cp", "-a", filepath.Join(from, "rootfs"), bundle)
	bind := func(source, at, mode string) {
		config.Mounts = append(config.Mounts, object{"destination": at, "source": source, "type": "bind", "options": []string{"rbind", mode}})
	}
	for at, content := range c.files {
		path := filepath.Join(bundle, "files", at)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		bind(path, at, "ro")
	}
	for _, at := range c.writable {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		bind(dir, at, "rw")
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return exec.Command("runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, filepath.Base(filepath.Dir(bundle))+filepath.Base(bundle))
}

// contained is the first container of the Pod, with what the kubelet would put into it.
func (p pod) contained(t *testing.T, args ...string) contained {
	t.Helper()
	var spec struct {
		Containers []struct {
			Args            []string
			Env             []struct{ Name string }
			VolumeMounts    []struct{ Name, MountPath string }
			SecurityContext struct {
				Capabilities struct{ Add []string }
			}
		}
		Volumes []struct {
			Name      string
			EmptyDir  *struct{}
			ConfigMap *struct{ Name string }
		}
		AutomountServiceAccountToken *bool
	}
	all, err := json.Marshal(p.spec.all)
	if err == nil {
		err = json.Unmarshal(all, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	api, err := url.Parse(p.cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	first := spec.Containers[0]
	c := contained{
		args:  slices.Concat(first.Args, args),
		env:   []string{"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port()},
		user:  p.spec.SecurityContext.RunAsUser,
		files: map[string]string{},
	}
	for i, arg := range c.args {
		c.args[i] = strings.ReplaceAll(arg, "$(NODE_IP)", nodeIP)
	}
	for _, name := range first.SecurityContext.Capabilities.Add {
		c.may = append(c.may, "CAP_"+name)
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		account := "/var/run/secrets/kubernetes.io/serviceaccount/"
		ca, err := os.ReadFile(filepath.Join(p.cluster.Dir, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		c.files[account+"ca.crt"] = string(ca)
		c.files[account+"token"] = p.token(t)
		c.files[account+"namespace"] = p.namespace
	}
	for _, m := range first.VolumeMounts {
		for _, v := range spec.Volumes {
			switch {
			case v.Name != m.Name:
			case v.EmptyDir != nil:
				c.writable = append(c.writable, m.MountPath)
			case v.ConfigMap != nil:
				for name, text := range configMap(t, p.cluster, p.namespace, v.ConfigMap.Name) {
					c.files[m.MountPath+"/"+name] = text
				}
			default:
				t.Fatalf("volume %s is neither an emptyDir nor a ConfigMap", v.Name)
			}
		}
	}
	return c
}

// configMap is what one contains.
func configMap(t *testing.T, c *cluster.Cluster, namespace, name string) map[string]string {
	t.Helper()
	var m struct{ Data map[string]string }
	if err := c.Request(t.Context(), http.MethodGet, fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%s", namespace, name), nil, &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}
