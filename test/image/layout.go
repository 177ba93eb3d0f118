package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// User is the one that the program runs as, and its group.
const User = "65532:65532"

// billType is the media type of a bill of materials.
const billType = "application/vnd.cyclonedx+json"

// layout is an image layout in the making.
type layout struct {
	dir    string
	blobs  []v1.Descriptor // all that were added
	docker []dockerImage   // what docker load finds in the archive
}

// dockerImage is an image as docker save describes it. Its older form knows no platforms.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string

	platform string
}

func newLayout(dir string) (*layout, error) {
	if err := os.MkdirAll(filepath.Join(dir, v1.ImageBlobsDir, digest.SHA256.String()), 0o755); err != nil {
		return nil, err
	}
	return &layout{dir: dir}, nil
}

// addImage adds what runs on one platform: a layer, its configuration and the manifest of both.
func (l *layout) addImage(o *Options, p v1.Platform, program []byte) (v1.Descriptor, error) {
	files, err := layer(program)
	if err != nil {
		return v1.Descriptor{}, err
	}
	packed, err := compress(files)
	if err != nil {
		return v1.Descriptor{}, err
	}
	layer, err := l.addBlob(v1.MediaTypeImageLayerGzip, packed)
	if err != nil {
		return v1.Descriptor{}, err
	}
	config, err := l.addJSON(v1.MediaTypeImageConfig, v1.Image{
		Platform: p,
		Config: v1.ImageConfig{
			User:         User,
			Entrypoint:   []string{"/epdns"},
			WorkingDir:   "/",
			ExposedPorts: map[string]struct{}{"5300/udp": {}, "5300/tcp": {}, "9153/tcp": {}},
			Labels:       o.annotations(),
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(files)}},
		History: []v1.History{{CreatedBy: "make image", Comment: "the program epdns and nothing else"}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned:   specs.Versioned{SchemaVersion: 2},
		MediaType:   v1.MediaTypeImageManifest,
		Config:      config,
		Layers:      []v1.Descriptor{layer},
		Annotations: o.annotations(),
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	l.docker = append(l.docker, dockerImage{
		Config:   blobPath(config),
		RepoTags: []string{Name + ":" + o.Tag},
		Layers:   []string{blobPath(layer)},
		platform: p.OS + "/" + p.Architecture,
	})
	manifest.Platform = &p
	return manifest, nil
}

// addBill adds a bill of materials that refers to an image. It is in the index with the images, so
// that whatever copies those takes it along; a registry that knows of referrers then lists it by
// itself. Its platform is one that nobody runs.
func (l *layout) addBill(name string, text []byte, of v1.Descriptor) (v1.Descriptor, error) {
	bill, err := l.addBlob(billType, text)
	if err != nil {
		return v1.Descriptor{}, err
	}
	bill.Annotations = map[string]string{v1.AnnotationTitle: name}
	config, err := l.addBlob(v1.DescriptorEmptyJSON.MediaType, v1.DescriptorEmptyJSON.Data)
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    v1.MediaTypeImageManifest,
		ArtifactType: billType,
		Config:       config,
		Layers:       []v1.Descriptor{bill},
		Subject:      &v1.Descriptor{MediaType: of.MediaType, Digest: of.Digest, Size: of.Size},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	return manifest, nil
}

// finish adds the index of all manifests and makes it the layout's image.
func (l *layout) finish(o Options, manifests []v1.Descriptor) error {
	index, err := l.addJSON(v1.MediaTypeImageIndex, v1.Index{
		Versioned:   specs.Versioned{SchemaVersion: 2},
		MediaType:   v1.MediaTypeImageIndex,
		Manifests:   manifests,
		Annotations: o.annotations(),
	})
	if err != nil {
		return err
	}
	index.Annotations = map[string]string{
		v1.AnnotationRefName: o.Tag,
		// What containerd, and so docker load, calls it.
		"io.containerd.image.name": "docker.io/library/" + Name + ":" + o.Tag,
	}
	for name, content := range map[string]any{
		v1.ImageLayoutFile: v1.ImageLayout{Version: v1.ImageLayoutVersion},
		v1.ImageIndexFile: v1.Index{
			Versioned: specs.Versioned{SchemaVersion: 2},
			MediaType: v1.MediaTypeImageIndex,
			Manifests: []v1.Descriptor{index},
		},
	} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// annotations say what the image is. They have no time: it would make each build another one.
func (o *Options) annotations() map[string]string {
	a := map[string]string{
		v1.AnnotationTitle:       Name,
		v1.AnnotationDescription: "DNS answers with the pods behind each Kubernetes Service",
		v1.AnnotationLicenses:    "Apache-2.0",
		v1.AnnotationVersion:     o.Version,
	}
	if o.Revision != "" {
		a[v1.AnnotationRevision] = o.Revision
	}
	return a
}

func (l *layout) addJSON(mediaType string, content any) (v1.Descriptor, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.addBlob(mediaType, text)
}

// addBlob adds a blob, once.
func (l *layout) addBlob(mediaType string, content []byte) (v1.Descriptor, error) {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	if slices.ContainsFunc(l.blobs, func(b v1.Descriptor) bool { return b.Digest == d.Digest }) {
		return d, nil
	}
	l.blobs = append(l.blobs, d)
	return d, os.WriteFile(filepath.Join(l.dir, blobPath(d)), content, 0o644)
}

// blobPath is where a blob lies in the layout.
func blobPath(d v1.Descriptor) string {
	return filepath.Join(v1.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded())
}

// layer is the file system of the image: a tar file of the program.
func layer(program []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := addFile(w, Name, 0o755, program); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

// addFile adds a file of root's, of no time.
func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), Format: tar.FormatUSTAR})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

func compress(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// archive writes the layout as one file. Besides, there is in it what older versions of docker
// load look for.
func (l *layout) archive(path string) error {
	docker, err := json.Marshal([]dockerImage{l.forThisMachine()})
	if err != nil {
		return err
	}
	half := path + ".building"
	f, err := os.Create(half)
	if err != nil {
		return err
	}
	defer os.Remove(half)
	defer f.Close()
	w := tar.NewWriter(f)
	names := []string{v1.ImageLayoutFile, v1.ImageIndexFile}
	for _, b := range l.blobs {
		names = append(names, blobPath(b))
	}
	slices.Sort(names)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(l.dir, name))
		if err != nil {
			return err
		}
		if err := addFile(w, name, 0o644, content); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := addFile(w, "manifest.json", 0o644, docker); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := cmp.Or(w.Close(), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Rename(half, path)
}

// forThisMachine is the image of this machine's platform, else the first.
func (l *layout) forThisMachine() dockerImage {
	for _, d := range l.docker {
		if d.platform == "linux/"+runtime.GOARCH {
			return d
		}
	}
	return l.docker[0]
}
