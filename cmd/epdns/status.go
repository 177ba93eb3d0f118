package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"epdns/registry/kube"
)

// This file tells how the servers of a cluster are. Their Pods are asked through the API
// server, for /readyz and /metrics, which are for everybody who can reach them.

// statusFlags are what status can be told.
type statusFlags struct {
	ask      askFlags
	selector string
	timeout  time.Duration
	output   outputFlag
	color    colorFlag
}

// epdnsPods are the Pods that deploy/ makes.
const epdnsPods = "app.kubernetes.io/name=epdns"

func newStatus() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the epdns servers of a cluster and how they are",
		Long: `Show the epdns servers of a cluster: whether they are ready, and what they answer from.
Their Pods are found by a label and asked through the API server, which needs the rights
to list pods and to get pods/proxy. With --server, one server is asked by its URL.

The exit status is 1 where there is none, or one that is not ready.`,
		Example: `  epdns status
  epdns status -n dns --selector app=epdns -o wide
  epdns status --server http://127.0.0.1:9153`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.ask.server, "server", "", "ask this epdns, by the URL of its HTTP address, such as http://127.0.0.1:9153")
	fl.StringVar(&f.ask.source.kubeconfig, "kubeconfig", "", "ask in the cluster that this file names")
	fl.StringVar(&f.ask.source.context, "context", "", "context of the kubeconfig")
	fl.StringArrayVarP(&f.ask.source.namespaces, "namespace", "n", nil, "look for servers in this namespace only; repeat for several (default: all)")
	fl.StringVarP(&f.selector, "selector", "l", epdnsPods, "labels of the servers' Pods")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for answers")
	f.output.register(cmd, "table", "wide", "json", "yaml")
	f.color.register(cmd)
	return cmd
}

// seenServer is one server as it was seen, in the form of "status -o json".
type seenServer struct {
	Namespace string   `json:"namespace,omitempty"`
	Pod       string   `json:"pod,omitempty"`
	Node      string   `json:"node,omitempty"`
	URL       string   `json:"url,omitempty"`
	Error     string   `json:"error,omitempty"` // why nothing more is known
	Ready     bool     `json:"ready"`
	Why       []string `json:"why,omitempty"` // it is not ready
	Version   string   `json:"version,omitempty"`
	Synced    bool     `json:"synced"`
	Restored  bool     `json:"restored"` // it answers from its state directory
	Stale     bool     `json:"stale"`
	Age       float64  `json:"ageSeconds"` // of what it knows
	Services  int      `json:"services"`
	Endpoints int      `json:"endpoints"`
	ReadyEnds int      `json:"readyEndpoints"`
	Serial    uint32   `json:"serial"`
	Problems  int      `json:"annotationProblems"`
}

func (f *statusFlags) run(cmd *cobra.Command) error {
	if err := f.output.check(); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return usagef("--timeout %v is no time to wait", f.timeout)
	}
	out, err := f.color.screen(cmd)
	if err != nil {
		return err
	}
	out.wide = f.output.form == "wide"
	server, err := f.ask.remote(cmd, "selector")
	if err == nil && server != nil {
		err = server.needsHTTP()
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	var all []seenServer
	if server != nil {
		s := seenServer{URL: server.String()}
		s.ask(ctx, server.base, server.client)
		all = append(all, s)
	} else if all, err = f.pods(ctx); err != nil {
		return err
	}
	switch f.output.form {
	case "json":
		err = printJSON(out, all)
	case "yaml":
		err = printYAML(out, all)
	default:
		err = printStatus(out, all)
	}
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	unready := 0
	for _, s := range all {
		if s.Ready {
			continue
		}
		unready++
		if why := cmp.Or(s.Error, strings.Join(s.Why, "; ")); why != "" && (f.output.form == "table" || f.output.form == "wide") {
			sayer(cmd)("%s: %s", s.name(), why)
		}
	}
	if unready > 0 {
		return fmt.Errorf("%d of %s not ready", unready, counted(len(all), "server"))
	}
	return nil
}

func (s *seenServer) name() string {
	if s.Pod == "" {
		return s.URL
	}
	return s.Namespace + "/" + s.Pod
}

// pods asks the servers that are Pods of the cluster.
func (f *statusFlags) pods(ctx context.Context) (all []seenServer, err error) {
	if err := f.ask.source.check(); err != nil {
		return nil, asFlag(err)
	}
	api, err := kube.NewAPI(kube.Config{Kubeconfig: f.ask.source.kubeconfig, Context: f.ask.source.context})
	if errors.Is(err, kube.ErrNoCluster) {
		return nil, fmt.Errorf("%w; give --kubeconfig FILE, or --server URL to ask a running epdns", kube.ErrNoCluster)
	}
	if err != nil {
		return nil, err
	}
	namespaces, in := f.ask.source.namespaces, "namespace "+strings.Join(f.ask.source.namespaces, ", ")
	if len(namespaces) == 0 {
		namespaces, in = []string{""}, "all namespaces"
	}
	var pods []kube.Pod
	for _, ns := range namespaces {
		more, err := api.Pods(ctx, ns, f.selector)
		if err != nil {
			return nil, err
		}
		pods = append(pods, more...)
	}
	// Those that are over stay in the API for a while, beside the ones in their place.
	pods = slices.DeleteFunc(pods, func(p kube.Pod) bool { return p.Phase == "Succeeded" || p.Phase == "Failed" })
	if len(pods) == 0 {
		return nil, fmt.Errorf("%v: no Pod with %s in %s; deploy/README.md tells how to install epdns (--namespace and --selector look elsewhere)", api, f.selector, in)
	}
	all = make([]seenServer, len(pods))
	var g errgroup.Group
	g.SetLimit(mostAsked)
	for i, pod := range pods {
		all[i] = seenServer{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Node}
		if pod.Phase != "Running" {
			all[i].Error = "the Pod is " + cmp.Or(pod.Phase, "not known to run")
			continue
		}
		g.Go(func() error {
			u, client := api.Proxy(pod, cmp.Or(pod.Ports["http"], defaultHTTPPort))
			all[i].ask(ctx, u, client)
			return nil
		})
	}
	g.Wait()
	slices.SortFunc(all, func(a, b seenServer) int { return strings.Compare(a.name(), b.name()) })
	return all, nil
}

