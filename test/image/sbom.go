package image

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
)

// bill is a bill of materials in the form of CycloneDX 1.6, as far as it is used here.
type bill struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	PackageURL string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// billOfMaterials lists what the linker put into a program: the modules and the standard library.
// The program itself says so.
func billOfMaterials(program []byte, version, platform string) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("read what was built: %w", err)
	}
	sum := sha256.Sum256(program)
	main := component{
		Ref:        "pkg:golang/" + Name + "@" + escape(version),
		Type:       "application",
		Name:       Name,
		Version:    version,
		Hashes:     []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
		Licenses:   make([]license, 1),
		Properties: []property{{"platform", platform}},
	}
	main.Licenses[0].License.ID = "Apache-2.0"
	goVersion, _, _ := strings.Cut(info.GoVersion, " ") // experiments may follow
	std := "pkg:golang/stdlib@" + strings.TrimPrefix(goVersion, "go")
	components := []component{{Ref: std, Type: "library", Name: "stdlib", Version: goVersion, PackageURL: std}}
	for _, m := range info.Deps {
		c, err := moduleComponent(m)
		if err != nil {
			return nil, err
		}
		components = append(components, c)
	}
	needs := dependency{Ref: main.Ref}
	for _, c := range components {
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	text, err := json.MarshalIndent(bill{
		Schema:       "http://cyclonedx.org/schema/bom-1.6.schema.json",
		Format:       "CycloneDX",
		SpecVersion:  "1.6",
		SerialNumber: serialNumber(sum),
		Version:      1,
		Metadata:     metadata{main},
		Components:   components,
		Dependencies: []dependency{needs},
	}, "", "  ")
	return append(text, '\n'), err
}

func moduleComponent(m *debug.Module) (component, error) {
	m = cmp.Or(m.Replace, m)
	c := component{Type: "library", Name: m.Path, Version: m.Version}
	c.PackageURL = "pkg:golang/" + m.Path + "@" + escape(m.Version)
	c.Ref = c.PackageURL
	if m.Sum == "" { // of a directory on this machine
		return c, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != sha256.Size {
		return c, fmt.Errorf("module %s has the sum %q, which is not h1: with a SHA-256", m.Path, m.Sum)
	}
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	return c, nil
}

// escape is what a package URL makes of +incompatible.
func escape(version string) string { return strings.ReplaceAll(version, "+", "%2B") }

// serialNumber is a UUID that is the same for the same program (RFC 9562, version 8).
func serialNumber(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
