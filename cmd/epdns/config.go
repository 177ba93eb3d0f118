package main

import (
	_ "embed"

	"epdns/registry"
	"epdns/zones"
)

// config is all that serve can be told, as people write it: in a file under these
// keys, and by flags, which fill the same fields. Settings checks it.
type config struct {
	APIVersion  string         `yaml:"apiVersion"`
	Kind        string         `yaml:"kind"`
	Source      sourceConfig   `yaml:"source"`
	Listen      []string       `yaml:"listen"`
	HTTP        string         `yaml:"http"`
	HTTPDetails bool           `yaml:"httpDetails"`
	Pprof       bool           `yaml:"pprof"`
	Lameduck    string         `yaml:"lameduck"`
	ReadyMaxAge string         `yaml:"readyMaxAge"`
	Prefix      string         `yaml:"annotationPrefix"`
	StateDir    string         `yaml:"stateDir"`
	StateMaxAge string         `yaml:"stateMaxAge"`
	AuditEvery  string         `yaml:"auditEvery"`
	SyncWithin  string         `yaml:"syncDeadline"`
	MassEmpty   massEmpty      `yaml:"massEmpty"`
	Zones       []zoneConfig   `yaml:"zones"`
	Reverse     []string       `yaml:"reverse"`
	Clients     clientsConfig  `yaml:"clients"`
	StaleAfter  string         `yaml:"staleAfter"`
	LogLevel    string         `yaml:"logLevel"`
	QueryLog    queryLogConfig `yaml:"queryLog"`
	ExplainTXT  bool           `yaml:"explainTXT"`
	ChurnTTL    string         `yaml:"churnTTL"`
	Nameserver  []string       `yaml:"nameserver"`
	Upstream    []string       `yaml:"upstream"`
	UDPSize     int            `yaml:"udpSize"`
	NSID        string         `yaml:"nsid"`
	HideVersion bool           `yaml:"hideVersion"`
	Cookies     cookiesConfig  `yaml:"cookies"`
	Allow       []string       `yaml:"allow"`
	Deny        []string       `yaml:"deny"`
	RateLimit   rateLimit      `yaml:"rateLimit"`
	Transfer    transferConfig `yaml:"transfer"`
	TCP         tcpConfig      `yaml:"tcp"`
	TLS         tlsConfig      `yaml:"tls"`
}

type sourceConfig struct {
	Kubeconfig string   `yaml:"kubeconfig"`
	Context    string   `yaml:"context"`
	Manifests  string   `yaml:"manifests"`
	Namespaces []string `yaml:"namespaces"`
}

type zoneConfig struct {
	Name          string       `yaml:"name"`
	Layout        string       `yaml:"layout"`
	Empty         string       `yaml:"empty"`
	EndpointNames string       `yaml:"endpointNames"`
	Namespaces    []string     `yaml:"namespaces"`
	Selector      string       `yaml:"selector"`
	Defaults      knobValues   `yaml:"defaults"`
	Rules         []ruleConfig `yaml:"rules"`
}

// knobValues are texts by the names of zones.Knobs. It has those that the file has.
type knobValues map[string]string

type ruleConfig struct {
	Match matchConfig `yaml:"match"`
	Set   knobValues  `yaml:"set"`
}

type matchConfig struct {
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	Selector  string `yaml:"selector"`
}

type clientsConfig struct {
	TrustedForwarders []string           `yaml:"trustedForwarders"`
	SharedCaches      []string           `yaml:"sharedCaches"`
	Places            []placeConfig      `yaml:"places"`
	Visibility        []visibilityConfig `yaml:"visibility"`
	Sources           placeSources       `yaml:"sources"`
}

type visibilityConfig struct {
	CIDR       string   `yaml:"cidr"`
	Namespaces []string `yaml:"namespaces"`
}

type placeConfig struct {
	CIDR   string `yaml:"cidr"`
	Node   string `yaml:"node"`
	Zone   string `yaml:"zone"`
	Region string `yaml:"region"`
}

type placeSources struct {
	ECS       bool `yaml:"ecs"`
	Endpoints bool `yaml:"endpoints"`
	Nodes     bool `yaml:"nodes"`
	PodCIDRs  bool `yaml:"podCIDRs"`
	Places    bool `yaml:"places"`
}

type massEmpty struct {
	Above int     `yaml:"above"`
	Share float64 `yaml:"share"`
	Hold  string  `yaml:"hold"`
}

type rateLimit struct {
	PerSecond int      `yaml:"perSecond"`
	Slip      int      `yaml:"slip"`
	Exempt    []string `yaml:"exempt"`
}

type queryLogConfig struct {
	Sample float64 `yaml:"sample"`
}

type cookiesConfig struct {
	SecretFile string `yaml:"secretFile"`
}

type transferConfig struct {
	Allow  []string     `yaml:"allow"`
	TSIG   []tsigConfig `yaml:"tsig"`
	Notify []string     `yaml:"notify"`
}

type tsigConfig struct {
	Name       string `yaml:"name"`
	Algorithm  string `yaml:"algorithm"`
	SecretFile string `yaml:"secretFile"`
}

func (t *tsigConfig) setDefaults() { t.Algorithm = "hmac-sha256" }

type tcpConfig struct {
	Idle      string `yaml:"idle"`
	Write     string `yaml:"write"`
	PerSource int    `yaml:"perSource"`
	Total     int    `yaml:"total"`
}

type tlsConfig struct {
	Listen []string `yaml:"listen"`
	Cert   string   `yaml:"cert"`
	Key    string   `yaml:"key"`
}

// reference is a configuration file that changes nothing: every key has its default.
//
//go:embed reference.yaml
var reference string

func defaultConfig() *config {
	c := &config{
		Listen: []string{":5300"},
		HTTP:   "127.0.0.1:9153",
		Prefix: registry.DefaultAnnotationPrefix,

		Lameduck:    "5s",
		ReadyMaxAge: "0",
		StateMaxAge: "24h",
		AuditEvery:  "5m",
		SyncWithin:  "10s",
		MassEmpty:   massEmpty{Above: 20, Share: 0.8, Hold: "10s"},

		Zones:   make([]zoneConfig, 1),
		Clients: clientsConfig{Sources: placeSources{ECS: true, Endpoints: true, Nodes: true, PodCIDRs: true, Places: true}},
		UDPSize: 1232,
		TCP:     tcpConfig{Idle: "12s", Write: "2s", PerSource: 64, Total: 1024},

		RateLimit:  rateLimit{Slip: 2},
		StaleAfter: "60s",
		LogLevel:   "info",
		ExplainTXT: true,
		ChurnTTL:   "0",
	}
	c.Zones[0].setDefaults()
	c.Zones[0].Name = "registry.local"
	return c
}

// setDefaults fills all but the name.
func (z *zoneConfig) setDefaults() {
	d := zones.DefaultZone("")
	*z = zoneConfig{Layout: d.Layout.String(), Empty: d.Empty.String(), EndpointNames: d.EndpointNames.String()}
}
