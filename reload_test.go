package epdns_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/internal/freeport"
)

const configHead = "apiVersion: epdns/v1alpha1\nkind: Config\nsource: {manifests: cluster}\n"

// withTTL is a configuration that can be told from others by an answer.
func withTTL(ttl int) string {
	return fmt.Sprintf("zones: [{name: registry.local, defaults: {ttl: %d}}]\n", ttl)
}

// hasTTL waits until an answer has this TTL.
func (p *program) hasTTL(t *testing.T, ttl int) {
	t.Helper()
	want := fmt.Sprintf("A %d 10.1.1.41", ttl)
	eventually(t, func() error {
		if got := digs(t, p, "jobs.shop.registry.local.", dns.TypeA); !slices.Contains(got, want) {
			return fmt.Errorf("%q, not %q", got, want)
		}
		return p.running()
	})
}

// saidTimes is how often a line of the log has this text.
func (p *program) saidTimes(t *testing.T, text string) (n int) {
	t.Helper()
	for _, r := range p.log(t) {
		if strings.Contains(r.String(), text) {
			n++
		}
	}
	return n
}

const reloaded = "read the configuration again"

// rewrite changes a file and has it read at once.
func (p *program) rewrite(t *testing.T, file, text string) {
	t.Helper()
	replaceFile(t, file, text)
	p.cmd.Process.Signal(syscall.SIGHUP)
}

// reload is rewrite with a file that is good: it waits until it is in force.
func (p *program) reload(t *testing.T, file, text string) {
	t.Helper()
	before := p.saidTimes(t, reloaded)
	p.rewrite(t, file, text)
	eventually(t, func() error {
		if p.saidTimes(t, reloaded) == before {
			return fmt.Errorf("it does not say %q", reloaded)
		}
		return p.running()
	})
}

// TestReload: a file that has changed is used, with and without a signal. A bad one is
// not, each mistake is told with its line, and metrics say so until it is mended.
func TestReload(t *testing.T) {
	t.Parallel() // it mostly waits until a change is noticed
	file := settings(t, "source: {manifests: cluster}\n"+withTTL(7))
	p := serve(t, "--config", file)
	p.hasTTL(t, 7)
	m := p.metrics(t)
	if metric(m, "epdns_config_last_reload_successful") != 1 || metric(m, "epdns_config_last_reload_timestamp_seconds") < 1e9 {
		t.Error("the first configuration is not counted")
	}
	hash := func() string {
		t.Helper()
		return p.metrics(t)["epdns_config_info"].GetMetric()[0].GetLabel()[0].GetValue()
	}
	first, serial := hash(), metric(m, "epdns_zone_serial")

	replaceFile(t, file, configHead+withTTL(8))
	p.hasTTL(t, 8)
	if h := hash(); h == first || len(h) != 12 {
		t.Errorf("hash %q, before %q", h, first)
	}
	if s := metric(p.metrics(t), "epdns_zone_serial"); s <= serial {
		t.Errorf("serial %v, before %v", s, serial)
	}
	p.reload(t, file, configHead+withTTL(9))
	p.hasTTL(t, 9)

	replaceFile(t, file, configHead+"lisen: []\nzones: [{name: registry.local, defaults: {ttl: soon}}]\n")
	p.logged(t, "the one before stays", file+":4:", "lisen")
	p.logged(t, "the one before stays", file+":5:", "soon")
	if v := metric(p.metrics(t), "epdns_config_last_reload_successful"); v != 0 {
		t.Errorf("epdns_config_last_reload_successful is %v", v)
	}
	p.hasTTL(t, 9)
	os.Remove(file)
	p.logged(t, "the one before stays", "no such file")
	p.hasTTL(t, 9)
	replaceFile(t, file, configHead+withTTL(10))
	p.hasTTL(t, 10)
	eventually(t, func() error {
		if v := metric(p.metrics(t), "epdns_config_last_reload_successful"); v != 1 {
			return fmt.Errorf("epdns_config_last_reload_successful is %v", v)
		}
		return nil
	})
	if v := metric(p.metrics(t), "epdns_config_info"); v != 1 {
		t.Errorf("epdns_config_info is %v", v)
	}
}

