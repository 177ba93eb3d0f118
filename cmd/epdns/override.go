package main

import (
	"bytes"

	"epdns/zones"
)

// flagKeys are the flags that say the same as a key, and what it is to say it.
var flagKeys = []struct {
	flag, key string
	set       func(c, flags *config)
}{
	{"kubeconfig", "source.kubeconfig", func(c, flags *config) { c.Source.Kubeconfig = flags.Source.Kubeconfig }},
	{"context", "source.context", func(c, flags *config) { c.Source.Context = flags.Source.Context }},
	{"manifests", "source.manifests", func(c, flags *config) { c.Source.Manifests = flags.Source.Manifests }},
	{"namespace", "source.namespaces", func(c, flags *config) { c.Source.Namespaces = flags.Source.Namespaces }},
	{"listen", "listen", func(c, flags *config) { c.Listen = flags.Listen }},
	{"pprof", "pprof", func(c, flags *config) { c.Pprof = flags.Pprof }},
	{"http", "http", func(c, flags *config) { c.HTTP = flags.HTTP }},
	{"lameduck", "lameduck", func(c, flags *config) { c.Lameduck = flags.Lameduck }},
	{"state-dir", "stateDir", func(c, flags *config) { c.StateDir = flags.StateDir }},
	{"zone", "zones", func(c, flags *config) { c.Zones = asDescribed(flags.Zones, c.Zones) }},
	{"reverse", "reverse", func(c, flags *config) { c.Reverse = flags.Reverse }},
	{"nameserver", "nameserver", func(c, flags *config) { c.Nameserver = flags.Nameserver }},
	{"upstream", "upstream", func(c, flags *config) { c.Upstream = flags.Upstream }},
	{"log-level", "logLevel", func(c, flags *config) { c.LogLevel = flags.LogLevel }},
	{"nsid", "nsid", func(c, flags *config) { c.NSID = flags.NSID }},
	{"cookie-secrets", "cookies.secretFile", func(c, flags *config) { c.Cookies.SecretFile = flags.Cookies.SecretFile }},
	{"transfer-allow", "transfer.allow", func(c, flags *config) { c.Transfer.Allow = flags.Transfer.Allow }},
}

// override lets the flags that were given beat what c says. A source that a flag
// names is not mixed with one of the other kind.
func (c *config) override(flags *config, given func(flag string) bool) {
	switch {
	case given("manifests"):
		c.Source = sourceConfig{}
	case given("kubeconfig"):
		c.Source.Manifests, c.Source.Context = "", "" // a context is one of its own file's
	case given("context") || given("namespace"):
		c.Source.Manifests = ""
	}
	for _, f := range flagKeys {
		if given(f.flag) {
			f.set(c, flags)
		}
	}
}

// asDescribed are the zones named, each with the settings that it has in the file.
func asDescribed(named, file []zoneConfig) (out []zoneConfig) {
	for _, z := range named {
		for _, f := range file {
			if sameName(z.Name, f.Name) {
				z = f
			}
		}
		out = append(out, z)
	}
	return out
}

func sameName(a, b string) bool {
	x, xerr := zones.ParseName(a)
	y, yerr := zones.ParseName(b)
	return xerr == nil && yerr == nil && bytes.Equal(x, y)
}