// mostAsked is how many are asked at a time: all of it goes through the API server, and there
// may be one on each node.
const mostAsked = 20

// defaultHTTPPort is that of /metrics where nothing else is set.
const defaultHTTPPort = 9153

// ask has a server tell of itself. Whoever may make a Pod with the label can be that server.
func (s *seenServer) ask(ctx context.Context, base *url.URL, client *http.Client) {
	code, ready, err := fetchText(ctx, client, base, "readyz", "verbose")
	if err == nil && code != http.StatusOK && code != http.StatusServiceUnavailable || err == nil && !strings.Contains(ready, "[") {
		err = fmt.Errorf("/readyz says %d: %s", code, firstLine(ready))
	}
	if err != nil && s.URL != "" { // else it is the API server that was asked
		err = advised(ctx, err)
	}
	if err != nil {
		s.Error = harmless(err.Error())
		return
	}
	s.Ready = code == http.StatusOK
	for line := range strings.Lines(ready) {
		if why, ok := strings.CutPrefix(line, "[-]"); ok {
			s.Why = append(s.Why, harmless(strings.TrimSpace(why)))
		}
	}
	code, text, err := fetchText(ctx, client, base, "metrics", "")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("/metrics says %d: %s", code, firstLine(text))
	}
	if err != nil {
		s.Error = harmless(err.Error())
		return
	}
	m := readMetrics(text)
	s.Version = cell(metricLabel(text, "epdns_build_info", "version"))
	s.Synced, s.Restored, s.Stale = m["epdns_synced"] == 1, m["epdns_state_restored"] == 1, m["epdns_stale"] == 1
	s.Age = m["epdns_answers_age_seconds"]
	s.Services, s.Serial, s.Problems = int(m["epdns_services"]), uint32(m["epdns_zone_serial"]), int(m["epdns_annotation_problems"])
	s.ReadyEnds = int(m[`epdns_endpoints{ready="true"}`])
	s.Endpoints = s.ReadyEnds + int(m[`epdns_endpoints{ready="false"}`])
}

// maxStatusPage is the longest page that is read of a server.
const maxStatusPage = 16 << 20

func fetchText(ctx context.Context, client *http.Client, base *url.URL, path, query string) (code int, text string, err error) {
	u := base.JoinPath(path)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxStatusPage))
	return resp.StatusCode, string(b), err
}

// firstLine is what there is to read of a page that was not expected: of an API server's, the
// message.
func firstLine(text string) string {
	var status struct{ Message string }
	if json.Unmarshal([]byte(text), &status) == nil && status.Message != "" {
		text = status.Message
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	const most = 300
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// readMetrics reads the form that Prometheus reads, as far as a sample a line goes: by name
// and labels as they are written.
func readMetrics(text string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			out[line[:at]] = v
		}
	}
	return out
}

// metricLabel is the value of a label of the first sample of a metric.
func metricLabel(text, name, label string) string {
	_, rest, ok := strings.Cut(text, "\n"+name+"{")
	if !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "\n")
	if _, rest, ok = strings.Cut(","+rest, ","+label+`="`); !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// answersFrom is what a server answers from, in a word or two.
func (s *seenServer) answersFrom() painted {
	age := time.Duration(s.Age * float64(time.Second)).Round(time.Second)
	switch {
	case s.Error != "":
		return painted{"-", unstyled}
	case !s.Synced:
		return painted{"nothing-yet", red}
	case s.Restored:
		return painted{"restored," + age.String() + "-old", yellow}
	case s.Stale:
		return painted{"stale," + age.String() + "-old", red}
	case age > 0:
		return painted{age.String() + "-old", yellow}
	}
	return painted{"current", green}
}

func printStatus(w io.Writer, all []seenServer) error {
	s := onScreen(w)
	header := []string{"SERVER", "NODE", "READY", "KNOWS", "SERVICES", "ENDPOINTS", "VERSION"}
	if s.wide {
		header = append(header, "SERIAL", "BAD-ANNOTATIONS")
	}
	var rows [][]painted
	for i := range all {
		st := &all[i]
		ready := painted{"no", red}
		if st.Ready {
			ready = painted{"yes", green}
		}
		row := append(plainCells(st.name(), cmp.Or(st.Node, "-")), ready, st.answersFrom())
		known := []string{"-", "-", "-", "-", "-"}
		if st.Error == "" {
			known = []string{fmt.Sprint(st.Services), fmt.Sprintf("%d/%d", st.ReadyEnds, st.Endpoints), cmp.Or(st.Version, "-"),
				fmt.Sprint(st.Serial), fmt.Sprint(st.Problems)}
		}
		rows = append(rows, append(row, plainCells(known[:len(header)-len(row)]...)...))
	}
	var out bytes.Buffer
	s.printTable(&out, 0, header, rows, 0)
	_, err := w.Write(out.Bytes())
	return err
}