// TestReloadMounted: a ConfigMap that is mounted changes by a symbolic link to another
// directory.
func TestReloadMounted(t *testing.T) {
	t.Parallel() // it mostly waits until a change is noticed
	cluster, err := filepath.Abs("testdata/cluster")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	publish := func(version, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "epdns.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	head := strings.Replace(configHead, "cluster", cluster, 1)
	publish("..1", head+withTTL(7))
	file := filepath.Join(dir, "epdns.yaml")
	if err := os.Symlink(filepath.Join("..data", "epdns.yaml"), file); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", file)
	p.hasTTL(t, 7)
	publish("..2", head+withTTL(8))
	p.hasTTL(t, 8)
}

// TestReloadWhole: what cannot change while it runs, or cannot be had, keeps all that
// stands beside it from changing.
func TestReloadWhole(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := settings(t, "source: {manifests: cluster}\n"+withTTL(7))
	p := serve(t, "--config", file, "--nsid", "by flag")
	for _, c := range []struct{ text, says string }{
		{"apiVersion: epdns/v1alpha1\nkind: Config\nsource: {manifests: elsewhere}\n", file + ":3: source.manifests has changed, which takes a restart"},
		{configHead + "annotationPrefix: example.com\n", file + ":4: annotationPrefix has changed, which takes a restart"},
		{configHead + "cookies: {secretFile: nowhere}\n", "nowhere: no such file"},
		{configHead + fmt.Sprintf("tls: {listen: [%q], cert: nowhere, key: nowhere}\n", "127.0.0.1:0"), "nowhere: no such file"},
	} {
		p.rewrite(t, file, c.text+withTTL(8))
		p.logged(t, "the one before stays", c.says)
	}
	p.hasTTL(t, 7)
	// A secret that was missing is noticed when it comes.
	p.rewrite(t, file, configHead+"cookies: {secretFile: late}\n"+withTTL(8))
	p.logged(t, "the one before stays", "late: no such file")
	replaceFile(t, filepath.Join(filepath.Dir(file), "late"), strings.Repeat("0a", 16)+"\n")
	p.hasTTL(t, 8)
	p.rewrite(t, file, configHead+withTTL(9)+"nsid: by file\n")
	p.hasTTL(t, 9)
	r, err := ask("id.server.", dns.TypeTXT).sendClass(p.dns.Port(), dns.ClassCHAOS)
	if err != nil || !strings.Contains(r, "by flag") {
		t.Errorf("the file beats a flag: %s, %v", r, err)
	}
}

// TestReloadAddresses: an address that is new answers before one that is not there any
// more is let go of; one that is taken keeps all as it is.
func TestReloadAddresses(t *testing.T) {
	first, second, web := freeport.Local(t), freeport.Local(t), freeport.Local(t)
	text := func(http string, listen ...string) string {
		return fmt.Sprintf("http: %q\nlisten: [%s]\n", http, strings.Join(listen, ", "))
	}
	quoted := func(s string) string { return fmt.Sprintf("%q", s) }
	file := settings(t, "source: {manifests: cluster}\n"+text("127.0.0.1:0", quoted(first))+withTTL(7))
	p := launch(t, environment(), "serve", "--log-format", "json", "--lameduck", "0", "--config", file)
	p.dns = netip.MustParseAddrPort(first)
	p.logged(t, `"serving"`)
	p.hasTTL(t, 7)

	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p.rewrite(t, file, configHead+text(web, quoted(first), quoted(second), quoted(taken.LocalAddr().String()))+withTTL(8))
	p.logged(t, "the one before stays", taken.LocalAddr().String(), "taken by another program")
	p.hasTTL(t, 7)
	for _, addr := range []string{second, web} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("after a change that failed: %v", err)
		}
		l.Close()
	}

	p.rewrite(t, file, configHead+text(web, quoted(first), quoted(second))+withTTL(9))
	p.hasTTL(t, 9)
	p.dns = netip.MustParseAddrPort(second)
	p.hasTTL(t, 9)
	p.http = "http://" + web
	if code, body := p.get(t, "/readyz?verbose"); code != http.StatusOK {
		t.Errorf("/readyz at its new address: %d %s", code, body)
	}
	_, port, _ := net.SplitHostPort(web)
	p.rewrite(t, file, configHead+text(":"+port, quoted(second))+withTTL(11))
	p.logged(t, "the one before stays", web, "a restart can change it")
	p.rewrite(t, file, configHead+text("", quoted(second))+withTTL(10))
	p.hasTTL(t, 10)
	for _, addr := range []string{first, web} {
		eventually(t, func() error {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
				return fmt.Errorf("%s is still listened on", addr)
			}
			return nil
		})
	}
}

// TestReloadSecrets: a secret that has changed is in use, though the file that names it has
// not.
func TestReloadSecrets(t *testing.T) {
	t.Parallel() // it mostly waits until a change is noticed
	file := settings(t, "source: {manifests: cluster}\ncookies: {secretFile: secrets}\n")
	secrets := filepath.Join(filepath.Dir(file), "secrets")
	replaceFile(t, secrets, strings.Repeat("0a", 16)+"\n")
	p := serve(t, "--config", file)
	cookie := func(c []byte) []byte {
		t.Helper()
		q := ask("jobs.shop.registry.local.", dns.TypeA)
		q.options = []option{{dns.EDNS0COOKIE, c}}
		r, err := q.send(p.dns.Port())
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(r.wire); err != nil {
			t.Fatal(err)
		}
		for _, o := range m.IsEdns0().Option {
			if c, ok := o.(*dns.EDNS0_COOKIE); ok {
				b, err := hex.DecodeString(c.Cookie)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
		}
		t.Fatal("the reply has no cookie")
		return nil
	}
	first := cookie([]byte("client's"))
	if again := cookie(first); hex.EncodeToString(again) != hex.EncodeToString(first) {
		t.Fatalf("cookie %x, then %x", first, again)
	}
	replaceFile(t, secrets, strings.Repeat("0b", 16)+"\n")
	p.logged(t, reloaded)
	if again := cookie(first); hex.EncodeToString(again[16:]) == hex.EncodeToString(first[16:]) {
		t.Error("the old secret is still in use")
	}
	replaceFile(t, secrets, "no secret\n")
	p.logged(t, "the one before stays", "secrets")
}

// TestReloadUnderLoad: other settings, addresses and zones each second, and no question
// lost or answered wrongly.
func TestReloadUnderLoad(t *testing.T) {
	file := settings(t, "source: {manifests: cluster}\n"+withTTL(7))
	p := serve(t, "--config", file)
	l := startLoad(t, p.dns, 8, 20_000)
	for i := range 5 {
		text := configHead + withTTL(10+i) + fmt.Sprintf("nsid: %q\nreverse: [10.%d.0.0/16]\n", fmt.Sprint("run ", i), i)
		if i%2 == 1 {
			text += fmt.Sprintf("tcp: {idle: %ds}\nnameserver: [192.0.2.%d]\n", 10+i, i)
		}
		p.reload(t, file, text)
		p.hasTTL(t, 10+i)
		time.Sleep(time.Second) // once a second
	}
	if err := l.end(t); err != nil {
		t.Error(err)
	}
	if n := p.saidTimes(t, "the one before stays"); n != 0 {
		t.Errorf("%d mistakes", n)
	}
}
